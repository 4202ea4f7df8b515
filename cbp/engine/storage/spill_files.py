"""Temporary files without a name, in which a task spills; a killed process leaves none behind.

They are in the temporary folder (`TMPDIR`), are not synced, and vanish with their last reader.

Guaranteed: a full disk or quota raises `DiskFullError`. Reading single batches needs no memory map,
so it works where the address space of a process is bounded (`spark.executor.pyspark.memory`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import pickle
import tempfile
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from cbp.errors import AddressSpaceError, DiskFullError


class BatchFile:
    """Batches of one schema in the order of writing; what was read stays valid after `close`."""

    def __init__(self, schema: pa.Schema) -> None:
        self._bytes = 0
        self._file = _nameless()
        with _room():
            self._writer = pa.ipc.new_file(pa.PythonFile(self._file, "w"), schema)

    def write(self, table: pa.Table, *, rows_max: int | None = None) -> int:
        """Append rows, in batches of at most `rows_max`; return the number of batches."""
        batches = table.to_batches(max_chunksize=rows_max)
        self._bytes += table.nbytes
        with _room():
            for batch in batches:
                self._writer.write_batch(batch)
        return len(batches)

    def reader(self) -> pa.ipc.RecordBatchFileReader:
        """End writing, and return a reader of single batches that reads the file."""
        return pa.ipc.open_file(pa.OSFile(self._finished(), "rb"))

    def whole(self) -> pa.Table:
        """End writing, and return all batches: a view of a memory map, if maps are allowed.

        `AddressSpaceError` if a map is refused, and the batches do not fit in memory either.
        """
        try:
            try:
                source = pa.memory_map(self._finished())
            except OSError as exc:
                if not map_is_refused(exc):
                    raise
                return self.reader().read_all()
            with source:  # the batches keep the map alive, which needs no open file
                return pa.ipc.open_file(source).read_all()
        except MemoryError as exc:
            raise AddressSpaceError(self._bytes) from exc

    def _finished(self) -> str:
        """End writing, and return a path under which this process can open the file again."""
        with _room():
            self._writer.close()
            self._file.flush()
        return f"/dev/fd/{self._file.fileno()}"

    def close(self) -> None:
        """Close the file; readers and maps of it stay valid."""
        with contextlib.suppress(OSError):  # nothing reads what could not be written
            self._file.close()


class BlockFile:
    """A file of lists of values; `add` returns the place of a list, `get` reads it back."""

    def __init__(self) -> None:
        self._file = _nameless()

    def add(self, block: list[Any]) -> int:
        """Append a block and return its place. Raises `DiskFullError`: the block does not fit."""
        with _room():
            place = int(self._file.seek(0, os.SEEK_END))
            pickle.dump(block, self._file, pickle.HIGHEST_PROTOCOL)
        return place

    def get(self, place: int) -> list[Any]:
        """Return the block at a place. Raises `DiskFullError`: earlier blocks did not fit."""
        with _room():
            self._file.seek(place)
            values: list[Any] = pickle.load(self._file)
        return values

    def close(self) -> None:
        """Close the file; it vanishes."""
        with contextlib.suppress(OSError):  # nothing reads what could not be written
            self._file.close()


def map_is_refused(exc: OSError) -> bool:
    """Return whether an error is a refused map; Arrow does not always keep the error number."""
    return exc.errno == errno.ENOMEM or "Cannot allocate memory" in str(exc)


def _nameless() -> Any:
    with _room():
        return tempfile.TemporaryFile(prefix="cbp-")


@contextlib.contextmanager
def _room() -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        if DiskFullError.is_disk_full(exc):
            raise DiskFullError(tempfile.gettempdir()) from exc
        raise
