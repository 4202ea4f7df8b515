"""The output of a peer: the changed counts of each increment, in Parquet files.

    changes/000000.parquet | changes/000000/part-*.parquet     one file or folder per run

A consumer of a peer's changes reads these files in the order of their runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from cbp.model.flow.schema import Schema
from tests.bench.comparison.digests import last_digest
from tests.bench.comparison.result_comparison import Digest

__all__ = ["SCHEMA", "Changes", "sync", "write_synced"]

SCHEMA = Schema.parse("url STRING, n BIGINT")
_RUN = "_run"
_COLUMNS = list(SCHEMA.names)


class Changes:
    """The folder with the output of one candidate.

    Args:
        folder: The candidate's folder.
        suffix: Suffix of a run's file; empty means that each run has a folder.
    """

    def __init__(self, folder: Path, suffix: str = ".parquet") -> None:
        self._folder, self._suffix = folder / "changes", suffix
        self._runs = 0
        self._folder.mkdir(parents=True, exist_ok=True)

    def next(self) -> Path:
        """Return the path that the next run writes to."""
        path = self._path(self._runs)
        self._runs += 1
        return path

    def latest(self) -> Iterator[pa.RecordBatch]:
        """Yield `(url, n)`: what the latest run emitted."""
        if self._runs:
            yield from self._of(self._runs - 1)

    def sync(self) -> None:
        """Make the output of the latest run durable."""
        path = self._path(self._runs - 1)
        for file in [path] if self._suffix else [*path.glob("*.parquet"), path]:
            sync(file)
        sync(self._folder)

    def digest(self) -> Digest:
        """Return the digest of the last row per key."""
        return last_digest(self._numbered(), SCHEMA.fields[:1], SCHEMA.fields, _RUN)

    def _path(self, run: int) -> Path:
        return self._folder / f"{run:06d}{self._suffix}"

    def _of(self, run: int) -> Iterator[pa.RecordBatch]:
        path = self._path(run)
        if path.exists():
            yield from ds.dataset(path, format="parquet").to_batches(columns=_COLUMNS)

    def _numbered(self) -> Iterator[pa.RecordBatch]:
        for run in range(self._runs):
            for batch in self._of(run):
                yield batch.append_column(_RUN, pa.array([run] * batch.num_rows, pa.int64()))


def sync(path: Path) -> None:
    """Make a file's content, or a folder's names, durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_synced(table: pa.Table, path: Path) -> None:
    """Write a Parquet file and make it durable, including its name."""
    pq.write_table(table, path, compression="zstd")
    sync(path)
    sync(path.parent)
