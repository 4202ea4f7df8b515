"""Settling on columns against counting record by record."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from cbp.engine.columnar.row_codes import row_codes
from cbp.engine.kernel.arrow.state_diff import settle_tables
from cbp.model.dataflow.equality import identity
from tests.sampling import examples

NAN = float("nan")
TYPES = [
    pa.float64(),
    pa.large_string(),
    pa.list_(pa.int32()),
    pa.map_(pa.string(), pa.float64()),
    pa.struct([("a", pa.int8()), ("b", pa.list_(pa.string()))]),
]
_numbers = st.sampled_from([0.0, -0.0, NAN, 1.5, None])
_texts = st.sampled_from(["", "a", "ä", None])
_structs = st.fixed_dictionaries(
    {"a": st.sampled_from([0, 1, None]), "b": st.sampled_from([None, [], ["a"], ["a", None]])}
)
VALUES = st.tuples(
    _numbers,
    _texts,
    st.sampled_from([None, [], [0], [0, 1], [1, 0], [None]]),
    st.sampled_from([None, {}, {"a": 1.0, "b": NAN}, {"b": NAN, "a": 1.0}, {"a": None}]),
    st.one_of(st.none(), _structs),
)
RECORDS = st.lists(st.tuples(st.integers(0, 3), VALUES), max_size=8)
SINGLES = st.dictionaries(st.integers(0, 5), VALUES, max_size=6).map(lambda d: list(d.items()))


def _table(records: list[Any]) -> tuple[pa.Table, Any]:
    columns = [[values[at] for _, values in records] for at in range(len(TYPES))]
    arrays = [pa.array(column, type_) for column, type_ in zip(columns, TYPES, strict=True)]
    names = [f"c{at}" for at in range(len(TYPES))]
    return pa.table(arrays, names), np.array([group for group, _ in records], np.int64)


def _expected(found: list[Any], emitted: list[Any]) -> tuple[Any, Any]:
    before, after = Counter(map(identity, found)), Counter(map(identity, emitted))
    return before - after, after - before


def _check(found: list[Any], emitted: list[Any]) -> None:
    found = sorted(found, key=lambda record: record[0])
    (mine, ids), (theirs, their_ids) = _table(found), _table(emitted)
    died, born = settle_tables(mine, ids, theirs, their_ids, groups=6)
    dead, new = _expected(found, emitted)
    assert Counter(identity(found[at]) for at in died.tolist()) == dead
    assert Counter(identity(emitted[at]) for at in born.tolist()) == new
    assert list(their_ids[born]) == sorted(their_ids[born])


@given(RECORDS, RECORDS)
@settings(max_examples=examples(100), deadline=None)
def test_records_are_counted_off_as_multisets(found: list[Any], emitted: list[Any]) -> None:
    """What dies and what is new are differences of multisets per group, nested values too."""
    _check(found, emitted)


@given(SINGLES, SINGLES)
@settings(max_examples=examples(100), deadline=None)
def test_single_records_are_compared_alike(found: list[Any], emitted: list[Any]) -> None:
    """With at most one record per group, in any order, the short way has the same result."""
    _check(found, emitted)


def test_records_of_keys_alone_are_settled() -> None:
    """A state without other columns than the key's has one value per group."""
    nothing = pa.table({})
    died, born = settle_tables(nothing, np.array([0, 1, 1]), nothing, np.array([1, 2, 2]), groups=3)
    assert (died.tolist(), born.tolist()) == ([0, 2], [1, 2])


@given(st.lists(VALUES, min_size=1, max_size=12), st.integers(0, 3))
@settings(max_examples=examples(100), deadline=None)
def test_equal_rows_have_equal_numbers(values: list[Any], start: int) -> None:
    """Numbers are equal exactly where values are; slices and chunks make no difference."""
    table, _ = _table([(0, value) for value in values])
    start = min(start, len(values) - 1)
    left, right = row_codes([table, pa.concat_tables([table.slice(start), table.slice(0, start)])])
    seen = [*values, *values[start:], *values[:start]]
    numbers = [*left.tolist(), *right.tolist()]
    by_value: dict[Any, set[int]] = {}
    for value, number in zip(seen, numbers, strict=True):
        by_value.setdefault(identity(value), set()).add(number)
    assert all(len(actual) == 1 for actual in by_value.values())
    assert len({next(iter(actual)) for actual in by_value.values()}) == len(by_value)
