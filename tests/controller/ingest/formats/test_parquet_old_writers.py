"""Parquet files as old writers made them: what other readers read of them is read here, too."""

from __future__ import annotations

import io
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.controller.ingest.harness import accepted, rejected

I32, I64, TEXT, LIST, STRUCT = 5, 6, 8, 9, 12
"""Types of Thrift's compact protocol."""

SCHEMA = "n INT, name STRING"
TABLE = pa.table(
    {
        "n": pa.array([number % 7 for number in range(300)], pa.int32()),
        "name": [f"name {number % 5}" for number in range(300)],
    }
)


def varint(value: int) -> bytes:
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + varint(rest) if rest else bytes([low])


def number(value: int) -> bytes:
    return varint(value << 1)


def text(value: str) -> bytes:
    return varint(len(value)) + value.encode()


def some(kind: int, *items: bytes) -> bytes:
    return bytes([len(items) << 4 | kind]) + b"".join(items)


def fields(*given: tuple[int, int, bytes]) -> bytes:
    """Return a struct of fields: each its id, its type and its value."""
    made, last = b"", 0
    for id_, kind, value in given:
        made, last = made + bytes([(id_ - last) << 4 | kind]) + value, id_
    return made + b"\0"


def old_file(created_by: str) -> bytes:
    """Return a file whose footer is that of parquet-mr before 1.2.9.

    The place of a dictionary is written as that of the first data page, and the size of its column
    lacks the dictionary's header.
    """
    sink = io.BytesIO()
    pq.write_table(TABLE, sink, compression="none", write_statistics=False, version="1.0")
    data = sink.getvalue()
    group = pq.read_metadata(io.BytesIO(data)).row_group(0)
    columns = []
    for at, (name, type_) in enumerate((("n", 1), ("name", 6))):
        chunk = group.column(at)
        values = set(TABLE.column(at).to_pylist())
        held = sum(4 + (len(value) if isinstance(value, str) else 0) for value in values)
        header = chunk.data_page_offset - chunk.dictionary_page_offset - held
        assert 0 < header < 100
        size = number(chunk.total_compressed_size - header)
        facts = fields(
            (1, I32, number(type_)),
            (2, LIST, some(I32, number(2), number(3))),
            (3, LIST, some(TEXT, text(name))),
            (4, I32, number(0)),
            (5, I64, number(chunk.num_values)),
            (6, I64, size),
            (7, I64, size),
            (9, I64, number(chunk.dictionary_page_offset)),
        )
        offset = number(chunk.dictionary_page_offset)
        columns.append(fields((2, I64, offset), (3, STRUCT, facts)))
    row_group = fields(
        (1, LIST, some(STRUCT, *columns)),
        (2, I64, number(group.total_byte_size)),
        (3, I64, number(group.num_rows)),
    )
    schema = some(
        STRUCT,
        fields((4, TEXT, text("m")), (5, I32, number(2))),
        fields((1, I32, number(1)), (3, I32, number(1)), (4, TEXT, text("n"))),
        fields(
            (1, I32, number(6)), (3, I32, number(1)), (4, TEXT, text("name")), (6, I32, number(0))
        ),
    )
    footer = fields(
        (1, I32, number(1)),
        (2, LIST, schema),
        (3, I64, number(group.num_rows)),
        (4, LIST, some(STRUCT, row_group)),
        (6, TEXT, text(created_by)),
    )
    (length,) = struct.unpack("<I", data[-8:-4])
    return data[: -8 - length] + footer + struct.pack("<I", len(footer)) + b"PAR1"


def plain(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["n"], row["name"]) for row in rows]


@pytest.mark.parametrize("writer", ["parquet-mr", "parquet-mr version 1.2.8 (build 1)"])
def test_a_dictionary_that_its_footer_does_not_name_is_read(writer: str, tmp_path: Path) -> None:
    """As pyarrow reads it: the column's size lacks the header of its dictionary."""
    data = old_file(writer)
    chunk = pq.read_metadata(io.BytesIO(data)).row_group(0).column(1)
    assert (chunk.dictionary_page_offset, chunk.has_dictionary_page) == (None, False)
    read = pq.read_table(io.BytesIO(data))
    assert read.equals(TABLE)
    assert plain(accepted(data, tmp_path, SCHEMA, "parquet")) == plain(read.to_pylist())


def test_a_newer_writer_counts_every_header(tmp_path: Path) -> None:
    """So such a footer is damage, which pyarrow refuses as well."""
    data = old_file("parquet-mr version 1.2.9")
    with pytest.raises(OSError, match=r".*"):
        pq.read_table(io.BytesIO(data))
    assert rejected(data, tmp_path, SCHEMA, "parquet")["code"] == "parquet_damaged"


def test_a_cut_column_of_an_old_writer_is_refused(tmp_path: Path) -> None:
    """What a size may lack is a header, no page."""
    data = old_file("parquet-mr")
    pages = b"".join([data[:60], data[90:]])
    assert rejected(pages, tmp_path, SCHEMA, "parquet")["code"] == "parquet_damaged"
