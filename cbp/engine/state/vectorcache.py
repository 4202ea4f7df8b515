"""Deletion vectors that this process has read or written lately, so that they are not read again.

A file that loses some rows in every epoch gets a new vector in every epoch, made of the one
before; with many files, opening and checking those costs more than the rows themselves.

Guaranteed: what `read` returns is what `read_vector` returns; a vector never changes, and its
name is made of its content. Bounded by bytes, the least recently used go first; nothing here
keeps a file open, so a vector that was collected costs memory for a while, and no disk.
Not guaranteed: that a vector is still on the disk, or whole there; whoever reads it first
finds that out.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from pyroaring import BitMap64

from cbp.engine.delta.actions import DeletionVector
from cbp.engine.files import Files
from cbp.engine.state.vectors import read_vector

__all__ = ["VECTORS_BYTES_MAX", "VectorCache"]

VECTORS_BYTES_MAX = 32 << 20
"""Serialised bytes of the vectors that are kept; those of 256 files of a million rows each."""

OVERHEAD = 512
"""Bytes of objects around one vector; most of it, for a file that lost a few rows."""

_Key = tuple[str, DeletionVector]


class VectorCache:
    """See the module header; safe for several threads.

    Attributes:
        held_bytes: Of what is kept; at most `bytes_max`.
    """

    def __init__(self, *, bytes_max: int = VECTORS_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._kept: OrderedDict[_Key, BitMap64] = OrderedDict()
        self.held_bytes = 0
        self._lock = threading.Lock()

    def read(self, table: str, vector: DeletionVector, *, files: Files | None = None) -> BitMap64:
        """Return the dead rows that a descriptor names; not to be modified.

        Args:
            table: Folder of the table.
            files: Where it lies; local files unless told.

        Raises:
            InvariantError: See `read_vector`.
            NotFoundError: If the file is gone, and the vector is not kept here.
        """
        with self._lock:
            found = self._kept.get((table, vector))
            if found is not None:
                self._kept.move_to_end((table, vector))
                return found
        bitmap = read_vector(table, vector, files=files)
        self.put(table, vector, bitmap)
        return bitmap

    def put(self, table: str, vector: DeletionVector, bitmap: BitMap64) -> None:
        """Keep a vector that was just read or written; `bitmap` is not modified any more."""
        with self._lock:
            if (table, vector) in self._kept or _bytes(vector) > self._bytes_max:
                return
            self._kept[table, vector] = bitmap
            self.held_bytes += _bytes(vector)
            while self.held_bytes > self._bytes_max:
                (_, gone), _ = self._kept.popitem(last=False)
                self.held_bytes -= _bytes(gone)


def _bytes(vector: DeletionVector) -> int:
    return vector.size_bytes + OVERHEAD
