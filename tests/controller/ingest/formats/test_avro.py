"""The format `avro`: every record of a sound file with its values; nothing of any other."""

from __future__ import annotations

import io
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from controller.ingest.limits import IngestLimits
from tests.controller.ingest.formats.avro_files import (
    SYNC,
    block,
    file,
    header,
    number,
    record,
    text,
)
from tests.controller.ingest.harness import Drop, accepted, rejected

IDS = "id BIGINT"
ID = {"id": "long"}
ROWS = [number(i) for i in range(1000)]


@pytest.mark.parametrize("compression", ["uncompressed", "deflate", "snappy"])
def test_what_another_writer_wrote_is_read_whole(compression: Any, tmp_path: Path):
    """Polars writes; nulls, nested values and times are as they were."""
    rows: list[dict[str, Any]] = [
        {"id": 1, "s": "é漢", "f": 1.5, "b": True, "d": date(2024, 2, 29), "l": [1, None]},
        {"id": None, "s": None, "f": None, "b": None, "d": None, "l": None},
        {"id": -(2**63), "s": "", "f": -0.0, "b": False, "d": date(1969, 1, 1), "l": []},
    ]
    moment = datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=UTC)
    frame = pl.DataFrame(
        [
            {**row, "t": moment.replace(tzinfo=None), "x": {"a": i}, "y": b"\xff"}
            for i, row in enumerate(rows)
        ]
    )
    sink = io.BytesIO()
    frame.write_avro(sink, compression=compression)
    schema = (
        "id BIGINT, s STRING, f DOUBLE, b BOOLEAN, d DATE, l ARRAY<BIGINT>, t TIMESTAMP, "
        "x STRUCT<a: BIGINT>, y BINARY"
    )
    read = accepted(sink.getvalue(), tmp_path, schema, "avro", options={"timezone": "UTC"})
    assert read == [{**row, "t": moment, "x": {"a": i}, "y": b"\xff"} for i, row in enumerate(rows)]


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "bzip2", "zstandard"])
def test_blocks_of_every_codec_are_read_in_order(codec: str, tmp_path: Path):
    """Blocks and batches are cut anywhere; a block may be empty."""
    data = header(record(ID), codec)
    for start in range(0, 1000, 300):
        some = ROWS[start : start + 300]
        data += block(len(some), b"".join(some), codec) + block(0, b"", codec)
    rows = accepted(data, tmp_path, IDS, "avro", limits=IngestLimits(batch_rows=70))
    assert [row["id"] for row in rows] == list(range(1000))


@pytest.mark.parametrize(
    ("declared", "type_", "data", "value"),
    [
        ("INT", "long", number(-5), -5),
        ("BIGINT", "int", number(2**31 - 1), 2**31 - 1),
        ("DOUBLE", "float", struct.pack("<f", 0.5), 0.5),
        ("STRING", {"type": "enum", "name": "e", "symbols": ["A", "B"]}, number(1), "B"),
        ("BINARY", {"type": "fixed", "name": "f", "size": 2}, b"ab", b"ab"),
        ("MAP<STRING, BIGINT>", {"type": "map", "values": "long"},
         number(1) + text("k") + number(7) + number(0), [("k", 7)]),
        ("ARRAY<STRING>", {"type": "array", "items": "string"},
         number(-1) + number(2) + text("a") + number(0), ["a"]),
        ("DECIMAL(10,2)",
         {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
         text(b"\xff\x00"), Decimal("-2.56")),
        ("TIMESTAMP", {"type": "long", "logicalType": "timestamp-millis"}, number(1001),
         datetime(1970, 1, 1, 0, 0, 1, 1000, tzinfo=UTC)),
        ("DATE", {"type": "int", "logicalType": "date"}, number(-1), date(1969, 12, 31)),
        ("STRING", {"type": "string", "logicalType": "uuid"}, text("u"), "u"),
        ("BIGINT", ["long", "null"], number(1), None),
        ("BIGINT", ["null", "long"], number(1) + number(4), 4),
        ("BIGINT", "null", b"", None),
        ("STRUCT<a: STRING, b: STRUCT<a: STRING>>",
         {"type": "record", "name": "o", "namespace": "n", "fields": [
             {"name": "a", "type": "string"},
             {"name": "b", "type": {"type": "record", "name": "i", "fields": [
                 {"name": "a", "type": "string"}]}}]},
         text("x") + text("y"), {"a": "x", "b": {"a": "y"}}),
    ],
)  # fmt: skip
def test_values_of_every_type_are_exact(
    declared: str, type_: object, data: bytes, value: object, tmp_path: Path
):
    """A value comes as it was written, in the declared type; no value changes."""
    rows = accepted(
        file({"n": "int", "c": type_}, [number(1) + data]), tmp_path, f"n INT, c {declared}", "avro"
    )
    assert rows == [{"n": 1, "c": value}]


def test_a_column_that_is_not_declared_is_refused_or_passed_over(tmp_path: Path):
    """Even one of a type that no column has; what is behind it is read."""
    fields = {"odd": ["null", "long", "string"], "id": "long"}
    data = file(fields, [number(2) + text("x") + number(7), number(1) + number(9) + number(8)])
    assert rejected(data, tmp_path, IDS, "avro")["code"] == "column_unknown"
    rows = accepted(data, tmp_path, IDS, "avro", options={"unknown": "ignore"})
    assert [row["id"] for row in rows] == [7, 8]
    assert rejected(data, tmp_path, "odd STRING, id BIGINT", "avro")["code"] == "column_type"


@pytest.mark.parametrize(
    ("type_", "data"),
    [
        pytest.param("int", number(1 << 40), id="an int of 41 bits (elsewhere 0)"),
        pytest.param(["null", "long"], number(7) + number(4), id="no such branch (elsewhere 4)"),
        pytest.param("boolean", b"\x07", id="a boolean of 7 (elsewhere false)"),
        pytest.param("long", number(1) + b"zz", id="bytes behind the record (elsewhere read)"),
        pytest.param("string", text(b"\xff"), id="no UTF-8"),
        pytest.param("string", number(50) + b"a", id="a text that is cut"),
        pytest.param("string", number(-5) + b"a", id="negative size"),
        pytest.param("string", number(1 << 40) + b"a", id="a terabyte"),
        pytest.param("long", b"\xff" * 12 + b"\x01", id="a number of 84 bits"),
        pytest.param({"type": "enum", "name": "e", "symbols": ["A"]}, number(1), id="no symbol"),
        pytest.param(
            {"type": "array", "items": "long"}, number(1 << 50) + number(0), id="endless array"
        ),
        pytest.param(
            {"type": "array", "items": "long"},
            number(-1) + number(9) + number(1) + number(0),
            id="an array of another size",
        ),
        pytest.param(
            {"type": "map", "values": "null"},
            number(2) + text("a") + text("a") + number(0),
            id="a duplicate key",
        ),
        pytest.param(
            {"type": "bytes", "logicalType": "decimal", "precision": 2},
            text(b"\x00\x64"),
            id="a decimal of 3 digits",
        ),
    ],
)
def test_a_wrong_value_refuses_the_file_with_its_record(type_: object, data: bytes, tmp_path: Path):
    """Polars reads some of these in silence; here each is named by row and column."""
    whole = header(record({"id": "long", "c": type_}))
    whole += block(1, number(3) + data)
    reason = rejected(whole, tmp_path, IDS, "avro", options={"unknown": "ignore"})
    assert reason["code"] == "avro_damaged"
    assert (reason["line"], reason["column"]) in ((1, "c"), (None, None))


SOUND = file(ID, ROWS)


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        pytest.param(SOUND[:-1], "avro_damaged", id="cut by one byte"),
        pytest.param(SOUND[:-200], "avro_damaged", id="cut in a block"),
        pytest.param(SOUND[:20], "avro_damaged", id="cut in the header"),
        pytest.param(SOUND + b"garbage", "avro_damaged", id="garbage behind it"),
        pytest.param(SOUND + SOUND, "avro_damaged", id="two files in one"),
        pytest.param(SOUND.replace(SYNC, b"x" * 16, 1), "avro_damaged", id="another marker"),
        pytest.param(b"", "format_mismatch", id="empty"),
        pytest.param(b'{"id": 1}\n', "format_mismatch", id="JSON lines"),
        pytest.param(header(b"{"), "avro_damaged", id="schema is no JSON"),
        pytest.param(header(b"[" * 100_000), "avro_damaged", id="schema is too deep for JSON"),
        pytest.param(header("long"), "column_type", id="records without names"),
        pytest.param(header(record({"id": "lnog"})), "avro_damaged", id="no such type"),
        pytest.param(header(record({"x": "long"})), "column_missing", id="none of the columns"),
        pytest.param(header(record({"id": "string"})), "column_type", id="another type"),
        pytest.param(header(record(ID), "lzma"), "compression_unsupported", id="codec"),
        pytest.param(header(record({"id": "null"})), "avro_limits", id="records without bytes"),
        pytest.param(
            header(
                record({**ID, "a": {"type": "bytes", "logicalType": "decimal", "precision": 10**9}})
            ),
            "avro_limits",
            id="a decimal of 1,000,000,000 digits",
        ),
        pytest.param(
            header(record({**ID, "a": {"type": "array", "items": "null"}})),
            "avro_limits",
            id="items without bytes",
        ),
        pytest.param(header(record({"id": ["null", "row"]})), "column_type", id="recursive"),
        pytest.param(header(record(ID)) + block(2, number(1)), "avro_damaged", id="too few"),
        pytest.param(header(record(ID)) + block(1 << 60, number(1)), "avro_damaged", id="count"),
        pytest.param(
            header(record(ID)) + number(1) + number(1 << 50),
            "avro_limits",
            id="petabyte",
        ),
        pytest.param(header(record(ID)) + number(-1) + number(1), "avro_damaged", id="negative"),
        pytest.param(
            header(record(ID), "deflate") + number(1) + text(b"\xff\xff") + SYNC,
            "avro_damaged",
            id="packed damage",
        ),
        pytest.param(b"Obj\x01" + number(1) + number(1 << 40), "avro_limits", id="huge header"),
    ],
)
def test_a_file_that_is_not_whole_is_refused(data: bytes, rule: str, tmp_path: Path):
    """Each kind of damage has its code, and nothing is read in part."""
    assert rejected(data, tmp_path, IDS, "avro")["code"] == rule


@pytest.mark.parametrize("codec", ["deflate", "bzip2", "zstandard", "snappy"])
def test_a_flipped_bit_of_a_packed_block_is_seen_or_changes_nothing(codec: str, tmp_path: Path):
    """Whatever is accepted of a damaged file has as many records as the file says."""
    whole = file(ID, ROWS, codec)
    begin = len(header(record(ID), codec)) + 4
    for at in range(begin, len(whole) - 16, max(1, (len(whole) - begin) // 6)):
        data = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
        drop = Drop(tmp_path / f"{at}", IDS, "avro")
        drop.put("flipped", data)
        if drop.scan().accepted:
            assert len(drop.rows()) == 1000
        else:
            assert drop.reasons()[0]["code"].startswith("avro_")


@pytest.mark.parametrize("codec", ["deflate", "bzip2", "zstandard", "snappy"])
def test_a_block_that_expands_without_end_is_stopped(codec: str, tmp_path: Path):
    """The limit of a block holds whatever it is packed to, and so does the ratio of the file."""
    data = file({"id": "string"}, [text(b" " * (4 << 20))], codec)
    limits = IngestLimits(row_group_bytes=1 << 20, ratio_floor_bytes=1 << 19)
    assert rejected(data, tmp_path, "id STRING", "avro", limits=limits)["code"] == "avro_limits"
    if codec != "snappy":
        limits = IngestLimits(ratio_floor_bytes=1 << 20)
        reason = rejected(data, tmp_path, "id STRING", "avro", limits=limits)
        assert reason["code"] == "decompression_ratio"


def test_a_record_beyond_the_limit_of_a_line_is_refused(tmp_path: Path):
    """With its number, as for lines."""
    data = file({"id": "string"}, [text("a"), text("b" * 3000)])
    limits = IngestLimits(line_bytes_max=2000)
    reason = rejected(data, tmp_path, "id STRING", "avro", limits=limits)
    assert (reason["code"], reason["line"]) == ("line_too_long", 2)


def test_rows_that_do_not_fit_are_named(tmp_path: Path):
    """A value out of the declared range, and a null where none may be."""
    data = file(ID, [number(1), number(300), number(-1000)])
    reason = rejected(data, tmp_path, "id TINYINT", "avro")
    assert [(one["line"], one["code"]) for one in reason["lines"]] == [
        (2, "value_range"),
        (3, "value_range"),
    ]
    data = file({"id": ["null", "long"]}, [number(1) + number(1), number(0)])
    reason = rejected(data, tmp_path, "id BIGINT NOT NULL", "avro")
    assert (reason["code"], reason["line"]) == ("value_missing", 2)
