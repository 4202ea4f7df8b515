"""The faults that other readers pass over in silence: each is rejected, or read whole.

In comments: what Spark's CSV reader made of the same file, as measured.
"""

from __future__ import annotations

import bz2
import gc
import gzip
import io
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbp.model.flow.schema import Schema
from cbp.model.source.options import ReadOptions
from controller.ingest.formats.bad_lines import Reading
from controller.ingest.formats.csv_records import read_csv
from controller.ingest.formats.file_bytes import ClaimedContent, decompressed, sniff
from controller.ingest.formats.text import text_blocks
from controller.ingest.limits import IngestLimits
from controller.ingest.rejection import FileRejectedError
from tests.controller.ingest.harness import Drop, accepted, lines, rejected
from tests.sampling import examples

SCHEMA = "id BIGINT, name STRING"
COUNT = 5_000
PLAIN = b"id,name\n" + b"".join(b"%d,name %d\n" % (i, i) for i in range(COUNT))
PACKED = gzip.compress(PLAIN)
ZSTD = pa.Codec("zstd").compress(PLAIN).to_pybytes()
BZIP2 = bz2.compress(PLAIN)
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "zstd": lambda data: bytes(pa.Codec("zstd").compress(data)),
}


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def skippable(size: int, kind: int = 0) -> bytes:
    """Return a frame of zstd that readers skip."""
    return bytes([0x50 + kind]) + b"\x2a\x4d\x18" + struct.pack("<I", size) + b"\x01" * size


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        pytest.param(PACKED[: len(PACKED) // 2], "compressed_truncated", id="gzip cut in half"),
        pytest.param(PACKED[:-1], "compressed_truncated", id="gzip cut by one byte"),
        pytest.param(flipped(PACKED, len(PACKED) - 6), "compressed_damaged", id="gzip CRC wrong"),
        pytest.param(PACKED + b"garbage", "compressed_trailing_bytes", id="gzip and garbage"),
        pytest.param(PACKED + b"\0" * 512, "compressed_trailing_bytes", id="gzip and padding"),
        pytest.param(
            PACKED + gzip.compress(PLAIN[8:])[:-9], "compressed_truncated", id="second member cut"
        ),
        pytest.param(ZSTD[: len(ZSTD) // 2], "compressed_truncated", id="zstd cut in half"),
        pytest.param(ZSTD + b"garbage", "compressed_damaged", id="zstd and garbage"),
        pytest.param(BZIP2[: len(BZIP2) // 2], "compressed_truncated", id="bzip2 cut in half"),
        pytest.param(BZIP2[:-1], "compressed_truncated", id="bzip2 cut by one byte"),
        pytest.param(BZIP2 + b"garbage", "compressed_trailing_bytes", id="bzip2 and garbage"),
        pytest.param(BZIP2 + b"B", "compressed_truncated", id="bzip2 and a member's first byte"),
        pytest.param(BZIP2 + PACKED, "compressed_trailing_bytes", id="gzip behind bzip2"),
        pytest.param(flipped(BZIP2, len(BZIP2) // 2), "compressed_damaged", id="bzip2 CRC wrong"),
        pytest.param(gzip.compress(PACKED), "compression_unsupported", id="gzip inside gzip"),
        pytest.param(bz2.compress(BZIP2), "compression_unsupported", id="bzip2 inside bzip2"),
        pytest.param(b"PK\x03\x04....", "compression_unsupported", id="zip"),
        pytest.param(ZSTD + skippable(4), "compressed_truncated", id="pzstd, a frame missing"),
        pytest.param(ZSTD + skippable(9)[:-2], "compressed_truncated", id="skippable frame cut"),
        pytest.param(ZSTD + skippable(9)[:6], "compressed_truncated", id="skippable header cut"),
        pytest.param(ZSTD + ZSTD[:9], "compressed_truncated", id="second zstd frame cut"),
        pytest.param(ZSTD + b"id,name\n", "compressed_damaged", id="text behind zstd"),
        pytest.param(PLAIN[:-12], "csv_fields", id="cut mid-line"),
        pytest.param(PLAIN[:-1], "line_end", id="last line end missing"),
        pytest.param(PLAIN[:-3], "line_end", id="cut in its last field"),
        pytest.param(b"id,name,nmae\n1,a,b\n", "column_unknown", id="unknown column"),
        pytest.param("id,name\n1,é\n".encode("latin-1"), "encoding", id="Latin-1"),
        pytest.param("id,name\n1,a\n".encode("utf-16"), "encoding", id="UTF-16"),
        pytest.param(b"id,name\n1,a\0b\n", "nul_byte", id="NUL inside"),
        pytest.param(b"id,name\r1,a\r2,b\r", "line_end", id="CR newlines"),
        pytest.param(b"", "csv_header", id="empty, header expected"),
        pytest.param(b"id,name\n1\n", "csv_fields", id="too few fields"),
        pytest.param(b"id,name\n1,a,b\n", "csv_fields", id="too many fields"),
        pytest.param(b'id,name\n1,"a\n2,b\n', "csv_quote", id="open quote"),
        pytest.param(b'id,name\n1,"a"b\n', "csv_quote", id="text after a quote"),
        pytest.param(b"id,id\n1,2\n", "csv_header", id="column twice"),
        pytest.param(b"1,a\n2,b\n", "csv_header", id="header missing"),
        pytest.param(b"id,name\n1,a\nx,b\n", "value_type", id="wrong type"),
    ],
)
def test_damaged_csv_goes_to_quarantine(data: bytes, rule: str, tmp_path: Path):
    """A file that is not whole and right is rejected with a rule, never read in part."""
    reason = rejected(data, tmp_path, SCHEMA, "csv")
    assert reason["code"] == rule
    assert reason["file"] == "bad"
    assert reason["message"].startswith("bad")


@pytest.mark.parametrize("at", range(12, len(PACKED) - 8, len(PACKED) // 12))
def test_one_flipped_bit_of_a_gzip_file_is_seen(at: int, tmp_path: Path):
    """The checksum decides, wherever the bit is (16,367 rows with 10 nulls elsewhere)."""
    reason = rejected(flipped(PACKED, at), tmp_path, SCHEMA, "csv")
    assert reason["code"].startswith(("compressed_", "csv_", "value_", "encoding", "nul", "line"))


@pytest.mark.parametrize(
    ("data", "count"),
    [
        pytest.param(PACKED, COUNT, id="gzip, whatever its name"),
        pytest.param(ZSTD, COUNT, id="zstd"),
        pytest.param(BZIP2, COUNT, id="bzip2"),
        pytest.param(BZIP2 + bz2.compress(PLAIN[8:]), 2 * COUNT, id="two bzip2 members"),
        pytest.param(PLAIN, COUNT, id="plain, whatever its name"),
        pytest.param(b"\xef\xbb\xbf" + PLAIN, COUNT, id="byte-order mark"),
        pytest.param(PLAIN.replace(b"\n", b"\r\n"), COUNT, id="CR LF"),
        pytest.param(PACKED + gzip.compress(PLAIN[8:]), 2 * COUNT, id="two gzip members"),
        pytest.param(ZSTD + ZSTD[:0], COUNT, id="one zstd frame"),
        pytest.param(ZSTD + COMPRESS["zstd"](PLAIN[8:]), 2 * COUNT, id="two zstd frames"),
        *(
            pytest.param(skippable(size, kind) + ZSTD, COUNT, id=f"skippable {size} {kind} first")
            for size, kind in ((4, 0), (0, 15), (200_000, 7))
        ),
        pytest.param(
            skippable(4) + ZSTD + skippable(4) + COMPRESS["zstd"](PLAIN[8:]),
            2 * COUNT,
            id="as pzstd writes",
        ),
        pytest.param(ZSTD + skippable(33, 14), COUNT, id="seek table last"),
        pytest.param(b"id,name\n", 0, id="header only"),
    ],
)
def test_sound_csv_is_read_whole(data: bytes, count: int, tmp_path: Path):
    """Every record is there, once and in order, whatever the packing."""
    rows = accepted(data, tmp_path, SCHEMA, "csv")
    assert len(rows) == count
    assert all(row == {"id": i % COUNT, "name": f"name {i % COUNT}"} for i, row in enumerate(rows))


def test_csv_error_names_line_and_column_behind_quoted_line_ends(tmp_path: Path):
    """Lines are those an editor shows, also behind records of several lines."""
    data = b'id,name\n1,"a\nb\nc"\n2,"d ""e"""\nx,f\n'
    reason = rejected(data, tmp_path, SCHEMA, "csv")
    assert (reason["line"], reason["column"]) == (6, "id")


def test_csv_distinguishes_an_empty_string_from_null(tmp_path: Path):
    """Nothing between delimiters is null; an empty quoted field is empty text."""
    rows = accepted(b'id,name\n1,""\n2,\n,x\n', tmp_path, SCHEMA, "csv")
    assert [(r["id"], r["name"]) for r in rows] == [(1, ""), (2, None), (None, "x")]


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize(
    ("data", "options", "expected"),
    [
        (b"name\na\n\n\nb\n\n", {}, ["a", None, None, "b", None]),
        (b'name\na\n\n""\n"b"\n', {}, ["a", None, "", "b"]),
        (b"\n\nname\na\n\n", {}, ["a", None]),
        (b"a\n\nb\n", {"header": "false"}, ["a", None, "b"]),
        (b"\n", {"header": "false"}, [None]),
        (b"name\na\n\nNA\n", {"null": "NA"}, ["a", "", None]),
        (b"name\na\n\n", {"quote": ""}, ["a", None]),
        (b"name\n", {}, []),
    ],
)
@pytest.mark.parametrize("batch_rows", [1, 1000])
def test_a_blank_line_of_one_column_is_an_empty_cell(
    data: bytes,
    options: dict[str, str],
    expected: list[str | None],
    end: bytes,
    batch_rows: int,
    tmp_path: Path,
):
    """What databases and spreadsheets write for null there; nothing vanishes."""
    limits = IngestLimits(batch_rows=batch_rows)
    text = data.replace(b"\n", end)
    rows = accepted(text, tmp_path, "name STRING", "csv", options=options, limits=limits)
    assert [row["name"] for row in rows] == expected


def test_a_blank_line_of_one_column_needs_a_value_where_it_is_required(tmp_path: Path):
    """With its line."""
    reason = rejected(b"name\na\n\nb\n", tmp_path, "name STRING NOT NULL", "csv")
    assert (reason["code"], reason["line"]) == ("value_missing", 3)


def test_a_blank_line_between_records_of_several_columns_is_skipped(tmp_path: Path):
    """It would have too few fields; also where the source reads one of the file's columns."""
    data = b"\nid,name\n\n1,a\n\n2,b\n\n"
    assert [row["id"] for row in accepted(data, tmp_path, SCHEMA, "csv")] == [1, 2]
    options = {"unknown": "ignore"}
    rows = accepted(data, tmp_path, "id BIGINT", "csv", options=options)
    assert [row["id"] for row in rows] == [1, 2]


def test_csv_options_are_respected(tmp_path: Path):
    """Delimiter, quote, null text and a missing header are as the source declares."""
    options = {"header": "false", "delimiter": ";", "quote": "'", "null": "NA"}
    rows = accepted(b"1;'a;''b'\nNA;NA\n3;'NA'\n", tmp_path, SCHEMA, "csv", options=options)
    assert [tuple(r.values()) for r in rows] == [(1, "a;'b"), (None, None), (3, "NA")]


@settings(max_examples=examples(150), deadline=None)
@given(
    rows=st.lists(
        st.lists(st.none() | st.text('ab,;"\r\n ', max_size=6), min_size=2, max_size=2), max_size=5
    ),
    end=st.sampled_from(["\n", "\r\n"]),
    batch_rows=st.integers(1, 3),
)
def test_csv_gives_back_what_was_written(rows: list[list[str | None]], end: str, batch_rows: int):
    """Any text survives quoting, whatever it holds and wherever batches are cut."""
    header: list[str | None] = ["a", "b"]
    text = "".join(
        ",".join("" if c is None else '"' + c.replace('"', '""') + '"' for c in row) + end
        for row in (header, *rows)
    )
    limits = IngestLimits(batch_rows=batch_rows, line_bytes_max=1000)
    reading = Reading(Schema.parse("a STRING, b STRING"), ReadOptions(), limits)
    blocks = text_blocks([text.encode()], reading)
    batches = read_csv(blocks, reading)
    assert [list(row.values()) for batch in batches for row in batch.to_pylist()] == rows


def test_csv_without_quoting_takes_quotes_as_text(tmp_path: Path):
    """With an empty `quote` option a quote is a character like others."""
    rows = accepted(b'id,name\n1,"a\n2,b"\n', tmp_path, SCHEMA, "csv", options={"quote": ""})
    assert [row["name"] for row in rows] == ['"a', 'b"']


def test_csv_last_line_end_is_required(tmp_path: Path):
    """A file cut inside its last field is seen, unless its source never ends the last line."""
    reason = rejected(b"id,name\n1,a\n2,b", tmp_path, SCHEMA, "csv")
    assert (reason["code"], reason["line"]) == ("line_end", 3)
    assert "final_newline" in reason["message"]
    options = {"final_newline": "optional"}
    rows = accepted(b"id,name\n1,a\n2,b", tmp_path, SCHEMA, "csv", options=options)
    assert [row["id"] for row in rows] == [1, 2]


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        pytest.param(b'{"id": 1, "na', "json_invalid", id="cut"),
        pytest.param(b'{"id": 1} {"id": 2}', "json_invalid", id="two values"),
        pytest.param(b'{"id": 1}\r{"id": 2}', "json_invalid", id="CR newline"),
        pytest.param(b'{"id": 1, "id": 2}', "json_invalid", id="key twice"),
        pytest.param(b'{"id": NaN}', "json_invalid", id="NaN"),
        pytest.param(b"[" * 100_000, "json_invalid", id="too deep"),
        pytest.param(b"[1]", "json_no_object", id="array"),
        pytest.param(b"null", "json_no_object", id="null"),
        pytest.param(b'{"id": "7"}', "value_type", id="text for a number"),
        pytest.param(b'{"id": 9223372036854775808}', "value_type", id="overflow"),
        pytest.param(b'{"id": ' + b"9" * 5000 + b"}", "json_invalid", id="endless number"),
        pytest.param(b'{"name": "a\x00"}', "nul_byte", id="NUL"),
        pytest.param(b'{"name": "\xe9"}', "encoding", id="Latin-1"),
    ],
)
def test_wrong_json_line_rejects_the_file_and_names_the_line(
    line: bytes, rule: str, tmp_path: Path
):
    """One wrong line among many is found, with its number."""
    limits = IngestLimits(batch_rows=100)
    reason = rejected(lines(1010) + line + b"\n" + lines(3), tmp_path, SCHEMA, limits=limits)
    assert (reason["code"], reason["line"]) == (rule, 1011)


def test_json_columns_may_lack_but_not_where_they_are_required(tmp_path: Path):
    """A missing column is null; under NOT NULL it is an error with its line."""
    assert accepted(b'{"id": 1}\n', tmp_path, SCHEMA) == [{"id": 1, "name": None}]
    data = b'{"id": 1, "name": "a"}\n{"id": 2}\n'
    reason = rejected(data, tmp_path, "id BIGINT, name STRING NOT NULL")
    assert (reason["code"], reason["line"], reason["column"]) == ("value_missing", 2, "name")


def test_columns_beyond_the_schema_are_noted(tmp_path: Path):
    """Nothing is left out in silence: the increment's origin names the columns."""
    drop = Drop(tmp_path, "id BIGINT", options={"unknown": "ignore"})
    drop.put("a", b'\n{"id": 1, "other": 2}\n  \n{"id": 2}')
    drop.scan()
    (record,) = drop.store.increment_rows.values()
    assert record.origin["ignored_columns"] == ["other"]
    assert [row["id"] for row in drop.rows()] == [1, 2]


def test_empty_json_lines_file_is_an_empty_increment(tmp_path: Path):
    """No records is an answer: consumers stay aligned, and there is no file."""
    drop = Drop(tmp_path, SCHEMA)
    drop.put("empty.jsonl", b"")
    assert drop.scan().accepted == 1
    (increment,) = drop.increments()
    assert (increment.records, increment.files) == (0, ())


def test_text_beyond_a_read_block_keeps_its_characters(tmp_path: Path):
    """Characters of several bytes are whole wherever blocks are cut."""
    text = "äé漢😀" * 1000
    data = "".join(f'{{"id": {i}, "name": "{text}{i}"}}\n' for i in range(300)).encode()
    rows = accepted(data, tmp_path, SCHEMA)
    assert [row["name"] for row in rows] == [f"{text}{i}" for i in range(300)]


def test_one_huge_line_is_rejected_in_bounded_memory(tmp_path: Path):
    """A line of 50 MB stops at the limit, named by its number."""
    data = lines(2) + b'{"name": "' + b"x" * (50 << 20) + b'"}\n'
    reason = rejected(data, tmp_path, SCHEMA)
    assert (reason["code"], reason["line"]) == ("line_too_long", 3)


def test_open_quote_stops_at_the_record_limit(tmp_path: Path):
    """A lost closing quote does not swallow the rest of the file into memory."""
    data = b'id,name\n1,"a\n' + b'x""y\n' * 500_000
    limits = IngestLimits(line_bytes_max=1 << 20)
    reason = rejected(data, tmp_path, SCHEMA, "csv", limits=limits)
    assert (reason["code"], reason["line"]) == ("csv_quote", 2)


@pytest.mark.parametrize("compression", ["gzip", "bzip2", "zstd"])
def test_a_bomb_is_stopped(compression: str, tmp_path: Path):
    """Expansion beyond the ratio stops the reader long before the end, in bounded memory."""
    text = (b" " * 1023 + b"\n") * 1024 * 24
    path = tmp_path / "bomb"
    path.write_bytes(COMPRESS[compression](text))
    limits = IngestLimits(ratio_floor_bytes=1 << 20)
    sizes = list[int]()
    with ClaimedContent(str(path), limits) as content:
        assert sniff(content) == compression
        with pytest.raises(FileRejectedError):
            sizes.extend(map(len, decompressed(content, compression, limits)))
    assert sum(sizes) < len(text)
    assert max(sizes) <= 2 << 20
    reason = rejected(path.read_bytes(), tmp_path, SCHEMA, limits=limits)
    assert reason["code"] == "decompression_ratio"


def test_sizes_beyond_the_limits_are_rejected(tmp_path: Path):
    """The limits on dropped and on decompressed bytes hold each by itself."""
    reason = rejected(lines(100), tmp_path, SCHEMA, limits=IngestLimits(file_bytes_max=100))
    assert reason["code"] == "file_too_large"
    limits = IngestLimits(decompressed_bytes_max=1000)
    reason = rejected(gzip.compress(lines(1000)), tmp_path, SCHEMA, limits=limits)
    assert reason["code"] == "decompressed_too_large"
    limits = IngestLimits(members_max=3)
    for member in (gzip.compress(b""), bz2.compress(b"")):
        reason = rejected(member * 4, tmp_path, SCHEMA, limits=limits)
        assert reason["code"] == "decompressed_too_large"


def parquet(table: pa.Table, **options: object) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def test_format_mismatch_says_what_was_found(tmp_path: Path):
    """Parquet in a text source and text in a Parquet source are distinguished at once."""
    data = parquet(pa.table({"id": [1]}))
    assert rejected(data, tmp_path, SCHEMA)["code"] == "format_mismatch"
    assert rejected(lines(1), tmp_path, SCHEMA, "parquet")["code"] == "format_mismatch"
    assert rejected(b"", tmp_path, SCHEMA, "parquet")["code"] == "format_mismatch"


def test_a_damaged_zstd_stream_leaves_no_memory_behind(tmp_path: Path):
    """However many come: a reader that lives for days reads thousands of them."""
    path = tmp_path / "damaged"
    whole = COMPRESS["zstd"](lines(100))
    path.write_bytes(whole[:12] + b"\xff" * 8 + whole[20:])

    def read_some() -> None:
        for _ in range(20):
            with (
                ClaimedContent(str(path), IngestLimits()) as content,
                pytest.raises(FileRejectedError),
            ):
                list(decompressed(content, "zstd", IngestLimits()))

    read_some()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        read_some()
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 1 << 20
