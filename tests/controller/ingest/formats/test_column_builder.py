"""Converting in bulk never differs from converting one value at a time."""

from __future__ import annotations

import math
from datetime import UTC
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbp.model.flow.schema import Schema
from controller.ingest.formats.bad_lines import BadLines
from controller.ingest.formats.columns import BatchBuilder, ColumnBuilder
from controller.value_conversion import STRICT, ValueRules
from tests.sampling import examples

ATOMS = ("STRING", "BIGINT", "INT", "SMALLINT", "TINYINT", "DOUBLE", "FLOAT", "BOOLEAN")
TIMES = ("DATE", "TIMESTAMP")
RULES = (STRICT, ValueRules(zone=UTC), ValueRules(zone=ZoneInfo("Europe/Berlin")))
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
    lines, bad = range(1, len(values) + 1), BadLines()
    array = (builder.array if bulk else builder._exact)(values, lines, bad)
    if array is None:
        return "rejected", [one.line for one in bad.error(more=False).lines]
    actual = array.to_pylist()
    return "accepted", ["nan" if isinstance(v, float) and math.isnan(v) else v for v in actual]


@pytest.mark.part(every=2)
@pytest.mark.parametrize("kind", ATOMS + TIMES)
@settings(max_examples=examples(75), deadline=None)
@given(data=st.data())
def test_bulk_conversion_of_text_equals_the_exact_one(kind: str, data: st.DataObject):
    """Any list of CSV cells gives the same array, or the same first wrong line."""
    rules = data.draw(st.sampled_from(RULES))
    builder = ColumnBuilder(Schema.parse(f"c {kind}")["c"], rules, text=True)
    values = data.draw(st.lists(st.one_of(st.none(), ODD_TEXT), max_size=4))
    assert outcome(builder, values, bulk=True) == outcome(builder, values, bulk=False)


@pytest.mark.parametrize("kind", ATOMS + TIMES)
@settings(max_examples=examples(75), deadline=None)
@given(data=st.data())
def test_bulk_conversion_of_json_equals_the_exact_one(kind: str, data: st.DataObject):
    """Any list of JSON values gives the same array, or the same first wrong line."""
    rules = data.draw(st.sampled_from(RULES))
    builder = ColumnBuilder(Schema.parse(f"c {kind}")["c"], rules, text=False)
    values = data.draw(st.lists(ODD_JSON, max_size=4))
    assert outcome(builder, values, bulk=True) == outcome(builder, values, bulk=False)


def test_the_earliest_wrong_line_is_named_over_all_columns():
    """The mistake on the first line of a batch is reported."""
    builder = BatchBuilder(Schema.parse("a BIGINT, b BIGINT"), text=False)
    bad = BadLines()
    assert builder.batch([[1, 2, "x"], [1, "y", 3]], range(10, 13), bad) is None
    error = bad.error(more=False)
    assert (error.line, error.column) == (11, "b")
    assert [(one.line, one.column) for one in error.lines] == [(11, "b"), (12, "a")]
