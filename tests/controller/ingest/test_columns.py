"""Converting in bulk never differs from converting one value at a time."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbp.model.schema import Schema
from controller.ingest.columns import BatchBuilder, ColumnBuilder
from controller.ingest.rejection import FileRejectedError

ATOMS = ("STRING", "BIGINT", "INT", "SMALLINT", "TINYINT", "DOUBLE", "FLOAT", "BOOLEAN")
TIMES = ("DATE", "TIMESTAMP")
ODD_TEXT = st.sampled_from(
    [
        *("", " 1", "1 ", "+5", "007", "-0", "0x1f", "1_0", "1e5", "1.", ".5", "nan", "NaN"),
        *("inf", "Infinity", "1e999", "9223372036854775807", "9223372036854775808", "-129"),
        *("2024-02-29", "2023-02-29", "0000-01-01", "0001-01-01", "9999-12-31", "2024-1-01"),
        *("2024-02-29T12:00:00Z", "2024-02-29 23:59:60Z", "2024-02-29T24:00:00Z"),
        *("2024-02-29T12:00:00.123456Z", "2024-02-29T12:00:00.1234567Z", "2024-02-29T12:00Z"),
        *("2024-02-29T12:00:00", "2024-02-29T12:00:00+02:00", "1969-12-31T23:59:59.9Z"),
        *("true", "TRUE", "True", "t", "1", "0", "١", "1\n", "3.5", "-3.25", "1d", "128"),
    ]
)
ODD_JSON = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.integers(-200, 200),
    st.floats(),
    ODD_TEXT,
    st.sampled_from(["\ud800", [], {}, [1]]),
)


def outcome(builder: ColumnBuilder, values: list[Any], *, bulk: bool) -> tuple[str, object]:
    lines = range(1, len(values) + 1)
    try:
        array = builder.array(values, lines) if bulk else builder._exact(values, lines)
    except FileRejectedError as error:
        return "rejected", error.line
    found = array.to_pylist()
    return "accepted", ["nan" if isinstance(v, float) and math.isnan(v) else v for v in found]


@pytest.mark.parametrize("kind", ATOMS + TIMES)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_bulk_conversion_of_text_equals_the_exact_one(kind: str, data: st.DataObject):
    """Any list of CSV cells gives the same array, or the same first wrong line."""
    builder = ColumnBuilder(Schema.parse(f"c {kind}")["c"], text=True)
    values = data.draw(st.lists(st.one_of(st.none(), ODD_TEXT), max_size=4))
    assert outcome(builder, values, bulk=True) == outcome(builder, values, bulk=False)


@pytest.mark.parametrize("kind", ATOMS + TIMES)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_bulk_conversion_of_json_equals_the_exact_one(kind: str, data: st.DataObject):
    """Any list of JSON values gives the same array, or the same first wrong line."""
    builder = ColumnBuilder(Schema.parse(f"c {kind}")["c"], text=False)
    values = data.draw(st.lists(ODD_JSON, max_size=4))
    assert outcome(builder, values, bulk=True) == outcome(builder, values, bulk=False)


def test_the_earliest_wrong_line_is_named_over_all_columns():
    """Of several mistakes in a batch the one on the first line is told."""
    builder = BatchBuilder(Schema.parse("a BIGINT, b BIGINT"), text=False)
    with pytest.raises(FileRejectedError) as caught:
        builder.batch([[1, 2, "x"], [1, "y", 3]], range(10, 13))
    assert (caught.value.line, caught.value.column) == (11, "b")
