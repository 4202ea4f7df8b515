"""Size limits of run files of state, and how much of a file is read at a time; pure.

A file is read, copied and merged as a whole, so its size bounds the memory of a task: about
three times `EngineLimits.file_bytes`. A file above half of that limit is *full*: merging does not
improve it, so compaction leaves it alone until much of it is dead. Bytes are those in Arrow's
memory. A table is cut long before a string column reaches 2 GB, the limit of Arrow's `string`; a
single record is never cut.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from cbp.engine.storage.engine_limits import EngineLimits

_FULL_BYTES = 64 << 20
"""In Parquet; a larger file is full. Arrow needs two to four times as much."""


class FileCutter:
    """Cuts a stream of rows into pieces, each for one file; keeps the order of the rows."""

    def __init__(self, limits: EngineLimits) -> None:
        self._rows_max, self._bytes_max = limits.file_rows, limits.file_bytes
        self._held: list[pa.Table] = []
        self._rows = self._bytes = 0

    def add(self, table: pa.Table) -> Iterator[pa.Table]:
        """Add rows; yield the pieces that are full."""
        for part in halves(table, rows_max=self._rows_max, bytes_max=self._bytes_max):
            rows, size = self._rows + part.num_rows, self._bytes + part.nbytes
            if self._held and (rows > self._rows_max or size > self._bytes_max):
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


def is_full(limits: EngineLimits, *, rows: int, size: int = 0, memory: int = 0) -> bool:
    """Return whether a file (bytes in Parquet, and in Arrow if known) is too large to merge."""
    too_wide = size > _FULL_BYTES or memory > limits.file_bytes // 2
    return rows > limits.file_rows // 2 or too_wide


def bytes_unpacked(meta: pq.FileMetaData) -> int:
    """Return how many bytes the pages of a file have before compression."""
    return sum(meta.row_group(group).total_byte_size for group in range(meta.num_row_groups))


def rows_at_a_time(limits: EngineLimits, *, rows: int, memory: int) -> int:
    """Return how many records to read at a time from a file of `rows` records, `memory` bytes."""
    return max(1, min(limits.read_rows, limits.read_bytes * rows // max(1, memory)))
