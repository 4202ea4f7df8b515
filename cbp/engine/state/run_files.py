"""Writes the run files of one state and bucket for a task, each of bounded size.

New records come while the author's code still runs, so a group of any size needs only the memory
of one file (`cbp.engine.storage.file_sizes`). Files are numbered in the order of their rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, count

import numpy as np
import pyarrow as pa

from cbp.engine.columnar.arrow_types import arrow_schema
from cbp.engine.columnar.key_hash import hash_columns
from cbp.engine.state.bucket_state import StateTable
from cbp.engine.state.index_cache import IndexCache
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.engine.storage.failpoints import Faults
from cbp.engine.storage.file_names import bucket_file
from cbp.engine.storage.file_sizes import FileCutter
from cbp.engine.storage.parquet_writer import ParquetSink
from cbp.model.dataflow.stage import StateSpec, TranslatorSpec
from cbp.model.flow.schema import Schema


@lru_cache(maxsize=1)
def _threads() -> ThreadPoolExecutor:
    """Return the threads of this process that write files beside the task, one file each."""
    return ThreadPoolExecutor(max_workers=2, thread_name_prefix="cbp-write")


def state_file_schema(spec: StateSpec) -> pa.Schema:
    """Return the schema of a state table's data files: the state's columns and the hash."""
    return _with_hash(spec.schema)


@lru_cache(maxsize=1024)
def _with_hash(schema: Schema) -> pa.Schema:
    return arrow_schema(schema).append(pa.field("_hash", pa.int64()))


def state_rows(
    translator: TranslatorSpec, spec: StateSpec, columns: Sequence[pa.Array], hash_mask: int
) -> pa.Table:
    """Return records of a state, given by column, with the hashes of their keys."""
    key = translator.key_of(spec)
    keys = [columns[spec.schema.index(name)] for name in key.names]
    hashes = hash_columns(keys, [field.type for field in key.fields]) & np.int64(hash_mask)
    return pa.Table.from_arrays([*columns, pa.array(hashes)], schema=state_file_schema(spec))


@dataclass(frozen=True, slots=True)
class WrittenRun:
    """A written run file; its path is relative to the table."""

    bucket: int
    path: str
    rows: int
    size: int


class RunFiles:
    """The run files of one state and bucket; without a cache there are no index copies."""

    def __init__(
        self,
        table: StateTable,
        *,
        bucket: int,
        epoch: int,
        run: str,
        cache: IndexCache | None,
        written: list[str],
        limits: EngineLimits,
        faults: Faults,
    ) -> None:
        self._table, self._bucket = table, bucket
        self._epoch, self._run, self._cache = epoch, run, cache
        self._written, self._faults = written, faults
        self._cutter, self._beside_bytes = FileCutter(limits), limits.beside_bytes
        self._numbers = count()
        self.rows = 0
        self.done: list[WrittenRun] = []
        self._made: list[WrittenRun | Future[WrittenRun]] = []

    def add(self, rows: pa.Table) -> None:
        """Add new records (ascending by hash); write them once they fill a file."""
        self.rows += rows.num_rows
        self._made.extend(self._write(self._path(), piece) for piece in self._cutter.add(rows))

    def write_beside(self, rows: pa.Table) -> None:
        """Add new records and write them now; large files in threads, which `close` waits for."""
        self.rows += rows.num_rows
        for piece in chain(self._cutter.add(rows), self._cutter.rest()):
            if piece.nbytes < self._beside_bytes:
                self._made.append(self._write(self._path(), piece))
            else:
                self._made.append(_threads().submit(self._write, self._path(), piece))

    def close(self) -> None:
        """Write the remaining records."""
        self._made.extend(self._write(self._path(), piece) for piece in self._cutter.rest())
        self.done = [one.result() if isinstance(one, Future) else one for one in self._made]

    def merge(self, tables: Iterable[pa.Table]) -> list[WrittenRun]:
        """Write merged records and return the files."""
        pieces = chain(chain.from_iterable(map(self._cutter.add, tables)), self._cutter.rest())
        return [self._write(self._path(), rows) for rows in pieces]

    def _path(self) -> str:
        return bucket_file(self._bucket, self._epoch, self._run, next(self._numbers))

    def _write(self, path: str, rows: pa.Table) -> WrittenRun:
        sink = ParquetSink(f"{self._table.folder}/{path}", rows.schema, faults=self._faults)
        sink.write(rows)
        file = sink.close()
        assert file is not None, "a run file would have no rows"
        self._written.append(file.path)
        if self._cache is not None:
            self._cache.put(self._table.id, path, size=file.bytes, content=rows)
        return WrittenRun(self._bucket, path, file.rows, file.bytes)
