"""What a Parquet file decodes to is bounded before and while it is decoded.

The bounds come from its page headers, and what is decoded is counted, in bounded memory.
"""

from __future__ import annotations

import io
import os
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from controller.ingest.formats.parquet import decoded_bytes
from controller.ingest.formats.parquet_pages import DICTIONARY_PAGE, pages
from controller.ingest.limits import IngestLimits
from tests.controller.ingest.harness import accepted, rejected

MEGABYTE = 1 << 20


def parquet(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def repeated(rows: int, size: int) -> pa.Array:
    """Return one long text so many times, as a dictionary."""
    indices = pa.array([0] * rows, pa.int32())
    return pa.DictionaryArray.from_arrays(indices, pa.array(["x" * size]))


@pytest.mark.parametrize(
    ("schema", "column"),
    [
        ("c STRING", repeated(1200, MEGABYTE)),
        ("c STRING", repeated(200_000, 50_000)),
        (
            "c ARRAY<STRING>",
            pa.ListArray.from_arrays(pa.array([0, 600, 1200]), repeated(1200, MEGABYTE)),
        ),
        ("c STRUCT<a: STRING>", pa.StructArray.from_arrays([repeated(1200, MEGABYTE)], ["a"])),
    ],
    ids=["texts", "many texts", "list", "struct"],
)
def test_a_dictionary_that_repeats_long_texts_is_refused_in_bounded_memory(
    schema: str, column: pa.Array, tmp_path: Path
) -> None:
    """A few hundred bytes do not become gigabytes: neither in memory, nor in an increment."""
    data = parquet(pa.table({"c": column}))
    assert len(data) < 100_000
    parent = pa.default_memory_pool()
    counted = pa.proxy_memory_pool(parent)
    pa.set_memory_pool(counted)
    try:
        reason = rejected(data, tmp_path, schema, "parquet")
    finally:
        pa.set_memory_pool(parent)
    assert reason["code"] in ("decompression_ratio", "line_too_long")
    assert MEGABYTE < counted.max_memory() < 256 * MEGABYTE


@pytest.mark.soak
def test_a_dictionary_is_decoded_where_its_size_is_sound(tmp_path: Path) -> None:
    """What is read as a dictionary, in parts, gives the same rows in the same order."""
    texts = [f"{at % 5}" * 40_000 for at in range(5000)]
    table = pa.table({"n": range(5000), "c": texts, "l": [[text[:10]] for text in texts]})
    limits = IngestLimits(ratio_max=1_000_000)
    rows = accepted(
        parquet(table), tmp_path, "n BIGINT, c STRING, l ARRAY<STRING>", "parquet", limits=limits
    )
    assert [(row["n"], row["c"], row["l"]) for row in rows] == [
        (at, text, [text[:10]]) for at, text in enumerate(texts)
    ]


@pytest.mark.soak
def test_texts_with_common_beginnings_are_bounded_too(tmp_path: Path) -> None:
    """An encoding that refers to the value before repeats as a dictionary does."""
    texts = ["x" * MEGABYTE + f"{at}" for at in range(800)]
    options: dict[str, Any] = {
        "use_dictionary": False,
        "column_encoding": {"c": "DELTA_BYTE_ARRAY"},
    }
    data = parquet(pa.table({"c": texts}), **options)
    assert len(data) < 2 * MEGABYTE
    assert rejected(data, tmp_path, "c STRING", "parquet")["code"] == "decompression_ratio"
    few = parquet(pa.table({"c": ["ab", "abc", "abd"]}), **options)
    assert [row["c"] for row in accepted(few, tmp_path, "c STRING", "parquet")] == [
        *("ab", "abc", "abd")
    ]


def test_pages_say_what_they_hold(tmp_path: Path) -> None:
    """The headers of all pages are found, whatever statistics lie between them."""
    path = tmp_path / "f"
    texts = [f"{at:0500d}" for at in range(20_000)]
    for version in ("1.0", "2.0"):
        pq.write_table(pa.table({"c": texts}), path, data_page_version=version)
        metadata = pq.read_metadata(path)
        chunk = metadata.row_group(0).column(0)
        handle = os.open(path, os.O_RDONLY)
        actual = list(pages(handle, chunk.dictionary_page_offset, chunk.total_compressed_size))
        os.close(handle)
        data = [page for page in actual if page.kind != DICTIONARY_PAGE]
        assert sum(page.values for page in data) == 20_000
        assert len(actual) > len(data) == sum(page.encoding >= 0 for page in data)
        assert sum(page.bytes for page in actual) <= chunk.total_uncompressed_size


def test_decoded_bytes_follow_slices() -> None:
    """Half of the rows has half of the bytes, nested or not: who cuts comes to an end."""
    values = repeated(100, 1000)
    lists = pa.ListArray.from_arrays(pa.array(range(0, 101, 10)), values)
    maps = pa.MapArray.from_arrays(pa.array(range(0, 101, 10)), pa.array(range(100)), values)
    for array in (values, lists, maps, pa.StructArray.from_arrays([values], ["a"])):
        whole, half = decoded_bytes(array), decoded_bytes(array.slice(len(array) // 2))
        assert whole > 100_000
        assert 0.4 * whole < half < 0.6 * whole


def test_absurd_footers_are_refused(tmp_path: Path) -> None:
    """A footer's length, its nesting and encryption are looked at before it is believed."""
    sound = parquet(pa.table({"c": [1]}))
    cases = {
        "parquet_damaged": sound[:-8] + struct.pack("<I", len(sound)) + b"PAR1",
        "parquet_encrypted": sound[:-4] + b"PARE",
        "parquet_limits": sound[:-8] + struct.pack("<I", 1 << 30) + b"PAR1",
    }
    for code, data in cases.items():
        assert rejected(data, tmp_path, "c BIGINT", "parquet")["code"] == code
    deep: pa.Array = pa.array([1])
    for _ in range(100):
        deep = pa.StructArray.from_arrays([deep], ["a"])
    data = parquet(pa.table({"c": deep}))
    assert rejected(data, tmp_path, "c BIGINT", "parquet")["code"] == "parquet_limits"


def test_a_page_of_any_size_may_not_be_claimed(tmp_path: Path) -> None:
    """Thousands of rows from a run of equal values are counted as what they become."""
    data = parquet(pa.table({"c": pa.array([7] * 20_000_000, pa.int64())}))
    assert len(data) < 300_000
    assert rejected(data, tmp_path, "c BIGINT", "parquet")["code"] == "decompression_ratio"
