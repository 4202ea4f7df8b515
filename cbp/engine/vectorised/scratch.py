"""Tables that a task writes down for other processes of the same task, on one machine.

The file holds Arrow streams, one behind the other, and is mapped by its readers: nothing is
copied, and memory is that of the page cache.

Guaranteed: a file that has its name is whole. Not guaranteed: that there is one (no space,
another machine, a map that is refused); whoever finds none makes its tables again.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

__all__ = ["ScratchFile", "read_scratch"]


class ScratchFile:
    """Takes tables one by one; `finish` gives the file its name. Without space there is none.

    Args:
        path: The name; nobody else writes it with other tables.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._temporary = path.with_name(f"{uuid.uuid4().hex}.tmp")
        self._sink: pa.OSFile | None = None
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._sink = pa.OSFile(str(self._temporary), "wb")

    def append(self, table: pa.Table) -> None:
        """Write a table behind the others."""
        if self._sink is None:
            return
        try:
            with pa.ipc.new_stream(self._sink, table.schema) as writer:
                writer.write_table(table)
        except OSError:
            self.close()

    def finish(self) -> None:
        """Let readers find the file."""
        if self._sink is not None:
            with contextlib.suppress(OSError):
                self._sink.close()
                self._temporary.rename(self._path)

    def close(self) -> None:
        """Leave nothing behind of a file that was not finished."""
        if self._sink is not None:
            with contextlib.suppress(OSError):
                self._sink.close()
            self._sink = None
        with contextlib.suppress(OSError):
            self._temporary.unlink()


def read_scratch(path: Path) -> Iterator[pa.Table] | None:
    """Return the tables of a finished file; `None` if there is none, or none that can be mapped."""
    try:
        source = pa.memory_map(str(path))
    except OSError:
        return None
    return _tables(source)


def _tables(source: pa.MemoryMappedFile) -> Iterator[pa.Table]:
    while source.tell() < source.size():
        yield pa.ipc.open_stream(source).read_all()
