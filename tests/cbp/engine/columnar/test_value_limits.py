"""Which values a column may hold, wherever they lie in it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from cbp.engine.columnar.value_limits import inner_arrays, why_not_held

LATE = 2_932_897
"""The day 10000-01-01."""


def days(*numbers: int | None) -> pa.Array:
    return pa.array(numbers, pa.int32()).view(pa.date32())


def nested(leaf: pa.Array) -> list[pa.Array]:
    """Return columns of which row `n` holds value `n`."""
    each = pa.array(range(len(leaf) + 1), pa.int32())
    keys = pa.array(["k"] * len(leaf))
    return [
        leaf,
        pa.ListArray.from_arrays(each, leaf),
        pa.LargeListArray.from_arrays(each.cast(pa.int64()), leaf),
        pa.StructArray.from_arrays([leaf], ["f"]),
        pa.MapArray.from_arrays(each, keys, leaf),
        pa.ListArray.from_arrays(each, pa.MapArray.from_arrays(each, keys, leaf)),
    ]


@pytest.mark.parametrize("at", range(6))
def test_a_value_is_found_in_its_row_and_in_no_other(at: int) -> None:
    """Also where an array is a part of a larger one; nothing is wrong with no rows or nulls."""
    column = nested(days(0, None, LATE, 5))[at]
    assert why_not_held(column)
    assert [bool(why_not_held(column.slice(row, 1))) for row in range(4)] == [False] * 2 + [
        True,
        False,
    ]
    assert not why_not_held(column.slice(2, 0))
    assert not why_not_held(pa.nulls(3, column.type))


@pytest.mark.parametrize(
    ("rows", "key", "wrong"),
    [
        ([[("a", 1), ("b", 1)], [("a", 1)], None, []], pa.string(), []),
        ([[("a", 1)], [("b", 1), ("b", 2)], [("b", 1)]], pa.string(), [1]),
        ([[(0.0, 1), (-0.0, 2)], [(0.0, 1), (1.0, 2)]], pa.float64(), [0]),
        ([[(float("nan"), 1), (float("nan"), 2)]], pa.float32(), [0]),
        ([[(b"\0", 1), (b"", 2)], [(b"", 1), (b"", 2)]], pa.large_binary(), [1]),
        ([[([1], 1), ([2], 2)], [([1], 1), ([1], 2)]], pa.list_(pa.int8()), [1]),
    ],
)
def test_keys_of_a_map_differ(rows: list[Any], key: pa.DataType, wrong: list[int]) -> None:
    """By value: a zero with a sign is zero, and NaN is NaN."""
    column = pa.array(rows, pa.map_(key, pa.int64()))
    actual = [at for at in range(len(column)) if why_not_held(column.slice(at, 1))]
    assert actual == wrong
    assert bool(why_not_held(column)) == bool(wrong)


def test_parts_of_a_slice_are_those_of_its_rows() -> None:
    """The bytes before and after it in the same memory do not matter."""
    column = pa.array(
        [[("a", 1)], [("b", 2), ("c", 3)], [("d", 4)]], pa.map_(pa.string(), pa.int64())
    )
    keys, items = inner_arrays(column.slice(1, 1))
    assert (keys.to_pylist(), items.to_pylist()) == (["b", "c"], [2, 3])
    assert [len(part) for part in inner_arrays(column.slice(1, 0))] == [0, 0]
