"""Deletion vectors: which rows of an immutable data file are dead, in Delta's format.

A vector is a 64-bit roaring bitmap of physical row numbers. A task writes its vectors into one
file: a file per vector would cost a sync each, and inline vectors make checkpoints 25 times as
large:

    byte 1 | "CBPVECT1", UUID | { int32 size | magic, bitmap (size bytes) | uint32 CRC-32 } ...

The UUID is the one in the file's name, so that a file under a wrong name is detected. Readers
ignore it, since a descriptor says where its vector begins. Files of earlier versions have no UUID.
Size and checksum are big-endian, magic and bitmap little-endian. The file is
`<folder>/deletion_vector_<uuid>.bin`. If the folder begins with `_`, no foreign
VACUUM touches the file before it is published.

Guaranteed: the bytes are durable once `VectorsFile.write` returns; `read_vector` never returns a
damaged vector. Absent on purpose: absolute paths (storage type `p`).

With many files, opening and checking vectors costs more than reading the rows, so `VectorCache`
keeps those that this process read or wrote lately. A vector never changes, and its name is made
from its content. Damage to a cached vector's file is only noticed at the next read from the disk.

Source: Delta protocol, "Deletion Vectors" and "Deletion Vector File Storage Format".
"""

from __future__ import annotations

import struct
import threading
import uuid
import zlib
from array import array
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from cbp.engine.delta.actions import DeletionVector
from cbp.engine.storage.files import Files, LocalFiles
from cbp.errors import FileDamagedError, FileLostError, InvariantError, NotFoundError

Key = TypeVar("Key", bound=Hashable)

_MAGIC = struct.pack("<i", 1681511377)
_VERSION = b"\x01"
_OWN = b"CBPVECT1"
_HEAD_BYTES = len(_VERSION) + len(_OWN) + 16
_NEAR_BYTES = 64 << 10
"""If a vector ends before this offset, one read gets it together with the file's head."""
_FILE_BYTES_MAX = 2**31 - 1
_UUID_CHARS = 20
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_Z85_DIGITS = {char: digit for digit, char in enumerate(_Z85)}


@dataclass(frozen=True, slots=True)
class VectorsFile:
    """A file of vectors that is not written yet; its path is relative to the table."""

    path: str
    data: bytes

    def write(self, table_path: str, files: Files) -> None:
        """Write the file durably."""
        files.write_durable(f"{table_path}/{self.path}", self.data, what="vectors_file")


def pack_vectors(
    relative_dir: str, name_uuid: uuid.UUID, vectors: Mapping[Key, BitMap64]
) -> tuple[dict[Key, DeletionVector], VectorsFile | None]:
    """Return the descriptors of vectors, and the file with the vectors, if any; pure.

    Args:
        relative_dir: Folder below the table's, such as `_vectors`; `""` for the table itself.
        name_uuid: Names the file; must never be used for other vectors.
        vectors: Dead rows by any key; none may be empty, nor all together exceed 2 GB
            (`InvariantError`).
    """
    if not vectors:
        return {}, None
    parts, at = [_VERSION, _OWN, name_uuid.bytes], _HEAD_BYTES
    packed: dict[Key, DeletionVector] = {}
    path = relative_dir + z85_encode(name_uuid.bytes)
    for key, bitmap in vectors.items():
        if not bitmap:
            message = "a deletion vector without rows cannot be written"
            raise InvariantError(message)
        data = _MAGIC + bytes(bitmap.serialize())
        packed[key] = DeletionVector("u", path, at, len(data), len(bitmap))
        parts += [struct.pack(">i", len(data)), data, struct.pack(">I", zlib.crc32(data))]
        at += len(data) + 8
    if at > _FILE_BYTES_MAX:
        message = f"a file of deletion vectors has {at} bytes; the limit is {_FILE_BYTES_MAX}"
        raise InvariantError(message, bytes=at)
    return packed, VectorsFile(_file(relative_dir, name_uuid), b"".join(parts))


def read_vector(table_path: str, vector: DeletionVector, *, files: Files | None = None) -> BitMap64:
    """Return the dead rows that a descriptor names; `FileDamagedError`, `FileLostError`."""
    if vector.storage_type == "i":
        data = z85_decode(vector.path_or_inline)[: vector.size_bytes]
    else:
        data = _read_stored(table_path, vector, files or LocalFiles())
    if data[:4] != _MAGIC:
        raise _damaged(table_path, vector, "it does not begin like a roaring bitmap array")
    try:
        bitmap = BitMap64.deserialize(data[4:])
    except ValueError as exc:
        raise _damaged(table_path, vector, str(exc)) from exc
    if len(bitmap) != vector.cardinality:
        why = f"it has {len(bitmap)} rows instead of {vector.cardinality}"
        raise _damaged(table_path, vector, why)
    return bitmap


def bitmap_of(rows: npt.NDArray[np.int64]) -> BitMap64:
    """Return a bitmap of these rows, added as one block: 20 times faster than one by one."""
    return BitMap64(array("Q", np.ascontiguousarray(rows, np.int64).tobytes()))


def rows_of(bitmap: BitMap64) -> npt.NDArray[np.int64]:
    """Return the rows of a bitmap, ascending."""
    return np.frombuffer(bitmap.to_array(), np.int64)


def live_in(dead: BitMap64, first: int, last: int) -> npt.NDArray[np.int64]:
    """Return the rows from `first` to `last` - 1 that are not dead, ascending."""
    if not dead:
        return np.arange(first, last)
    rows = BitMap64()
    rows.add_range(first, last)
    return rows_of(rows - dead)


def vector_path(vector: DeletionVector) -> str | None:
    """Return a stored vector's file, relative to the table; None if the vector is inline."""
    if vector.storage_type == "i":
        return None
    if vector.storage_type != "u":
        raise _damaged("", vector, f"storage type {vector.storage_type!r} is not supported")
    folder = vector.path_or_inline[:-_UUID_CHARS]
    return _file(folder, uuid.UUID(bytes=z85_decode(vector.path_or_inline[-_UUID_CHARS:])))


def z85_encode(data: bytes) -> str:
    """Return the Z85 text (ZeroMQ RFC 32) of `data`, padded with zero bytes to a multiple of 4."""
    data += b"\0" * (-len(data) % 4)
    values = (value for (value,) in struct.iter_unpack(">I", data))
    powers = (52_200_625, 614_125, 7_225, 85, 1)
    return "".join(_Z85[value // power % 85] for value in values for power in powers)


def z85_decode(text: str) -> bytes:
    """Return the bytes of a Z85 text, padding included."""
    try:
        digits = [_Z85_DIGITS[char] for char in text]
        words = []
        for at in range(0, len(digits), 5):
            value = 0
            for digit in digits[at : at + 5]:
                value = value * 85 + digit
            words.append(struct.pack(">I", value))
    except (KeyError, struct.error) as exc:
        message = f"{text[:40]!r} is not Z85 text"
        raise InvariantError(message) from exc
    if len(digits) % 5:
        message = f"Z85 text has {len(digits)} characters, not a multiple of 5"
        raise InvariantError(message)
    return b"".join(words)


def _file(folder: str, name: uuid.UUID) -> str:
    return f"{folder}/deletion_vector_{name}.bin" if folder else f"deletion_vector_{name}.bin"


def _read_stored(table_path: str, vector: DeletionVector, files: Files) -> bytes:
    path = f"{table_path}/{vector_path(vector)}"
    at, size = vector.offset or 0, vector.size_bytes + 8
    try:
        if at <= _NEAR_BYTES:
            head = files.read_range(path, 0, at + size)
            block = head[at:]
        else:
            head = files.read_range(path, 0, _HEAD_BYTES)
            block = files.read_range(path, at, size)
    except NotFoundError as exc:
        raise FileLostError(path, "it lists deleted rows of the table") from exc
    own = _OWN + z85_decode(vector.path_or_inline[-_UUID_CHARS:])
    # In files of earlier versions and of other writers, the first vector begins here.
    if at >= _HEAD_BYTES and head[5:9] != _MAGIC and head[1:_HEAD_BYTES] != own:
        raise _damaged(table_path, vector, "its file was written under another name")
    if len(block) != size:
        raise _damaged(table_path, vector, f"only {len(block)} of its {size} bytes exist")
    if struct.unpack(">i", block[:4])[0] != vector.size_bytes:
        raise _damaged(table_path, vector, "its length differs from that in the table's log")
    data = block[4:-4]
    if struct.unpack(">I", block[-4:])[0] != zlib.crc32(data):
        raise _damaged(table_path, vector, "its checksum is wrong")
    return data


def _damaged(table_path: str, vector: DeletionVector, why: str) -> FileDamagedError:
    place = vector.path_or_inline[-40:]
    if vector.storage_type == "u":
        place = vector_path(vector) or place
    why = f"the deletion vector at byte {vector.offset or 0} is wrong ({why})"
    return FileDamagedError(f"{table_path}/{place}", why)


VECTORS_BYTES_MAX = 32 << 20
"""Serialised bytes of the cached vectors; enough for 256 files of a million rows each."""

OVERHEAD = 512
"""Bytes of the objects around a vector: most of its size in memory if it has only a few rows."""

_Key = tuple[str, DeletionVector]


class VectorCache:
    """Cache of vectors; see the module header. Several threads may use it."""

    def __init__(self, *, bytes_max: int = VECTORS_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._vectors: OrderedDict[_Key, BitMap64] = OrderedDict()
        self.held_bytes = 0
        self._lock = threading.Lock()

    def read(self, table: str, vector: DeletionVector, *, files: Files | None = None) -> BitMap64:
        """Return the dead rows that a descriptor names; the result must not be modified."""
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
