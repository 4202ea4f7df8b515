"""Types of a Parquet file beside the declared ones: taken where no value changes, or refused."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.controller.ingest.harness import accepted, rejected

SCALARS = ("STRING", "BIGINT", "INT", "DOUBLE", "DATE", "TIMESTAMP", "DECIMAL(38,9)", "BOOLEAN")
UTC_ZONE = {"timezone": "UTC"}
BYTES = bytes(range(16))
UUID, JSON = pa.array([BYTES], pa.uuid()), pa.array(["{}"], pa.json_())


def written(column: pa.Array, store_schema: bool) -> bytes:
    """Return a file; with Arrow's schema in it, Arrow reads its own types again."""
    sink = io.BytesIO()
    pq.write_table(pa.table({"c": column}), sink, store_schema=store_schema)
    return sink.getvalue()


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(
    "type_",
    [pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"), pa.duration("us")],
    ids=str,
)
def test_a_type_that_no_column_has_is_refused_by_its_name(
    type_: pa.DataType, nested: bool, tmp_path: Path
) -> None:
    """A time of a day is no time and no number, whatever is declared."""
    values = [[1, None]] if nested else [1, None]
    data = written(pa.array(values, pa.list_(type_) if nested else type_), store_schema=True)
    for scalar in SCALARS:
        declared = f"ARRAY<{scalar}>" if nested else scalar
        reason = rejected(data, tmp_path, f"c {declared}", "parquet", options=UTC_ZONE)
        assert (reason["code"], reason["column"]) == ("column_type", "c")
        assert "time" in reason["message"] or "duration" in reason["message"]


@pytest.mark.parametrize("store_schema", [False, True])
@pytest.mark.parametrize(
    ("declared", "column", "means"),
    [
        ("ARRAY<BIGINT>", pa.array([[1, 2], None], pa.list_(pa.int64(), 2)), None),
        ("ARRAY<BIGINT>", pa.array([[1], None], pa.large_list(pa.int64())), None),
        ("STRING", pa.array(["a", None], pa.string_view()), None),
        ("BINARY", pa.array([b"\xff", None], pa.binary_view()), None),
        ("BINARY", pa.array([BYTES, None], pa.uuid()), [BYTES, None]),
        ("STRING", pa.array(['{"a": 1}', None], pa.json_()), ['{"a": 1}', None]),
        ("ARRAY<STRING>", pa.ListArray.from_arrays([0, 1], JSON), [["{}"]]),
        ("STRUCT<a: BINARY>", pa.StructArray.from_arrays([UUID], ["a"]), [{"a": BYTES}]),
        ("STRING", pa.array(["a", "b", "a"]).dictionary_encode(), None),
        ("FLOAT", pa.array([1.5, 65504.0, 2.0**-24, -math.inf, None], pa.float16()), None),
        ("DOUBLE", pa.array([1.5, 65504.0, 2.0**-24, -0.0, None], pa.float16()), None),
        ("STRING", pa.nulls(2), None),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_another_form_of_a_declared_type_is_taken_exactly(
    declared: str, column: pa.Array, means: Any, store_schema: bool, tmp_path: Path
) -> None:
    """Whatever writer chose it, and whether Arrow knows its own form again."""
    rows = accepted(written(column, store_schema), tmp_path, f"c {declared}", "parquet")
    assert repr([row["c"] for row in rows]) == repr(column.to_pylist() if means is None else means)
