"""Immutable Parquet files: how they are packed, and what is durable when."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cbp.engine.storage import parquet_writer as sink
from cbp.engine.storage.failpoints import NO_FAULTS
from cbp.engine.storage.parquet_writer import (
    SMALL_BYTES,
    SMALL_ROWS,
    InOrder,
    ParquetSink,
    sync_files,
)


@pytest.mark.parametrize(
    ("rows", "width", "codec"),
    [
        (SMALL_ROWS, 4, "SNAPPY"),
        (SMALL_ROWS + 1, 4, "ZSTD"),
        (2, SMALL_BYTES, "ZSTD"),
        (sink.ROWS_PER_GROUP + 1, 1, "ZSTD"),
    ],
)
def test_a_small_file_is_packed_fast_and_others_tight(
    rows: int, width: int, codec: str, tmp_path: Path
) -> None:
    """By rows and by bytes, whether or not it came in pieces; what is read is what was written."""
    table = pa.table({"text": ["x" * width] * rows})
    path = str(tmp_path / "_runs" / "1.parquet")
    writer = ParquetSink(path, table.schema, faults=NO_FAULTS)
    writer.write(table.slice(0, 1))
    writer.write(table.slice(1))
    file = writer.close()
    assert file is not None
    assert file.rows == rows
    assert file.bytes == os.stat(path).st_size
    assert pq.read_table(path).equals(table)
    actual = pq.ParquetFile(path).metadata
    assert {actual.row_group(g).column(0).compression for g in range(actual.num_row_groups)} == {
        codec
    }


def test_numbers_that_no_codec_makes_smaller_are_not_packed(tmp_path: Path) -> None:
    """Judged by each column's own records; one with nulls, and one of texts, is packed."""
    dice = np.random.default_rng(1)
    numbers = dice.integers(-(1 << 62), 1 << 62, 20_000)
    columns = {
        "_hash": pa.array(np.sort(numbers)),
        "a.score": pa.array(dice.random(20_000)),
        "node": pa.array(numbers % 1_000),
        "late": pa.array(numbers, mask=numbers % 2 == 0),
        "text": pa.array(map(str, numbers)),
    }
    table, path = pa.table(columns), str(tmp_path / "_runs" / "1.parquet")
    writer = ParquetSink(path, table.schema, faults=NO_FAULTS)
    writer.write(table)
    assert writer.close() is not None
    assert pq.read_table(path).equals(table)
    group = pq.ParquetFile(path).metadata.row_group(0)
    packed = [group.column(at).compression for at in range(group.num_columns)]
    assert packed == ["UNCOMPRESSED", "UNCOMPRESSED", "ZSTD", "ZSTD", "ZSTD"]


def write_whole(path: str, table: pa.Table) -> None:
    """Write one table to a file."""
    writer = ParquetSink(path, table.schema, faults=NO_FAULTS)
    writer.write(table)
    writer.close()


@pytest.mark.parametrize("rows", [SMALL_ROWS, 4 * SMALL_ROWS, sink.ROWS_PER_GROUP + 1])
def test_a_file_that_the_system_cuts_short_is_an_error(rows: int, tmp_path: Path) -> None:
    """However it is written: a write that ends early is never taken for a whole file."""
    table = pa.table({"n": [hash(str(n)) for n in range(rows)]})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
        with pytest.raises(OSError, match="File too large"):
            write_whole(f"{tmp_path}/1.parquet", table)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_wide_rows_reach_the_disk_before_there_are_many(tmp_path: Path) -> None:
    """Memory is bounded by bytes, not by rows alone: a row group is written once it is large."""
    table = pa.table({"text": [f"{i:01000d}" for i in range(100)]})
    path = tmp_path / "_runs" / "1.parquet"
    groups = InOrder(bytes_max=10_000)
    writer = ParquetSink(str(path), table.schema, faults=NO_FAULTS, groups=groups)
    for row in range(100):
        writer.write(table.slice(row, 1))
        assert path.exists() == (row >= 9)
    assert writer.close() is not None
    assert pq.read_table(path).equals(table)
    actual = pq.ParquetFile(path).metadata
    assert [actual.row_group(g).num_rows for g in range(actual.num_row_groups)] == [10] * 10


def test_files_and_all_names_on_the_way_are_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file, its folder, and those below the table that a first task has made: once each."""
    files = [tmp_path / "t" / "_runs" / f"_bucket={b}" / f"{n}" for b in (0, 1) for n in (0, 1)]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"x")
    synced: list[str] = []
    monkeypatch.setattr(
        os, "fsync", lambda handle: synced.append(os.readlink(f"/proc/self/fd/{handle}"))
    )
    passed: list[tuple[str, int]] = []
    sync_files([str(file) for file in files], faults=lambda at: passed.append((at, len(synced))))
    folders = {str(file.parent) for file in files} | {f"{tmp_path}/t/_runs", f"{tmp_path}/t"}
    assert sorted(synced) == sorted([*map(str, files), *folders])
    assert passed == [("data_sync.before", 0), ("data_sync.after", len(synced))]
