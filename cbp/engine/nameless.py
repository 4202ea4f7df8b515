"""Files without a name, for what one task puts aside: whoever is killed leaves none behind.

`BatchFile` holds Arrow batches that are written once and then read; `BlockFile` lists of Python
values. Both lie in the temporary folder (`TMPDIR`), and vanish when nobody reads them any more.

Guaranteed: a full disk, or quota, is a `DiskFullError`. Where a process's address space is
bounded (`spark.executor.pyspark.memory`), a reader of single batches needs no map; all of them
at once are read into memory where a map is refused, and if they do not fit, the error names the
setting.
Nothing is synced, and nothing outlives the process.
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

__all__ = ["BatchFile", "BlockFile", "map_is_refused"]


class BatchFile:
    """Batches of one schema, in the order in which they are written; its owner closes it.

    What was read of it stays, as does a reader.

    Raises:
        DiskFullError: As every method here that writes.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._bytes = 0
        self._file = _nameless()
        with _room():
            self._writer = pa.ipc.new_file(pa.PythonFile(self._file, "w"), schema)

    def write(self, table: pa.Table, *, rows_max: int | None = None) -> int:
        """Append rows, in batches of at most `rows_max`; return how many batches those are."""
        batches = table.to_batches(max_chunksize=rows_max)
        self._bytes += table.nbytes
        with _room():
            for batch in batches:
                self._writer.write_batch(batch)
        return len(batches)

    def reader(self) -> pa.ipc.RecordBatchFileReader:
        """End writing, and return who reads the batches one by one, through the file."""
        return pa.ipc.open_file(pa.OSFile(self._finished(), "rb"))

    def whole(self) -> pa.Table:
        """End writing, and return all batches: a view of a map, if there may be one.

        Raises:
            AddressSpaceError: If there may be none, and memory does not hold them either.
        """
        try:
            try:
                source = pa.memory_map(self._finished())
            except OSError as exc:
                if not map_is_refused(exc):
                    raise
                return self.reader().read_all()
            return pa.ipc.open_file(source).read_all()
        except MemoryError as exc:
            raise AddressSpaceError(self._bytes) from exc

    def _finished(self) -> str:
        """End writing, and return by what name this process opens the file again."""
        with _room():
            self._writer.close()
            self._file.flush()
        return f"/dev/fd/{self._file.fileno()}"

    def close(self) -> None:
        """Let go of the file; readers and maps of it stay valid."""
        with contextlib.suppress(OSError):  # what it did not take in, nobody reads
            self._file.close()


class BlockFile:
    """Lists of values, each found again by the place that `add` gave."""

    def __init__(self) -> None:
        self._file = _nameless()

    def add(self, block: list[Any]) -> int:
        """Append a block and return its place.

        Raises:
            DiskFullError: If it does not fit.
        """
        with _room():
            place = int(self._file.seek(0, os.SEEK_END))
            pickle.dump(block, self._file, pickle.HIGHEST_PROTOCOL)
        return place

    def get(self, place: int) -> list[Any]:
        """Return the block at a place.

        Raises:
            DiskFullError: If blocks before it did not fit.
        """
        with _room():
            self._file.seek(place)
            found: list[Any] = pickle.load(self._file)
        return found

    def close(self) -> None:
        """Let the file vanish."""
        with contextlib.suppress(OSError):  # what it did not take in, nobody reads
            self._file.close()


def map_is_refused(exc: OSError) -> bool:
    """Tell a refused map from another failure; Arrow does not always keep the number."""
    return exc.errno == errno.ENOMEM or "Cannot allocate memory" in str(exc)


def _nameless() -> Any:
    with _room():
        return tempfile.TemporaryFile(prefix="cbp-")


@contextlib.contextmanager
def _room() -> Iterator[None]:
    """Turn a full disk into its error."""
    try:
        yield
    except OSError as exc:
        if DiskFullError.is_told_by(exc):
            raise DiskFullError(tempfile.gettempdir()) from exc
        raise
