"""The index over retained inputs: it leaves out nothing that is wanted, and nearly all else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbp import DataflowBuilder, Input, Translate, View
from cbp.engine.columnar.arrow_types import arrow_schema
from cbp.engine.columnar.key_index import (
    GroupHashes,
    GroupKey,
    KeyRange,
    index_bits,
    index_bytes,
    indexed_keys,
    with_index,
)
from cbp.model.flow.schema import Schema
from tests.sampling import examples

RECORDS = Schema.parse("word STRING, n BIGINT, at DATE")
KEY = GroupKey(RECORDS.select(("word", "n")), Schema.parse("a STRING, b BIGINT"))
ROWS = st.lists(
    st.tuples(st.sampled_from(["", "a", "b", "ä", None]), st.sampled_from([None, -1, 0, 1 << 62])),
    max_size=40,
)


def table(rows: list[Any]) -> pa.Table:
    """Return records with such keys."""
    made = [{"word": word, "n": n, "at": None} for word, n in rows]
    return pa.Table.from_pylist(made, arrow_schema(RECORDS))


@settings(max_examples=examples(60), deadline=None)
@given(ROWS, ROWS, st.sampled_from([2, 4]))
def test_the_index_has_every_record_of_the_groups(
    rows: list[Any], wanted: list[Any], size: int
) -> None:
    """Nulls included, also in a slice; what all bits say is exact."""
    groups = GroupHashes(KEY.hashes(KEY.keys(table(wanted))))
    right = [at for at, row in enumerate(rows) if row in wanted]
    hashes = KEY.hashes(KEY.keys(table(rows)))
    assert groups.among(hashes).tolist() == right
    indexed = with_index(table(rows), [KEY], size)
    bits = index_bits(indexed.column(KEY.index))
    assert bits is not None
    assert set(groups.among(bits).tolist()) >= set(right)
    half = len(rows) // 2
    behind = index_bits(indexed.slice(half).column(KEY.index))
    assert behind is not None
    assert set((groups.among(behind) + half).tolist()) >= {at for at in right if at >= half}


@pytest.mark.parametrize(("many", "narrow"), [(1, 5), (2_000, 900), (50_000, 20_000)])
def test_what_it_lets_pass_beside_is_few(many: int, narrow: int) -> None:
    """With two bytes of each hash a part in 65,536 for each group; with four next to nothing."""
    dice = np.random.default_rng(1)
    hashes = dice.integers(-(1 << 63), 1 << 63, 20_000 + many)
    groups, others = GroupHashes(hashes[20_000:]), hashes[:20_000]
    assert len(groups.among(others.astype("<u2"))) <= narrow
    assert len(groups.among(others.astype("<u4"))) <= 2
    assert not len(groups.among(others))


def test_the_name_of_the_index_says_how_the_hash_is_made() -> None:
    """By the columns and their types, in order; the key's own names do not count."""
    assert KEY.index == replace(KEY, key=Schema.parse("x STRING, y BIGINT")).index
    others = ("word STRING, n INT", "n BIGINT, word STRING", "word STRING", "Word STRING, n BIGINT")
    names = {replace(KEY, columns=Schema.parse(other)).index for other in others}
    assert len({KEY.index, *names}) == 5


def test_a_record_of_eighty_bytes_has_the_wide_index() -> None:
    """A twentieth of the records at most, but two bytes at least."""
    assert index_bytes(table([("a", 1)] * 10)) == 2
    assert index_bytes(table([("a" * 100, 1)] * 10)) == 4


@pytest.mark.parametrize(
    ("columns", "has"),
    [
        ("n BIGINT", False),
        ("at DATE, n INT", False),
        ("word STRING", True),
        ("n INT, w STRING", True),
    ],
)
def test_keys_of_numbers_and_dates_have_no_index(columns: str, has: bool) -> None:
    """To hash them takes as long as to read one."""
    schema = Schema.parse(columns)
    assert GroupKey(schema, schema).has_index == has


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.integers(-9, 9), max_size=6),
    st.lists(st.one_of(st.none(), st.integers(-9, 9)), max_size=6),
    st.sampled_from([pa.int64(), pa.int16(), pa.date32(), pa.string(), pa.float64()]),
)
def test_a_range_excludes_no_row_group_with_one_of_its_keys(
    wanted: list[int], there: list[int | None], type_: pa.DataType
) -> None:
    """And all others, where keys are numbers or dates, and none is null."""

    def column(values: list[Any]) -> pa.Table:
        if type_ in (pa.date32(), pa.string()):
            days = pa.array(values, pa.int32()).cast(pa.date32())
            return pa.table({"k": days if type_ == pa.date32() else days.cast(type_)})
        return pa.table({"k": pa.array(values, type_)})

    keys = KeyRange()
    for value in wanted:
        keys.add(column([value]))
    sink = pa.BufferOutputStream()
    pq.write_table(column(there), sink)
    metadata = pq.read_metadata(pa.BufferReader(sink.getvalue()))
    found = metadata.row_group(0).column(0).statistics if there else None
    values = [value for value in there if value is not None]
    excluded = keys.excludes(found)
    assert not (excluded and set(wanted) & set(values))
    ranked = type_ not in (pa.string(), pa.float64())
    if wanted and values and ranked:
        assert excluded == (max(values) < min(wanted) or min(values) > max(wanted))
        inside = [min(wanted) <= (99 if n is None else n) <= max(wanted) for n in there]
        assert keys.inside(column(there)).tolist() == inside
    keys.add(column([None]))
    assert not keys.excludes(found)


class Counted(Translate):
    """Counts the records of each word."""

    rows = Input("word STRING, n BIGINT", route_by="word")
    counts = View("word STRING, records BIGINT", key="word")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Count them."""


class Signed(Counted):
    """The same, by signs."""

    rows = Input("word STRING, sign INT", route_by="word", changes="signed")


@pytest.mark.parametrize(
    ("translator", "any_order", "indexed"),
    [(Counted(), True, 1), (Counted(), False, 0), (Signed(), True, 0)],
)
def test_only_what_can_be_recomputed_has_an_index(
    translator: Translate, any_order: bool, indexed: int
) -> None:
    """Nobody would read that of a source whose files cannot be replaced, or are, by signs."""
    builder = DataflowBuilder("d")
    rows = builder.source("rows", "word STRING, n BIGINT, sign INT")
    builder.stage("s", translator, rows=rows, any_order=any_order)
    builder.stage("t", translator, rows=rows, any_order=any_order)
    made = builder.build()
    assert len(indexed_keys(made.sources["rows"], made)) == indexed
