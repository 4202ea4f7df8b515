"""Size limits of run files of state, and how much of a file is read at a time; pure.

A file is read, copied and merged as a whole, so its size bounds the memory of a task: about
three times `FILE_BYTES_MAX`. A file above half of that limit is *full*: merging does not improve
it, so compaction leaves it alone until much of it is dead.

Bytes are counted as Arrow holds them. A table is cut before a string column reaches 2 GB,
the limit of Arrow's `string`. A single record is never cut.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = [
    "FILE_BYTES_MAX",
    "FILE_ROWS_MAX",
    "Cutter",
    "bytes_unpacked",
    "halves",
    "is_full",
    "rows_at_a_time",
]

FILE_ROWS_MAX = 4_000_000
FILE_BYTES_MAX = 128 << 20
READ_ROWS_MAX = 16_384
READ_BYTES_MAX = 32 << 20
"""For records that become Python objects, which take several times as much memory."""

_FULL_BYTES = 64 << 20
"""In Parquet; a larger file is full. Arrow needs two to four times as much."""


class Cutter:
    """Cuts a stream of rows into pieces, each for one file; keeps the order of the rows."""

    def __init__(self) -> None:
        self._held: list[pa.Table] = []
        self._rows = self._bytes = 0

    def add(self, table: pa.Table) -> Iterator[pa.Table]:
        """Take rows; yield the pieces that are full."""
        for part in halves(table, rows_max=FILE_ROWS_MAX, bytes_max=FILE_BYTES_MAX):
            if self._held and not _fits(self._rows + part.num_rows, self._bytes + part.nbytes):
                yield from self.rest()
            self._held.append(part)
            self._rows += part.num_rows
            self._bytes += part.nbytes

    def rest(self) -> Iterator[pa.Table]:
        """Yield the remaining rows, if there are any."""
        held, self._held = self._held, []
        self._rows = self._bytes = 0
        if held:
            yield pa.concat_tables(held)


def halves(table: pa.Table, *, rows_max: int, bytes_max: int) -> Iterator[pa.Table]:
    """Yield a table in pieces that fit the limits, halved as often as needed; in order.

    The pieces are views. Each has at least one row. The limit is compared with the actual bytes
    of each piece, not with an average: a group can have many wide rows next to each other.
    """
    rows = table.num_rows
    if rows > 1 and (rows > rows_max or table.nbytes > bytes_max):
        for half in (table.slice(0, rows // 2), table.slice(rows // 2)):
            yield from halves(half, rows_max=rows_max, bytes_max=bytes_max)
    elif rows:
        yield table


def is_full(*, rows: int, size: int = 0, memory: int = 0) -> bool:
    """Return whether a file is so large that merging does not improve it.

    Args:
        size: Its size in Parquet, in bytes.
        memory: Its size in Arrow, in bytes, if known.
    """
    return rows > FILE_ROWS_MAX // 2 or size > _FULL_BYTES or memory > FILE_BYTES_MAX // 2


def bytes_unpacked(meta: pq.FileMetaData) -> int:
    """Return how many bytes the pages of a file have before compression."""
    return sum(meta.row_group(group).total_byte_size for group in range(meta.num_row_groups))


def rows_at_a_time(*, rows: int, memory: int) -> int:
    """Return how many records to read at a time from a file of `rows` records, `memory` bytes."""
    return max(1, min(READ_ROWS_MAX, READ_BYTES_MAX * rows // max(1, memory)))


def _fits(rows: int, size: int) -> bool:
    return rows <= FILE_ROWS_MAX and size <= FILE_BYTES_MAX
