"""Rows of one hash in the order of their columns: found by value, whatever order the file has."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbp.engine.columnar.arrow_types import Int64s
from cbp.engine.columnar.values import row_order
from cbp.engine.state.lookup import IndexedFile
from cbp.engine.state.second_key_order import SecondOrder
from cbp.model.flow.schema import DataType, Schema

TYPES = (DataType("STRING"), DataType("DOUBLE"))

ROWS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from([None, "", "a", "b", "ä"]),
        st.sampled_from([None, 0.0, -0.0, 1.0, -1.5, float("nan"), float("inf")]),
    ),
    max_size=30,
)


def order_of(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return row[0], row_order(row[1:], TYPES)


@given(rows=ROWS, is_sorted=st.booleans(), wanted=ROWS)
def test_a_search_gives_the_places_of_a_value(
    rows: list[tuple[Any, ...]], is_sorted: bool, wanted: list[tuple[Any, ...]]
) -> None:
    """Nulls come first, NaN last, both zeros are one; a file in another order is sorted."""
    rows.sort(key=order_of if is_sorted else lambda row: row[0])
    hashes = np.array([row[0] for row in rows], np.int64)
    columns = [
        pa.array([row[1] for row in rows], pa.large_string()),
        pa.array([row[2] for row in rows], pa.float64()),
    ]
    order = SecondOrder(hashes, None, TYPES)
    order.check(lambda rows: columns)
    places = sorted(range(len(rows)), key=lambda at: order_of(rows[at]))
    assert [order_of(rows[row]) for row in order.rows(0, len(rows)).tolist()] == [
        order_of(rows[at]) for at in places
    ]
    assert order.is_sorted == (rows == [rows[at] for at in places])
    for one in wanted:
        start, stop = np.searchsorted(hashes, [one[0], one[0] + 1]).tolist()
        for n in (0, 1, 2):
            value = row_order(one[1 : 1 + n], TYPES[:n])
            expected = [
                at
                for at, row in enumerate(rows)
                if row[0] == one[0] and order_of(row)[1][:n] == value
            ]
            ends = [order.search(value, start, stop, behind=behind) for behind in (False, True)]
            assert sorted(map(order.row, range(*ends))) == expected
            below = [row for row in rows if row[0] == one[0] and order_of(row)[1][:n] < value]
            assert ends[0] == start + len(below)
            assert order.span(value, start, stop)[0] in (ends[0], stop) or not n
            assert sorted(map(order.row, range(*order.span(value, start, stop)))) == expected
            if n == 2 and expected:
                above = order.span(value[:1], start, stop)
                assert order.span(value[1:], *above, first=1) == order.span(value, start, stop)
    for n in (0, 1, 2):
        values = [
            pa.array([one[1] for one in wanted], pa.string()),
            pa.array([one[2] for one in wanted], pa.float64()),
        ]
        firsts, lasts = (
            np.searchsorted(hashes, np.array([one[0] + up for one in wanted], np.int64))
            for up in (0, 1)
        )
        starts, stops = order.spans(values[:n], firsts, lasts)
        for at, one in enumerate(wanted):
            alone = order.span(
                row_order(one[1 : 1 + n], TYPES[:n]), int(firsts[at]), int(lasts[at])
            )
            assert range(starts[at], stops[at]) == range(*alone)


LINKS = st.lists(
    st.tuples(st.integers(0, 30), st.integers(-2, 2), st.sampled_from([None, "", "a", "ä"])),
    min_size=1,
    max_size=60,
)


@given(rows=LINKS, is_sorted=st.booleans(), no_nulls=st.booleans(), asked=st.lists(LINKS))
def test_a_search_of_a_few_hashes_checks_only_their_rows(
    rows: list[tuple[Any, ...]],
    is_sorted: bool,
    no_nulls: bool,
    asked: list[list[tuple[Any, ...]]],
) -> None:
    """It finds what it would find if all rows had been checked, also after later searches."""
    types = (DataType("BIGINT"), DataType("STRING"))
    if no_nulls:
        rows = [row for row in rows if row[2] is not None]
    rows.sort(key=lambda row: (row[0], row_order(row[1:], types)) if is_sorted else row[0])
    hashes = np.array([row[0] for row in rows], np.int64)
    columns = [
        pa.array([row[1] for row in rows], pa.int64()),
        pa.array([row[2] for row in rows], pa.large_string()),
    ]
    read = set[int]()

    def part(some: Int64s | None) -> list[pa.Array]:
        read.update(range(len(rows)) if some is None else some.tolist())
        return columns

    whole, order = (SecondOrder(hashes, None, types) for _ in range(2))
    whole.check(lambda _: columns)
    came = set[int]()
    for wanted in asked:
        values = [
            pa.array([one[1] for one in wanted], pa.int64()),
            pa.array([one[2] for one in wanted], pa.string()),
        ]
        firsts, lasts = (
            np.searchsorted(hashes, np.array([one[0] + up for one in wanted], np.int64))
            for up in (0, 1)
        )
        came |= {one[0] for one in wanted}
        order.check_ranges(firsts, lasts, part)
        starts, stops = order.spans(values[:1], firsts, lasts)
        found = order.spans(values[1:], starts, stops, first=1)
        for mine, right in zip(found, whole.spans(values, firsts, lasts), strict=True):
            some = lasts > firsts
            assert mine[some].tolist() == right[some].tolist()
        places = np.concatenate([np.empty(0, np.int64), *map(np.arange, *found)])
        assert order.rows_at(places).tolist() == whole.rows_at(places).tolist()
    if is_sorted and no_nulls and 8 * sum(row[0] in came for row in rows) < len(rows):
        assert {rows[at][0] for at in read} <= came


@pytest.mark.parametrize("is_whole", [True, False], ids=["all rows", "some rows"])
def test_an_order_keeps_no_file_in_memory(is_whole: bool) -> None:
    """Tasks collect no cycles, so the last reference to a file must free it."""
    hashes = np.arange(100)
    batch = pa.record_batch({"k": pa.array(hashes), "_hash": pa.array(hashes)})
    ranges = np.array([3]), np.array([4])
    gc.disable()
    try:
        file = IndexedFile(batch)
        order = file.second_order(Schema.parse("k BIGINT"), ranges=None if is_whole else ranges)
        assert [*map(int, np.concatenate(order.spans([pa.array([3])], *ranges)))] == [3, 4]
        gone = weakref.ref(file)
        del file, order
        assert gone() is None
    finally:
        gc.enable()


class _Overtaken:
    """A lock that another thread had before, which checked all rows of an order."""

    def __init__(self, check_all: Callable[[], None]) -> None:
        self._check_all = check_all

    def __enter__(self) -> None:
        self._check_all()

    def __exit__(self, *error: object) -> None:
        pass


def test_a_check_of_some_rows_keeps_what_another_thread_sorted() -> None:
    """It waited for that thread, and so must not go on with the columns of the file."""
    numbers = [5, 3, 4, *range(50)]
    hashes = np.array([0, 0, 0, *range(1, 51)])
    order, columns = SecondOrder(hashes, None, [DataType("BIGINT")]), [pa.array(numbers)]
    lock: Any = _Overtaken(lambda: order._check_all(lambda rows: columns))
    order._lock = lock
    order.check_ranges(np.array([10]), np.array([11]), lambda rows: columns)
    starts, stops = order.spans([pa.array([3, 4, 5])], np.full(3, 0), np.full(3, 3))
    assert starts.tolist() == [0, 1, 2]
    assert stops.tolist() == [1, 2, 3]
    assert order.rows_at(starts).tolist() == [1, 2, 0]
