"""How large a run file of state may become, and how much of a file is read at a time; pure.

A file is read, copied and merged as a whole, so its size bounds the memory of a task: some
three times `FILE_BYTES_MAX`. A file above half of that is *full*: merging does not make it
better, so compaction leaves it alone until much of it is dead.

Bytes are counted as Arrow holds them; a string column of any size is cut before a piece
reaches the 2 GB at which Arrow's `string` ends. A single record is never cut.
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
"""Of records that become Python objects: they take some times as much there."""

_FULL_BYTES = 64 << 20
"""Of Parquet, above which a file is full; Arrow needs two to four times as much."""


class Cutter:
    """Cuts a stream of rows into pieces for one file each; keeps their order."""

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
        """Yield what is left, if anything is."""
        held, self._held = self._held, []
        self._rows = self._bytes = 0
        if held:
            yield pa.concat_tables(held)


def halves(table: pa.Table, *, rows_max: int, bytes_max: int) -> Iterator[pa.Table]:
    """Yield views of a table that fit, in order: itself, or those of its halves; a row at least.

    By the bytes that are there, since wide rows stand together as soon as one group has them.
    """
    rows = table.num_rows
    if rows > 1 and (rows > rows_max or table.nbytes > bytes_max):
        for half in (table.slice(0, rows // 2), table.slice(rows // 2)):
            yield from halves(half, rows_max=rows_max, bytes_max=bytes_max)
    elif rows:
        yield table


def is_full(*, rows: int, size: int = 0, memory: int = 0) -> bool:
    """Tell whether merging a file makes it no better.

    Args:
        size: Its bytes of Parquet.
        memory: Its bytes in Arrow, where they are known.
    """
    return rows > FILE_ROWS_MAX // 2 or size > _FULL_BYTES or memory > FILE_BYTES_MAX // 2


def bytes_unpacked(meta: pq.FileMetaData) -> int:
    """Return how many bytes the pages of a file have before compression."""
    return sum(meta.row_group(group).total_byte_size for group in range(meta.num_row_groups))


def rows_at_a_time(*, rows: int, memory: int) -> int:
    """Return how many records to read at a time, where so many of them take so many bytes."""
    return max(1, min(READ_ROWS_MAX, READ_BYTES_MAX * rows // max(1, memory)))


def _fits(rows: int, size: int) -> bool:
    return rows <= FILE_ROWS_MAX and size <= FILE_BYTES_MAX
