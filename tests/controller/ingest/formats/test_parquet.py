"""Parquet files: columns by name, exact casts, damage found."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cbp.engine.columnar.arrow_types import arrow_schema
from cbp.model.flow.schema import Schema
from tests.controller.ingest.harness import Drop, accepted, rejected


def parquet(**columns: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink, row_group_size=1000)
    return sink.getvalue()


def test_columns_are_found_by_name_and_widened(tmp_path: Path):
    """Order and width of the file's columns do not matter where values fit exactly."""
    data = parquet(
        extra=pa.array([0]),
        name=pa.array(["a"]).dictionary_encode(),
        id=pa.array([7], pa.uint16()),
        at=pa.array([1_000_000_000], pa.timestamp("ns", "UTC")),
        tags=pa.array([["x"]], pa.large_list(pa.large_string())),
    )
    schema = "id BIGINT, at TIMESTAMP, name STRING, tags ARRAY<STRING>, gone INT"
    options = {"unknown": "ignore"}
    assert accepted(data, tmp_path, schema, "parquet", options=options) == [
        {
            "id": 7,
            "at": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
            "name": "a",
            "tags": ["x"],
            "gone": None,
        }
    ]


@pytest.mark.parametrize(
    ("schema", "column", "rule", "row"),
    [
        ("c INT", pa.array([1, 2**40]), "value_range", 2),
        ("c BIGINT", pa.array([1.0]), "column_type", None),
        ("c BIGINT", pa.array(["1"]), "column_type", None),
        ("c FLOAT", pa.array([1.0]), "column_type", None),
        ("c TIMESTAMP", pa.array([1001], pa.timestamp("ns", "UTC")), "value_range", 1),
        ("c TIMESTAMP", pa.array([1000], pa.timestamp("us")), "column_type", None),
        ("c STRUCT<a: INT>", pa.array([{"a": 1, "b": 1}]), "column_type", None),
        ("c BIGINT NOT NULL", pa.array([1, 2, None]), "value_missing", 3),
        ("c BIGINT NOT NULL, d INT", pa.array([1]), None, None),
        ("d INT", pa.array([1]), "column_missing", None),
        ("d INT NOT NULL, c BIGINT", pa.array([1]), "column_missing", None),
        ("c STRUCT<a: INT>", pa.array([{"b": 1}]), "column_type", None),
    ],
)
def test_column_that_does_not_fit_is_rejected(
    schema: str, column: pa.Array, rule: str | None, row: int | None, tmp_path: Path
):
    """The reason names the column, and the row where one value is wrong."""
    data = parquet(c=column)
    if rule is None:
        assert accepted(data, tmp_path, schema, "parquet")
        return
    reason = rejected(data, tmp_path, schema, "parquet")
    assert (reason["code"], reason["line"]) == (rule, row)


def test_row_of_a_wrong_value_counts_over_row_groups(tmp_path: Path):
    """Rows are numbered from the file's beginning."""
    data = parquet(c=pa.array([0] * 70_000 + [2**40]))
    assert rejected(data, tmp_path, "c INT", "parquet")["line"] == 70_001


@pytest.mark.parametrize("cut", [0.3, 0.9, 0.999])
def test_cut_parquet_is_rejected(cut: float, tmp_path: Path):
    """Without its footer a file is nothing."""
    data = parquet(c=pa.array(range(5000)))
    reason = rejected(data[: int(len(data) * cut)], tmp_path, "c BIGINT", "parquet")
    assert reason["code"] == "parquet_damaged"


def test_text_that_is_not_utf8_is_rejected(tmp_path: Path):
    """Strings are checked byte by byte, since the format does not."""
    bad = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"], pa.binary()).buffers())
    assert rejected(parquet(c=bad), tmp_path, "c STRING", "parquet")["code"] == "parquet_damaged"


def test_increment_files_have_the_declared_schema(tmp_path: Path):
    """Engines read one format: declared names, order, types and nullability."""
    schema = (
        "id BIGINT NOT NULL, d DECIMAL(9,2), at TIMESTAMP, day DATE, raw BINARY, "
        "m MAP<STRING, INT>, s STRUCT<a: ARRAY<DOUBLE>>"
    )
    drop = Drop(tmp_path, schema)
    drop.put("a", b'{"id": 1, "m": {"k": 1}, "s": {"a": [1, 2.5]}, "d": 1.5, "raw": "AA=="}\n')
    drop.scan()
    assert drop.table().schema.equals(arrow_schema(Schema.parse(schema)))
