"""Cache of the deletion vectors that this process read or wrote lately.

A file that loses some rows in every epoch gets a new vector in every epoch, made from the
previous one. With many files, opening and checking vectors costs more than the rows themselves.

Guaranteed: `read` returns what `read_vector` returns. A vector never changes, and its
name is made from its content. The cache is bounded by bytes and evicts the least recently used.
It keeps no file open: a vector that was collected costs memory for a while, and no disk.
Not guaranteed: that a cached vector is still on the disk, or intact there. Its next real read
finds that out.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from pyroaring import BitMap64

from cbp.engine.delta.actions import DeletionVector
from cbp.engine.delta.deletion_vectors import read_vector
from cbp.engine.storage.files import Files

VECTORS_BYTES_MAX = 32 << 20
"""Serialised bytes of the cached vectors; enough for 256 files of a million rows each."""

OVERHEAD = 512
"""Bytes of the objects around a vector; most of the size for a file that lost a few rows."""

_Key = tuple[str, DeletionVector]


class VectorCache:
    """The cache; see the module header. Several threads may use it.

    Attributes:
        held_bytes: Size of the cached vectors; at most `bytes_max`.
    """

    def __init__(self, *, bytes_max: int = VECTORS_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._vectors: OrderedDict[_Key, BitMap64] = OrderedDict()
        self.held_bytes = 0
        self._lock = threading.Lock()

    def read(self, table: str, vector: DeletionVector, *, files: Files | None = None) -> BitMap64:
        """Return the dead rows that a descriptor names; the result must not be modified.

        Raises:
            FileDamagedError: As in `read_vector`.
            FileLostError: The file is gone, and the vector is not cached.
        """
        with self._lock:
            bits_cached = self._vectors.get((table, vector))
            if bits_cached is not None:
                self._vectors.move_to_end((table, vector))
                return bits_cached
        bitmap = read_vector(table, vector, files=files)
        self.put(table, vector, bitmap)
        return bitmap

    def put(self, table: str, vector: DeletionVector, bitmap: BitMap64) -> None:
        """Cache a vector that was just read or written; `bitmap` must not change afterwards."""
        with self._lock:
            if (table, vector) in self._vectors or _bytes(vector) > self._bytes_max:
                return
            self._vectors[table, vector] = bitmap
            self.held_bytes += _bytes(vector)
            while self.held_bytes > self._bytes_max:
                (_, gone), _ = self._vectors.popitem(last=False)
                self.held_bytes -= _bytes(gone)


def _bytes(vector: DeletionVector) -> int:
    return vector.size_bytes + OVERHEAD
