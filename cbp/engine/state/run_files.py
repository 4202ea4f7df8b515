"""Writes the run files of one state and bucket for a task, each of bounded size.

New records come while the author's code still runs, so a group of any size needs only the memory
of one file (`cbp.engine.storage.file_sizes`). Files are numbered in the order of their rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, count
from typing import Any

import pyarrow as pa

from cbp.engine.state.bucket_state import LiveFile, StateTable
from cbp.engine.state.index_cache import IndexCache
from cbp.engine.storage.failpoints import NO_FAULTS, Faults
from cbp.engine.storage.file_names import bucket_file
from cbp.engine.storage.file_sizes import Cutter
from cbp.engine.storage.parquet_writer import ParquetSink

__all__ = ["RunFiles"]

Descriptor = dict[str, Any]


class RunFiles:
    """The run files of one state and bucket; see the module header.

    Attributes:
        rows: Number of new records so far.
        done: Descriptors of the files with new records.

    Args:
        run: Id of the run and the attempt; part of the files' names.
        cache: Keeps the files' index copies; `None`: no copies.
        written: Receives the full paths of files that are not synced yet.
    """

    def __init__(
        self,
        table: StateTable,
        *,
        state: str,
        bucket: int,
        epoch: int,
        run: str,
        cache: IndexCache | None,
        written: list[str],
        faults: Faults = NO_FAULTS,
    ) -> None:
        self._table, self._state, self._bucket = table, state, bucket
        self._epoch, self._run, self._cache = epoch, run, cache
        self._written, self._faults = written, faults
        self._cutter = Cutter()
        self._numbers = count()
        self.rows = 0
        self.done: list[Descriptor] = []

    def add(self, rows: pa.Table) -> None:
        """Take new records (ascending by hash); write them once they fill a file."""
        self.rows += rows.num_rows
        self.done.extend(map(self._write, self._cutter.add(rows)))

    def close(self) -> None:
        """Write the remaining records."""
        self.done.extend(map(self._write, self._cutter.rest()))

    def merge(self, tables: Iterable[pa.Table], replaced: Sequence[LiveFile]) -> list[Descriptor]:
        """Write merged records; the first descriptor names the replaced files."""
        pieces = chain(chain.from_iterable(map(self._cutter.add, tables)), self._cutter.rest())
        merged = [{**self._write(rows), "kind": "merge", "replaces": []} for rows in pieces]
        merged[0]["replaces"] = [file.path for file in replaced]
        merged[0]["bytes_dropped"] = sum(file.size for file in replaced)
        return merged

    def _write(self, rows: pa.Table) -> Descriptor:
        path = bucket_file(self._bucket, self._epoch, self._run, next(self._numbers))
        sink = ParquetSink(f"{self._table.folder}/{path}", rows.schema, faults=self._faults)
        sink.write(rows)
        file = sink.close()
        assert file is not None, "only called with rows"
        self._written.append(file.path)
        if self._cache is not None:
            self._cache.put(self._table.id, path, size=file.bytes, content=rows)
        return {
            "kind": "run",
            "state": self._state,
            "bucket": self._bucket,
            "path": path,
            "rows": file.rows,
            "size": file.bytes,
        }
