"""The run files of one state that a task writes for one bucket: of bounded size each.

New records come while the author still runs, so a group of any size needs the memory of one
file (`cbp.engine.state.sizes`). Files are numbered in the order of their rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, count
from typing import Any

import pyarrow as pa

from cbp.engine.faults import NO_FAULTS, Faults
from cbp.engine.layout import bucket_file
from cbp.engine.sink import ParquetSink
from cbp.engine.state.bucket import LiveFile, StateTable
from cbp.engine.state.index import IndexCache
from cbp.engine.state.sizes import Cutter

__all__ = ["RunFiles"]

Descriptor = dict[str, Any]


class RunFiles:
    """See the module header.

    Attributes:
        rows: New records, so far.
        done: Descriptors of the files with new records.

    Args:
        run: Of the run and the attempt; in the files' names.
        cache: Where their index copies are kept; `None`: nowhere.
        written: Takes the full paths of files that are not synced yet.
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
        """Write what is left."""
        self.done.extend(map(self._write, self._cutter.rest()))

    def merge(self, tables: Iterable[pa.Table], replaced: Sequence[LiveFile]) -> list[Descriptor]:
        """Write merged records; the first descriptor names the files that they replace."""
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
