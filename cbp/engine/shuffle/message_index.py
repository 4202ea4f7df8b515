"""Message files of a loopback, sorted by bucket in blocks, with an index of the buckets' rows.

The task that writes messages of a loopback computes the key of each, and sorts one block of
messages at a time by the buckets of the groups that get them:

    block 1:  bucket 0 | bucket 3 | bucket 7      block 2:  bucket 0 | bucket 1 | ...

A task then reads only its part of each block (`cbp.engine.task.message_reader`). The index is in
the file's footer; the increment says whether there is one.

Guaranteed: messages of one bucket stay in the order in which they were emitted, and so do those
of one group. Row groups end where buckets end, unless the buckets are small.
Not guaranteed: that the index is still right later: an author may change the function that
computes the key while messages wait. A reader that uses the index must check every row.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cbp.engine.columnar.arrow_types import Int64s, arrow_type
from cbp.engine.columnar.key_hash import bucket_shift, hash_columns
from cbp.engine.shuffle.routing_keys import key_of
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.errors import AuthorCodeError
from cbp.model.dataflow.stage import InputSpec, TranslatorSpec

_KEY = b"cbp.receivers"


@dataclass(frozen=True, slots=True)
class Receivers:
    """Computes the buckets of the groups that get the messages of one loopback.

    `own` are the first bucket of the writing task, and its last bucket + 1; `(0, 0)` for single
    records, which have no bucket. A file of fewer than `rows_min` messages is not sorted.
    """

    stage: str
    spec: TranslatorSpec
    input: InputSpec
    buckets: int
    own: tuple[int, int]
    rows_min: int
    hash_mask: int

    def of(self, table: pa.Table) -> Int64s:
        """Return the bucket of each message."""
        assert self.spec.key is not None, "only groups get messages by bucket"
        types = [column.type for column in self.spec.key.fields]
        keys = key_of(table, self.spec, self.input, stage=self.stage)
        slots = [key.cast(arrow_type(type_)) for key, type_ in zip(keys, types, strict=True)]
        hashes = hash_columns(slots, types) & np.int64(self.hash_mask)
        shift = np.uint64(bucket_shift(self.buckets))
        return (hashes.view(np.uint64) >> shift).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Block:
    """The buckets in a block, ascending, and the number of rows of each."""

    buckets: tuple[int, ...]
    rows: tuple[int, ...]

    def between(self, first: int, stop: int) -> tuple[int, int]:
        """Return the row ranges of the buckets from `first` up to, not including, `stop`."""
        before = np.searchsorted(self.buckets, [first, stop])
        start, end = (sum(self.rows[:at]) for at in before.tolist())
        return start, end


@dataclass(frozen=True, slots=True)
class MessageIndex:
    """The index in a message file's footer, for the number of buckets that the stage had then.

    `own` are the buckets of the task that wrote the file (`Receivers`); `row_bytes` is the average
    size of a message in memory.
    """

    buckets: int
    own: tuple[int, int]
    row_bytes: int
    blocks: tuple[Block, ...]

    @classmethod
    def of(cls, file: pq.ParquetFile) -> MessageIndex | None:
        """Return the index of a file; `None` if it has none, or one that lacks some rows."""
        text = (file.metadata.metadata or {}).get(_KEY)
        if text is None:
            return None
        content = json.loads(text)
        blocks = tuple(Block(tuple(pairs[::2]), tuple(pairs[1::2])) for pairs in content["blocks"])
        first, stop = content["own"]
        index = cls(content["buckets"], (first, stop), content["row_bytes"], blocks)
        return index if index.rows == file.metadata.num_rows else None

    @property
    def rows(self) -> int:
        """Number of messages in the file."""
        return sum(sum(block.rows) for block in self.blocks)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        blocks = [
            [number for pair in zip(block.buckets, block.rows, strict=True) for number in pair]
            for block in self.blocks
        ]
        content = {"buckets": self.buckets, "own": list(self.own), "row_bytes": self.row_bytes}
        return {**content, "blocks": blocks}


class MessageGroups:
    """Row groups of messages of one loopback, sorted by the buckets of their receivers.

    Messages stay in the order of arrival if they are few, or if the author's function fails for
    one of them. The reader then gets the same error, and reports it as an error of the reader.
    See `cbp.engine.storage.parquet_writer.RowGroups`.
    """

    def __init__(self, receivers: Receivers, limits: EngineLimits) -> None:
        self._receivers, self._limits = receivers, limits
        self._blocks: list[Block] | None = []
        self._bytes = 0

    def is_full(self, rows: int, size: int) -> bool:
        """Return whether the pending messages fill a block."""
        return size >= self._limits.message_block_bytes

    def cut(self, table: pa.Table) -> Iterator[pa.Table]:
        """Yield the row groups of a block."""
        bucket_of_row = self._receivers_of(table)
        if self._blocks is None or bucket_of_row is None:
            self._blocks = None
            yield from _cut(table, [table.num_rows], self._limits)
            return
        order = np.argsort(bucket_of_row, kind="stable")
        buckets, rows = np.unique(bucket_of_row, return_counts=True)
        self._blocks.append(Block(tuple(buckets.tolist()), tuple(rows.tolist())))
        self._bytes += table.nbytes
        yield from _cut(table.take(pa.array(order)), rows.tolist(), self._limits)

    def finish(self, writer: pq.ParquetWriter, rows: int) -> int:
        """Write the index; return the number of buckets, or 0 for a file that is not sorted."""
        if self._blocks is None:
            return 0
        of, width = self._receivers, self._bytes // max(1, rows)
        index = MessageIndex(of.buckets, of.own, width, tuple(self._blocks))
        writer.add_key_value_metadata({_KEY: json.dumps(index.to_json(), separators=(",", ":"))})
        return of.buckets

    def _receivers_of(self, table: pa.Table) -> Int64s | None:
        block = self._limits.message_block_bytes
        small = table.num_rows < self._receivers.rows_min and table.nbytes < block
        if self._blocks is None or (small and not self._blocks):
            return None
        try:
            return self._receivers.of(table)
        except AuthorCodeError:
            return None  # the reader reports it, as for any message


def _cut(table: pa.Table, sizes: Sequence[int], limits: EngineLimits) -> Iterator[pa.Table]:
    """Cut a block into row groups; `sizes` has the number of rows of each bucket."""
    start = stop = 0
    least, most = limits.message_group_rows_min, limits.message_group_rows_max
    for size in sizes:
        if stop - start >= least or (size >= least and stop > start):
            yield table.slice(start, stop - start)
            start = stop
        stop += size
        while stop - start > most:
            yield table.slice(start, most)
            start += most
    if stop > start:
        yield table.slice(start, stop - start)
