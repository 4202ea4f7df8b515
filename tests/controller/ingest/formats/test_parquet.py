"""Parquet files: columns by name, exact casts, damage found."""

from __future__ import annotations

import base64
import io
import struct
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

from cbp.engine.columnar.arrow_types import arrow_schema
from cbp.model.flow.schema import Schema
from controller.ingest.reader.source_suggestion import suggest_source
from controller.ingest.rejection import FileRejectedError
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


BAD_TEXT = pa.Array.from_buffers(
    pa.string(), 3, pa.array([b"a", b"\xff", b"c"], pa.binary()).buffers()
)
EACH = pa.array([0, 1, 2, 3], pa.int32())


@pytest.mark.parametrize(
    ("declared", "column"),
    [
        ("STRING", BAD_TEXT),
        ("ARRAY<STRING>", pa.ListArray.from_arrays(EACH, BAD_TEXT)),
        ("STRUCT<a: STRING>", pa.StructArray.from_arrays([BAD_TEXT], ["a"])),
        ("MAP<STRING, STRING>", pa.MapArray.from_arrays(EACH, pa.array(["k"] * 3), BAD_TEXT)),
        (
            "MAP<STRING, INT>",
            pa.MapArray.from_arrays(EACH, BAD_TEXT, pa.array([1] * 3, pa.int32())),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("dictionary", [False, True])
def test_text_that_is_not_utf8_is_rejected_by_its_row(
    declared: str, column: pa.Array, dictionary: bool, tmp_path: Path
):
    """Texts are checked byte by byte, since the format does not; as bytes they are taken."""
    data = written(pa.table({"c": column}), use_dictionary=dictionary)
    reason = rejected(data, tmp_path, f"c {declared}", "parquet")
    assert (reason["code"], reason["line"], reason["column"]) == ("encoding", 2, "c")
    rows = accepted(data, tmp_path, f"c {declared}", "parquet", on_bad_records="reject_rows")
    assert len(rows) == 2
    assert "a" in repr(rows[0]["c"])
    assert "c" in repr(rows[1]["c"])


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


def written(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("dictionary", [False, True])
@pytest.mark.parametrize("nested", [False, True])
def test_a_page_that_is_not_its_checksum_is_refused(
    version: str, dictionary: bool, nested: bool, tmp_path: Path
):
    """Whatever kind of page it is; without a checksum nobody can tell."""
    schema, value = ("c ARRAY<STRING>", ["alpha"]) if nested else ("c STRING", "alpha")
    for checks in (True, False):
        data = written(
            pa.table({"c": [value] * 3}),
            compression="none",
            data_page_version=version,
            use_dictionary=dictionary,
            write_page_checksum=checks,
            write_statistics=False,  # they are in front of the page
        )
        changed = data.replace(b"alpha", b"alphb", 1)
        assert changed != data
        if checks:
            reason = rejected(changed, tmp_path, schema, "parquet")
            assert (reason["code"], "checksum" in reason["message"]) == ("parquet_damaged", True)
            assert len(accepted(data, tmp_path, schema, "parquet")) == 3
        else:
            assert len(accepted(changed, tmp_path, schema, "parquet")) == 3


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_numbers_of_rows_and_values_agree_everywhere(version: str, tmp_path: Path):
    """Footer, row group, column and pages each say how many: none of them may lie."""
    count = 4321  # 0xc2 0x43 as a zigzag varint, behind the type of a field
    data = written(
        pa.table({"c": range(count), "d": range(count)}),
        compression="none",
        use_dictionary=False,
        write_statistics=False,
        data_page_version=version,
    )
    places = [
        at + 1
        for kind in (b"\x15", b"\x16")
        for at in range(len(data))
        if data.startswith(kind + b"\xc2\x43", at)
    ]
    assert len(places) >= 6
    for at in places:
        for other in (b"\xc4\x43", b"\xc0\x43"):
            changed = data[:at] + other + data[at + 2 :]
            reason = rejected(changed, tmp_path, "c BIGINT, d BIGINT", "parquet")
            assert reason["code"] == "parquet_damaged", (at, reason)


EMPTY = pa.table(
    {
        "a": pa.array([], pa.int64()),
        "s": pa.array([], pa.string()),
        "l": pa.array([], pa.list_(pa.struct([("f", pa.string())]))),
        "m": pa.array([], pa.map_(pa.string(), pa.float64())),
    }
)
ONE = pa.table({"a": [1], "s": ["x"], "l": [[{"f": "y"}]], "m": [[("k", 0.5)]]}, EMPTY.schema)
EMPTY_SCHEMA = "a BIGINT, s STRING, l ARRAY<STRUCT<f: STRING>>, m MAP<STRING, DOUBLE>"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"use_dictionary": False},
        {"data_page_version": "2.0"},
        {"write_page_checksum": True},
        {"compression": "none", "write_page_index": True},
    ],
    ids=str,
)
def test_a_row_group_without_rows_holds_nothing(options: dict[str, Any], tmp_path: Path):
    """A file of an empty table is an increment of no records; empty groups may lie between full."""
    assert accepted(written(EMPTY, **options), tmp_path, EMPTY_SCHEMA, "parquet") == []
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, EMPTY.schema, **options) as writer:
        for table in (EMPTY, ONE, EMPTY, EMPTY, ONE, EMPTY):
            writer.write_table(table)
    rows = accepted(sink.getvalue(), tmp_path, EMPTY_SCHEMA, "parquet")
    assert [(row["a"], row["s"]) for row in rows] == [(1, "x")] * 2


def test_empty_tables_of_other_writers_are_taken(tmp_path: Path):
    """pandas, Polars and DuckDB write an empty table each in its own way."""
    EMPTY.select(["a", "s"]).to_pandas().to_parquet(tmp_path / "pandas")
    pl.DataFrame(schema={"a": pl.Int64, "s": pl.String}).write_parquet(tmp_path / "polars")
    name = tmp_path / "duckdb"
    duckdb.sql(f"COPY (SELECT 1::BIGINT a, '' s WHERE false) TO '{name}' (FORMAT parquet)")
    for writer in ("pandas", "polars", "duckdb"):
        data = (tmp_path / writer).read_bytes()
        assert accepted(data, tmp_path, "a BIGINT, s STRING", "parquet") == [], writer


def int96(*times: tuple[int, int]) -> bytes:
    """Return a file with times as their days from 1970 and the nanoseconds of the day."""
    first = 18_262  # the days of 2020 from the first one on are replaced
    moments = [(first + at) * 86_400 * 10**6 for at in range(len(times))]
    data = written(
        pa.table({"c": pa.array(moments).view(pa.timestamp("us"))}),
        compression="none",
        use_dictionary=False,
        write_statistics=False,
        use_deprecated_int96_timestamps=True,
    )
    for at, (day, nanos) in enumerate(times):
        written_as = struct.pack("<qi", 0, 2_440_588 + first + at)
        assert data.count(written_as) == 1
        data = data.replace(written_as, struct.pack("<qi", nanos, 2_440_588 + day))
    return data


def test_times_of_int96_are_those_of_the_file(tmp_path: Path):
    """All that a TIMESTAMP can hold, also where nanoseconds of 64 bits have wrapped around."""
    day_nanos = 86_400 * 10**9
    data = int96((0, 0), (2_932_896, day_nanos - 1_000), (-719_162, 0), (-1, 1_000), (106_752, 0))
    rows = accepted(data, tmp_path, "c TIMESTAMP", "parquet", options={"timezone": "UTC"})
    assert [row["c"] for row in rows] == [
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(1969, 12, 31, 0, 0, 0, 1, tzinfo=UTC),
        datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=106_752),
    ]


@pytest.mark.parametrize(
    ("day", "nanos"),
    [
        (0, 1),
        (0, 1_999),
        (2_932_897, 0),
        (-719_163, 0),
        (213_503_983, 0),  # microseconds of 64 bits have wrapped around to 1970
        (-213_503_983, 0),
        ((1 << 31) - 1 - 2_440_588, 0),
        (-(1 << 31) - 2_440_588, 0),
    ],
)
def test_a_time_of_int96_that_does_not_fit_is_refused(day: int, nanos: int, tmp_path: Path):
    """With row and column: neither rounded, nor taken for the time as which it wraps around."""
    data = int96((0, 0), (day, nanos), (5, 0))
    reason = rejected(data, tmp_path, "c TIMESTAMP", "parquet", options={"timezone": "UTC"})
    assert (reason["code"], reason["line"], reason["column"]) == ("value_range", 2, "c")
    assert f"{np.datetime64(day, 'D')}" in reason["message"]
    options: dict[str, Any] = {"on_bad_records": "reject_rows", "options": {"timezone": "UTC"}}
    rows = accepted(data, tmp_path, "c TIMESTAMP", "parquet", **options)
    assert [row["c"].day for row in rows] == [1, 6]


class _Keys(pe.KmsClient):  # type: ignore[misc]
    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
        return base64.b64encode(key_bytes)

    def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
        return base64.b64decode(wrapped_key)


@pytest.mark.parametrize("plaintext_footer", [False, True])
def test_an_encrypted_file_is_said_to_be_encrypted(plaintext_footer: bool, tmp_path: Path):
    """Whether its footer is or not; a plain column beside an encrypted one can be taken."""
    properties = pe.CryptoFactory(lambda _: _Keys()).file_encryption_properties(
        pe.KmsConnectionConfig(),
        pe.EncryptionConfiguration(
            footer_key="f", column_keys={"c": ["b"]}, plaintext_footer=plaintext_footer
        ),
    )
    sink = io.BytesIO()
    table = pa.table({"a": [1, 2], "b": [3, 4]})
    with pq.ParquetWriter(sink, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)
    reason = rejected(sink.getvalue(), tmp_path, "a BIGINT, b BIGINT", "parquet")
    assert reason["code"] == "parquet_encrypted"
    path = tmp_path / "f.parquet"
    path.write_bytes(sink.getvalue())
    if plaintext_footer:
        options = {"unknown": "ignore"}
        rows = accepted(sink.getvalue(), tmp_path, "a BIGINT", "parquet", options=options)
        assert [row["a"] for row in rows] == [1, 2]
    else:
        with pytest.raises(FileRejectedError) as caught:
            suggest_source(path)
        assert caught.value.rule == "parquet_encrypted"
