"""Rows that a run deleted from immutable data files, until a publication makes them vectors.

A deletion vector lists all dead rows of a file, up to one bit per row; a run adds a few.
So a run records only its own rows: inside its intention while they are small, else in one
file per task, named by the run:

    <table>/_vectors/<epoch>-<task>-<run>-<attempt>.deletes      bitmap | bitmap | ...

Rows are physical rows, as in a vector, and a row is deleted once: the sets of one file over
several runs are disjoint, so that their sizes add up.

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

from cbp.engine.files import Files, LocalFiles
from cbp.errors import InvariantError

__all__ = ["INLINE_BYTES_MAX", "Deletes", "read_deletes", "write_deletes"]

INLINE_BYTES_MAX = 256 << 10
"""Most bytes of bitmaps that the tasks of one run put into its intention together."""


@dataclass(frozen=True, slots=True)
class Deletes:
    """Some rows of one data file, as a 64-bit roaring bitmap; here or in a file.

    Attributes:
        rows: How many they are.
        inline: The bitmap in base64; empty when it is stored.
        path: Of the file of bitmaps, relative to the table; empty when inline.
        offset, size, crc: Where the bitmap lies in that file, and its CRC-32.
    """

    rows: int
    inline: str = ""
    path: str = ""
    offset: int = 0
    size: int = 0
    crc: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; `from_json` is the inverse."""
        if self.inline:
            return {"rows": self.rows, "inline": self.inline}
        return {
            "rows": self.rows,
            "path": self.path,
            "offset": self.offset,
            "size": self.size,
            "crc": self.crc,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Deletes:
        """Read what `to_json` wrote."""
        return cls(**value)


def write_deletes(
    table: str,
    name: str,
    bitmaps: Mapping[str, BitMap64],
    *,
    inline_bytes_max: int,
    files: Files | None = None,
) -> dict[str, Deletes]:
    """Describe deleted rows; those that together are too large go into one durable file.

    Args:
        table: Folder of the table.
        name: Of the file, unique to run, attempt and task.
        bitmaps: Data file to rows; none of them empty.
        inline_bytes_max: Most bytes of all bitmaps that need no file.
        files: Where to write; local files unless told.

    Returns:
        The description by data file; empty, and no file, for none.
    """
    data = {}
    for path, bitmap in bitmaps.items():
        if not bitmap:
            message = f"{path}: an empty set of deleted rows is never written"
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
    (files or LocalFiles()).write_durable(
        f"{table}/{file}", b"".join(data.values()), what="vectors_file"
    )
    return written


def read_deletes(table: str, deletes: Deletes, *, files: Files | None = None) -> BitMap64:
    """Return the rows.

    Raises:
        InvariantError: If they are damaged.
        NotFoundError: If their file is gone.
    """
    try:
        if deletes.inline:
            data = base64.b64decode(deletes.inline, validate=True)
        else:
            port = files or LocalFiles()
            data = port.read_range(f"{table}/{deletes.path}", deletes.offset, deletes.size)
            if len(data) != deletes.size or zlib.crc32(data) != deletes.crc:
                raise _damaged(deletes, "its checksum is wrong")
        bitmap = BitMap64.deserialize(data)
    except (ValueError, binascii.Error) as exc:
        raise _damaged(deletes, str(exc)) from exc
    if len(bitmap) != deletes.rows:
        raise _damaged(deletes, f"it has {len(bitmap)} rows")
    return bitmap


def _damaged(deletes: Deletes, why: str) -> InvariantError:
    where = f"{deletes.path} at {deletes.offset}" if deletes.path else "an intention"
    message = f"the set of {deletes.rows} deleted rows in {where} is damaged: {why}"
    return InvariantError(message, deletes=deletes.to_json())
