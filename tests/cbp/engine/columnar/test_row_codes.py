"""Codes and orders of rows; the difference of tables is that of multisets."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbp.engine.columnar.row_codes import row_codes, stable_order, subtract_rows
from cbp.model.dataflow.equality import identity
from tests.sampling import examples

SCHEMA = pa.schema([("a", pa.float64()), ("b", pa.list_(pa.string())), ("c", pa.int64())])
ROWS = st.lists(
    st.tuples(
        st.sampled_from([0.0, -0.0, math.nan, None, 1.5]),
        st.sampled_from([None, [], ["x"], ["x", None]]),
        st.sampled_from([None, 1, 2]),
    ),
    max_size=12,
)


def table(rows: list[Any]) -> pa.Table:
    """Return rows as a table."""
    return pa.Table.from_pylist([dict(zip("abc", row, strict=True)) for row in rows], SCHEMA)


def counted(made: pa.Table) -> Counter[Any]:
    """Return how often each row is there."""
    return Counter(identity(tuple(row.values())) for row in made.to_pylist())


@settings(max_examples=examples(60), deadline=None)
@given(ROWS, ROWS)
def test_equal_rows_take_each_other_out(rows: list[Any], gone: list[Any]) -> None:
    """Nulls, NaN, both zeros and nested values included; what is not there is handed back."""
    left, lacking = subtract_rows(table(rows), table(gone))
    have, want = counted(table(rows)), counted(table(gone))
    assert counted(left) == have - want
    assert counted(lacking) == want - have


@pytest.mark.parametrize("type_", [np.int64, np.uint64])
@settings(max_examples=examples(20), deadline=None)
@given(
    seed=st.integers(0, 1 << 30),
    many=st.sampled_from([0, 1, 999, 1_000, 5_000]),
    different=st.sampled_from([1, 50, 1 << 40]),
    step=st.sampled_from([1, 3, 1 << 20, 1 << 52]),
    run=st.sampled_from([1, 7, 900]),
)
def test_numbers_are_ordered_as_by_a_stable_sort(
    type_: type[Any], seed: int, many: int, different: int, step: int, run: int
) -> None:
    """Small ones, all 64 bits, bits without room, and runs of equal ones."""
    dice = np.random.default_rng(seed)
    drawn = dice.integers(0, min(different, (1 << 63) // step), many).astype(np.uint64)
    values = (drawn * np.uint64(step) + np.uint64(dice.integers(0, 1 << 63))).view(type_)
    values = np.repeat(values, run)[:many]
    assert np.array_equal(stable_order(values), np.argsort(values, kind="stable"))


def test_codes_of_ascending_numbers_are_those_of_any() -> None:
    """Equal ones next to each other share a code; codes begin at 0 and have no gaps."""
    numbers = [-5, -5, 0, 3, 3, 9]
    (codes,) = row_codes([pa.table({"a": numbers})])
    assert codes.tolist() == [0, 0, 1, 2, 2, 3]
    (codes,) = row_codes([pa.table({"a": numbers[:0]})])
    assert codes.tolist() == []
