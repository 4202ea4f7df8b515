"""What each declared type accepts from JSON and from CSV, and what it refuses."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from cbp.model.flow.schema import Schema
from controller.value_conversion import from_json, from_text
from tests.controller.ingest.harness import accepted, rejected

NOON = datetime(2024, 2, 29, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        ("BIGINT", -(2**63), -(2**63)),
        ("TINYINT", 127, 127),
        ("DOUBLE", 3, 3.0),
        ("DOUBLE", "Infinity", float("inf")),
        ("DECIMAL(5,2)", Decimal("1.230"), Decimal("1.23")),
        ("DECIMAL(5,2)", "999.99", Decimal("999.99")),
        ("DECIMAL(38,0)", 10**38 - 1, Decimal(10**38 - 1)),
        ("DATE", "2024-02-29", date(2024, 2, 29)),
        ("TIMESTAMP", "2024-02-29T12:00:00Z", NOON),
        ("TIMESTAMP", "2024-02-29 12:00Z", NOON),
        ("TIMESTAMP", "2024-02-29T14:00:00.000000+02:00", NOON),
        ("BINARY", "AAE=", b"\0\1"),
        ("ARRAY<INT>", [1, None], [1, None]),
        ("MAP<BIGINT, STRING>", {"7": "x"}, [(7, "x")]),
        ("STRUCT<a: INT, b: STRING>", {"a": 1}, {"a": 1, "b": None}),
    ],
)
def test_json_value_is_converted_exactly(type_: str, value: Any, expected: Any):
    """A value that the type can hold comes out unchanged."""
    assert from_json(Schema.parse(f"c {type_}")["c"].type)(value) == expected


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("STRING", 1),
        ("STRING", "\ud800"),
        ("BIGINT", 2**63),
        ("BIGINT", 1.0),
        ("BIGINT", True),
        ("BIGINT", "1"),
        ("TINYINT", 128),
        ("DOUBLE", "1.5"),
        ("DOUBLE", float("inf")),
        ("DOUBLE", 10**400),
        ("FLOAT", 1e39),
        ("BOOLEAN", 1),
        ("DECIMAL(5,2)", Decimal("1.234")),
        ("DECIMAL(5,2)", 1000),
        ("DECIMAL(5,2)", 1.5),
        ("DECIMAL(5,2)", "NaN"),
        ("DATE", "2023-02-29"),
        ("DATE", "20240229"),
        ("DATE", "2024-2-9"),
        ("TIMESTAMP", "2024-02-29T12:00:00.1234567Z"),
        ("TIMESTAMP", "2024-02-29"),
        ("TIMESTAMP", "2024-02-29T12:00:00"),
        ("TIMESTAMP", "0001-01-01T00:00:00+10:00"),
        ("TIMESTAMP", 1700000000),
        ("BINARY", "not base64!"),
        ("ARRAY<INT>", [1, "x"]),
        ("ARRAY<INT>", {"a": 1}),
        ("MAP<BIGINT, STRING>", {"x": "y"}),
        ("MAP<BIGINT, STRING>", {"1": "x", "01": "y"}),
        ("STRUCT<a: INT>", {"a": "x"}),
        ("STRUCT<a: INT>", {"a": 1, "b": 2}),
    ],
)
def test_json_value_that_does_not_fit_is_refused(type_: str, value: Any):
    """Nothing is rounded, wrapped, truncated or guessed."""
    with pytest.raises(ValueError, match=r"expected|surrogate|equal|unknown"):
        from_json(Schema.parse(f"c {type_}")["c"].type)(value)


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        *[("BIGINT", text) for text in ("1.0", " 1", "1_000", "0x10", "", "9" * 5000)],
        *[("DOUBLE", text) for text in ("1e999", "nan", "0x1p3", "1,5")],
        *[("BOOLEAN", text) for text in ("yes", "1", "")],
        *[("DECIMAL(5,2)", text) for text in ("1.999", "1e9", "")],
    ],
)
def test_csv_text_that_does_not_fit_is_refused(type_: str, text: str):
    """A cell is read by one notation only."""
    with pytest.raises(ValueError, match="expected"):
        from_text(Schema.parse(f"c {type_}")["c"].type)(text)


def test_decimals_keep_their_digits(tmp_path: Path):
    """A JSON number in a decimal column never passes through a binary float."""
    data = b'{"d": 12345678901234567.89, "f": 0.1}\n'
    rows = accepted(data, tmp_path, "d DECIMAL(19,2), f DOUBLE")
    assert rows == [{"d": Decimal("12345678901234567.89"), "f": 0.1}]


def test_nested_mistake_names_its_place(tmp_path: Path):
    """The message leads to the element inside an array of structs."""
    data = b'{"a": [{"n": 1}, {"n": "x"}]}\n'
    reason = rejected(data, tmp_path, "a ARRAY<STRUCT<n: INT>>")
    assert (reason["line"], reason["column"]) == (1, "a")
    assert "[1]" in reason["message"]
    assert ".n" in reason["message"]
