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
    IndexBits,
    KeyRange,
    choose_width,
    index_bits,
    index_width,
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
@given(ROWS, ROWS, st.sampled_from([12, 16, 32]))
def test_the_index_has_every_record_of_the_groups(
    rows: list[Any], wanted: list[Any], width: int
) -> None:
    """Nulls included, also in a slice; what all bits say is exact."""
    groups = GroupHashes(KEY.hashes(KEY.keys(table(wanted))))
    right = [at for at, row in enumerate(rows) if row in wanted]
    hashes = KEY.hashes(KEY.keys(table(rows)))
    assert groups.among(hashes).tolist() == right
    indexed = with_index(table(rows), [KEY], width)
    assert index_width(indexed.schema.field(KEY.index)) == width
    bits = index_bits(indexed.column(KEY.index), width)
    assert bits is not None
    assert bits.fits(hashes)
    assert set(groups.likely(bits).tolist()) >= set(right)
    half = len(rows) // 2
    behind = index_bits(indexed.slice(half).column(KEY.index), width)
    assert behind is not None
    assert set((groups.likely(behind) + half).tolist()) >= {at for at in right if at >= half}


@pytest.mark.parametrize(
    ("many", "passing"),
    [(1, {12: 20, 16: 5}), (400, {12: 2_200, 16: 200}), (2_000, {12: 8_400, 16: 900})],
)
def test_what_it_lets_pass_beside_is_few(many: int, passing: dict[int, int]) -> None:
    """With some bits of each hash, a part of it for each group; with 32 next to nothing."""
    dice = np.random.default_rng(1)
    hashes = dice.integers(-(1 << 63), 1 << 63, 20_000 + many)
    groups, others = GroupHashes(hashes[20_000:]), hashes[:20_000]
    for width, most in {**passing, 32: 2}.items():
        assert len(groups.likely(IndexBits.of(others, width))) <= most
        assert groups.narrows(width)
    assert not len(groups.among(others))


def test_an_index_that_lets_nearly_all_pass_is_not_read() -> None:
    """With 12 bits from some 6,000 groups on, with 16 from 90,000; with 32 it always is."""
    hashes = np.random.default_rng(1).integers(-(1 << 63), 1 << 63, 100_000)
    narrowed = {many: GroupHashes(hashes[:many]) for many in (5_000, 7_000, 80_000, 100_000)}
    widths = {many: {w for w in (12, 16, 32) if one.narrows(w)} for many, one in narrowed.items()}
    assert widths == {5_000: {12, 16, 32}, 7_000: {16, 32}, 80_000: {16, 32}, 100_000: {32}}


def test_a_column_that_cannot_be_an_index_is_not_one() -> None:
    """Neither one with nulls, nor one with numbers that are larger than its bits."""
    for values in ([1, None], [1, 1 << 12]):
        assert index_bits(pa.chunked_array([pa.array(values, pa.uint16())]), 12) is None
    for type_ in (pa.int16(), pa.uint32(), pa.binary(), pa.binary(3)):
        assert index_width(pa.field("_key_", type_)) is None


def test_the_name_of_the_index_says_how_the_hash_is_made() -> None:
    """By the columns and their types, in order; the key's own names do not count."""
    assert KEY.index == replace(KEY, key=Schema.parse("x STRING, y BIGINT")).index
    others = ("word STRING, n INT", "n BIGINT, word STRING", "word STRING", "Word STRING, n BIGINT")
    names = {replace(KEY, columns=Schema.parse(other)).index for other in others}
    assert len({KEY.index, *names}) == 5


@pytest.mark.parametrize(("text", "width"), [(1, 12), (20, 12), (30, 16), (50, 16), (100, 32)])
def test_the_width_of_the_index_follows_the_bytes_of_records(text: int, width: int) -> None:
    """A twentieth of the records at most, but 1.7 bytes at least."""
    assert choose_width(table([("a" * text, 1)] * 100)) == width


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
    if wanted and values and type_ != pa.float64():
        assert excluded == (max(values) < min(wanted) or min(values) > max(wanted))
        inside = [min(wanted) <= (99 if n is None else n) <= max(wanted) for n in there]
        assert keys.inside(column(there)).tolist() == inside
    keys.add(column([None]))
    assert not keys.excludes(found)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.text("ab\x00é\uffff\U0001f600", max_size=3), min_size=1, max_size=4),
    st.lists(st.text("ab\x00é\uffff\U0001f600", max_size=3), min_size=1, max_size=4),
)
def test_texts_are_in_one_order_in_a_range_and_in_a_file(
    wanted: list[str], there: list[str]
) -> None:
    """Also those that are not of ASCII, and long ones, of which a file says nothing."""
    keys = KeyRange()
    keys.add(pa.table({"k": wanted}))
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"k": there}), sink)
    metadata = pq.read_metadata(pa.BufferReader(sink.getvalue()))
    excluded = max(there) < min(wanted) or min(there) > max(wanted)
    assert keys.excludes(metadata.row_group(0).column(0).statistics) == excluded
    inside = [min(wanted) <= one <= max(wanted) for one in there]
    assert keys.inside(pa.table({"k": there})).tolist() == inside
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"k": [one + "z" * 5_000 for one in there]}), sink)
    metadata = pq.read_metadata(pa.BufferReader(sink.getvalue()))
    assert not keys.excludes(metadata.row_group(0).column(0).statistics)


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
