"""Lists and times between Python and Arrow: as whole columns, with the results of one by one."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbp.engine.columnar.arrow_types import arrow_type
from cbp.engine.columnar.row_codec import ENCODE_ERRORS, decode_lists, encode_column
from cbp.engine.columnar.values import typed
from cbp.model.flow.schema import DataType, Schema

TYPES = ["ARRAY<INT>", "ARRAY<ARRAY<INT>>", "ARRAY<STRING>", "ARRAY<STRUCT<a: ARRAY<INT>>>"]

items = st.one_of(st.none(), st.integers(-1, 2**31), st.booleans(), st.sampled_from(["", "x"]))
lists = st.one_of(
    st.none(),
    st.recursive(items, lambda inner: st.lists(inner, max_size=3), max_leaves=6),
    st.lists(st.fixed_dictionaries({"a": st.lists(st.integers(0, 3), max_size=2)}), max_size=2),
    st.tuples(items),
)


def type_of(text: str) -> DataType:
    return Schema.parse(f"c {text}").fields[0].type


@pytest.mark.parametrize("text", TYPES)
@given(values=st.lists(lists, max_size=4))
def test_a_column_of_lists_is_that_of_its_values_one_by_one(text: str, values: list[Any]) -> None:
    """The same column where every value is one of the type; refused where some is not."""
    type_ = type_of(text)
    try:
        wanted = [typed(value, type_) for value in values]
    except (TypeError, ValueError, OverflowError):
        with pytest.raises(ENCODE_ERRORS):
            encode_column(values, type_)
        return
    column = encode_column(values, type_)
    assert column.type == arrow_type(type_)
    assert column.equals(pa.array(wanted, arrow_type(type_)))


@given(
    chunks=st.lists(
        st.lists(st.one_of(st.none(), st.lists(st.integers(0, 9), max_size=3)), max_size=5),
        max_size=3,
    ),
    start=st.integers(0, 4),
    wide=st.booleans(),
)
def test_lists_are_read_as_they_are(
    chunks: list[list[list[int] | None]], start: int, *, wide: bool
) -> None:
    """From any slice of any chunks, nulls and empty lists included."""
    kind = pa.large_list(pa.int64()) if wide else pa.list_(pa.int64())
    column = pa.chunked_array([pa.array(chunk, kind).slice(start) for chunk in chunks], kind)
    (actual,) = decode_lists(pa.table({"c": column}), ["c"], [type_of("ARRAY<BIGINT>")])
    assert actual == [value for chunk in chunks for value in chunk[start:]]


DAYS = st.integers(-719_162, 2_932_896)
MICROS = st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)


@pytest.mark.parametrize(
    ("text", "numbers"), [("DATE", DAYS), ("TIMESTAMP", MICROS), ("ARRAY<TIMESTAMP>", MICROS)]
)
@given(data=st.data(), start=st.integers(0, 4))
def test_times_are_read_as_arrow_reads_them(
    text: str, numbers: st.SearchStrategy[int], data: st.DataObject, start: int
) -> None:
    """From the year 1 to 9999, in Arrow's own time zone; nulls, slices and chunks included."""
    type_ = type_of(text)
    atom = arrow_type(type_.arguments[0] if type_.arguments else type_)
    whole = pa.int32() if text == "DATE" else pa.int64()
    drawn = data.draw(st.lists(st.lists(st.none() | numbers, max_size=6), max_size=3))
    chunks = [pa.array(each, whole).view(atom).slice(start) for each in drawn]
    if type_.arguments:
        chunks = [pa.ListArray.from_arrays([0, len(each)], each) for each in chunks]
    column = pa.chunked_array(chunks, arrow_type(type_))
    (actual,) = decode_lists(pa.table({"c": column}), ["c"], [type_])
    assert list(map(repr, actual)) == list(map(repr, column.to_pylist()))


@pytest.mark.parametrize("number", [-62_135_596_800_000_001, 253_402_300_800_000_000, 1 << 62])
def test_a_time_that_is_none_of_pythons_is_arrows_error(number: int) -> None:
    """Not another time, and no value of another type."""
    column = pa.array([0, number], pa.int64()).view(arrow_type(type_of("TIMESTAMP")))
    with pytest.raises((OverflowError, ValueError), match="out of range"):
        decode_lists(pa.table({"c": column}), ["c"], [type_of("TIMESTAMP")])
