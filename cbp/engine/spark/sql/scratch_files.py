"""Scratch files: tables that a task shares with other processes of the same task on one machine.

A file has Arrow streams, one after the other. Readers map it into memory: nothing is copied, and it
uses only the page cache.

Guaranteed: a file that has its final name is complete. Not guaranteed: that there is a file (no
space, another machine, a refused memory map); a reader that finds none computes the tables again.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa


class ScratchFile:
    """Writes tables to a file that others may write too; a full disk raises no error."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._temporary = path.with_name(f"{uuid.uuid4().hex}.tmp")
        self._sink: pa.OSFile | None = None
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._sink = pa.OSFile(str(self._temporary), "wb")

    def append(self, table: pa.Table) -> None:
        """Append a table."""
        if self._sink is None:
            return
        try:
            with pa.ipc.new_stream(self._sink, table.schema) as writer:
                writer.write_table(table)
        except OSError:
            self.close()

    def finish(self) -> None:
        """Rename the file to its final name, so that readers find it."""
        if self._sink is not None:
            with contextlib.suppress(OSError):
                self._sink.close()
                self._temporary.rename(self._path)

    def close(self) -> None:
        """Remove the file if it was not finished."""
        if self._sink is not None:
            with contextlib.suppress(OSError):
                self._sink.close()
            self._sink = None
        with contextlib.suppress(OSError):
            self._temporary.unlink()


def read_scratch(path: Path) -> Iterator[pa.Table] | None:
    """Return the tables of a finished file; `None` if there is none that can be mapped."""
    try:
        source = pa.memory_map(str(path))
    except OSError:
        return None
    return _tables(source)


def _tables(source: pa.MemoryMappedFile) -> Iterator[pa.Table]:
    while source.tell() < source.size():
        yield pa.ipc.open_stream(source).read_all()
