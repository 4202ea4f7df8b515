"""Records as JSON text: what is written is read again, whatever the type."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from cbp.engine.columnar.json_records import read_record, record_text
from cbp.engine.columnar.values import typed_row
from cbp.model.flow.schema import Schema

VALUES: list[tuple[str, Any]] = [
    ("STRING", 'ä "quoted"\n\\'),
    ("STRING", ""),
    ("BIGINT", -(1 << 63)),
    ("BOOLEAN", True),
    ("DOUBLE", 0.1),
    ("DOUBLE", -0.0),
    ("DOUBLE", math.inf),
    ("DOUBLE", -math.inf),
    ("FLOAT", 0.1),
    ("FLOAT", 3.4028234663852886e38),
    ("DECIMAL(38,10)", Decimal("9999999999999999999999999999.0000000001")),
    ("DECIMAL(3,2)", Decimal("-0.10")),
    ("DATE", date(1, 1, 1)),
    ("TIMESTAMP", datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
    ("BINARY", b"\x00\xff"),
    ("ARRAY<DECIMAL(5,1)>", [Decimal("1.5"), None]),
    ("MAP<STRING,DOUBLE>", {"a": math.inf, "": None}),
    ("MAP<DATE,BINARY>", {date(2026, 1, 2): b"x"}),
    ("MAP<DOUBLE,INT>", {1.5: 2, math.inf: None}),
    ("STRUCT<a: TIMESTAMP, b: ARRAY<STRUCT<c: BINARY>>>", {"a": None, "b": [{"c": b"y"}, None]}),
]


@pytest.mark.parametrize(("type_", "value"), VALUES)
def test_what_is_written_is_read_again(type_: str, value: Any) -> None:
    """Each value of each type comes back as it was, and so does null."""
    schema = Schema.parse(f"v {type_}, n {type_}")
    row = typed_row((value, None), schema)
    assert repr(read_record(record_text(row, schema), schema)) == repr(row)


def test_nan_is_read_again() -> None:
    """NaN is text, since JSON has none."""
    schema = Schema.parse("v DOUBLE")
    assert record_text((math.nan,), schema) == '{"v":"NaN"}'
    assert math.isnan(read_record('{"v":"NaN"}', schema)[0])


def test_other_columns_are_null_or_left_out() -> None:
    """A record of an earlier version is read with the columns of now."""
    schema = Schema.parse("a STRING, b BIGINT")
    assert read_record('{"a":"x","gone":1}', schema) == ("x", None)
    with pytest.raises(TypeError, match="'b'"):
        read_record('{"a":"x","b":"text"}', schema)
