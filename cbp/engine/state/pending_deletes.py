"""Rows that runs deleted but that no published deletion vector contains yet.

A deletion vector lists all dead rows of a file, up to one bit per row; a run adds a few.
A run therefore records only its own rows: inside its intention if they are small, else in one
file per task, named by the run:

    <table>/_vectors/<epoch>-<task>-<run>-<attempt>.deletes      bitmap | bitmap | ...

Rows are physical rows. A row is deleted only once: the sets of one file over several runs are
disjoint, so their sizes add up.

Guaranteed: `read_deletes` returns what was deleted, or raises; never a part of it.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyroaring import BitMap64

from cbp.engine.storage.files import Files, LocalFiles
from cbp.errors import FileDamagedError, FileLostError, InvariantError, NotFoundError


@dataclass(frozen=True, slots=True)
class Deletes:
    """Some rows of one data file as a 64-bit roaring bitmap, inline (base64) or in a file.

    Attributes:
        path: The file of bitmaps, relative to the table; empty if inline.
        offset, size, crc: The bitmap's place in that file, and its CRC-32.
    """

    rows: int
    inline: str = ""
    path: str = ""
    offset: int = 0
    size: int = 0
    crc: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; `from_json` is the inverse."""
        names = ("rows", "inline") if self.inline else ("rows", "path", "offset", "size", "crc")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Deletes:
        """Read the JSON values that `to_json` returns."""
        return cls(**value)


def write_deletes(
    table: str,
    name: str,
    bitmaps: Mapping[str, BitMap64],
    *,
    inline_bytes_max: int,
    files: Files | None = None,
) -> dict[str, Deletes]:
    """Describe deleted rows by data file; write large ones to one durable file of this name.

    The name is unique to run, attempt and task.

    Args:
        bitmaps: Data file to rows; none of them empty.
        inline_bytes_max: Maximum number of bytes of all bitmaps that need no file.
    """
    data = {}
    for path, bitmap in bitmaps.items():
        if not bitmap:
            message = f"{path}: an empty set of deleted rows cannot be written"
            raise InvariantError(message, path=path)
        bitmap.run_optimize()
        data[path] = bytes(bitmap.serialize())
    if sum(map(len, data.values())) <= inline_bytes_max:
        return {
            path: Deletes(len(bitmaps[path]), base64.b64encode(block).decode())
            for path, block in data.items()
        }
    file, at = f"_vectors/{name}.deletes", 0
    written: dict[str, Deletes] = {}
    for path, block in data.items():
        written[path] = Deletes(len(bitmaps[path]), "", file, at, len(block), zlib.crc32(block))
        at += len(block)
    content, port = b"".join(data.values()), files or LocalFiles()
    port.write_durable(f"{table}/{file}", content, what="vectors_file")
    return written


def read_deletes(table: str, deletes: Deletes, *, files: Files | None = None) -> BitMap64:
    """Return the deleted rows; `FileDamagedError` or `FileLostError` if they cannot be read."""
    try:
        if deletes.inline:
            data = base64.b64decode(deletes.inline, validate=True)
        else:
            port = files or LocalFiles()
            path = f"{table}/{deletes.path}"
            try:
                data = port.read_range(path, deletes.offset, deletes.size)
            except NotFoundError as exc:
                raise FileLostError(path, "it lists deleted rows of the table") from exc
            if len(data) != deletes.size or zlib.crc32(data) != deletes.crc:
                raise _damaged(table, deletes, "its checksum is wrong")
        bitmap = BitMap64.deserialize(data)
    except (ValueError, binascii.Error) as exc:
        raise _damaged(table, deletes, str(exc)) from exc
    if len(bitmap) != deletes.rows:
        why = f"it has {len(bitmap)} rows instead of {deletes.rows}"
        raise _damaged(table, deletes, why)
    return bitmap


def _damaged(table: str, deletes: Deletes, why: str) -> FileDamagedError:
    where = f"{table}/{deletes.path}" if deletes.path else f"an intention of {table}"
    what = f"the set of deleted rows at byte {deletes.offset} is wrong ({why})"
    return FileDamagedError(where, what)
