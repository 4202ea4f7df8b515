"""A file of messages in which those for one bucket lie together, and the index that says where.

The task that writes messages of a loopback asks for the key of each, as a reader would, and
puts a block of them at a time in the order of the buckets of the groups that get them:

    block 1:  bucket 0 | bucket 3 | bucket 7      block 2:  bucket 0 | bucket 1 | ...

So a task that owns some buckets reads its part of each block, and no other rows
(`cbp.engine.mail`). The index is in the file's footer; that there is one, the increment tells.

Guaranteed: messages of one bucket stay in the order in which they were emitted, so those of
one group do. Row groups end where buckets do, unless these are small.
Not guaranteed: that the index is true later: an author may change the function that gives
the key while messages wait. Who reads by it checks every row.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from cbp.engine.arrow import arrow_type
from cbp.engine.faults import Faults
from cbp.engine.hashing import hash_columns
from cbp.engine.layout import bucket_shift
from cbp.engine.route import key_of
from cbp.engine.sink import ROWS_PER_GROUP, ParquetSink
from cbp.errors import AuthorCodeError
from cbp.model.stage import InputSpec, TranslatorSpec

__all__ = ["Block", "MessageIndex", "MessageSink", "Receivers"]

BLOCK_BYTES = 32 << 20
"""Messages that are put in order at a time; that takes about three times as much."""

_GROUP_ROWS_MIN = 8_192
"""Small buckets share a row group of so many rows: each one costs some hundred bytes."""

_KEY = b"cbp.receivers"

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Receivers:
    """Finds the buckets of the groups that messages of one loopback go to.

    Attributes:
        own: The first bucket of the task that writes, and the one behind its last; of single
            records, which have no bucket, `(0, 0)`.
        rows_min: A file of fewer messages stays as it is.
        hash_mask: Applied to every hash.
    """

    stage: str
    spec: TranslatorSpec
    input: InputSpec
    buckets: int
    own: tuple[int, int]
    rows_min: int
    hash_mask: int

    def of(self, table: pa.Table) -> Int64s:
        """Return the bucket of each message.

        Raises:
            AuthorCodeError: The author's function failed.
        """
        assert self.spec.key is not None, "only groups get messages by bucket"
        types = [column.type for column in self.spec.key.fields]
        keys = key_of(table, self.spec, self.input, stage=self.stage)
        slots = [key.cast(arrow_type(type_)) for key, type_ in zip(keys, types, strict=True)]
        hashes = hash_columns(slots, types) & np.int64(self.hash_mask)
        shift = np.uint64(bucket_shift(self.buckets))
        return (hashes.view(np.uint64) >> shift).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Block:
    """Buckets, ascending, and how many rows of a block each has."""

    buckets: tuple[int, ...]
    rows: tuple[int, ...]

    def between(self, first: int, stop: int) -> tuple[int, int]:
        """Return where the rows of the buckets from `first` up to `stop` begin and end."""
        before = np.searchsorted(self.buckets, [first, stop])
        start, end = (sum(self.rows[:at]) for at in before.tolist())
        return start, end


@dataclass(frozen=True, slots=True)
class MessageIndex:
    """What the footer of a file of messages says.

    Attributes:
        buckets: Into how many the stage's groups were parted.
        own: Those of the task that wrote it, see `Receivers`.
        row_bytes: Of a message in memory, on average.
    """

    buckets: int
    own: tuple[int, int]
    row_bytes: int
    blocks: tuple[Block, ...]

    @classmethod
    def of(cls, file: pq.ParquetFile) -> MessageIndex | None:
        """Return the index of a file; `None`: it has none, or not of all its rows."""
        text = (file.metadata.metadata or {}).get(_KEY)
        if text is None:
            return None
        told = json.loads(text)
        blocks = tuple(Block(tuple(pairs[::2]), tuple(pairs[1::2])) for pairs in told["blocks"])
        first, stop = told["own"]
        found = cls(told["buckets"], (first, stop), told["row_bytes"], blocks)
        return found if found.rows == file.metadata.num_rows else None

    @property
    def rows(self) -> int:
        """Messages of the whole file."""
        return sum(sum(block.rows) for block in self.blocks)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        blocks = [
            [number for pair in zip(block.buckets, block.rows, strict=True) for number in pair]
            for block in self.blocks
        ]
        told = {"buckets": self.buckets, "own": list(self.own), "row_bytes": self.row_bytes}
        return {**told, "blocks": blocks}


@dataclass
class _Laid:
    """What was written so far of a file that lies by bucket."""

    blocks: list[Block] = field(default_factory=list)
    bytes: int = 0


class MessageSink(ParquetSink):
    """Writes messages of one loopback by the buckets of their receivers.

    Few messages, and those whose receivers the author's function does not tell, lie as they
    came: whoever reads them meets the same error, and reports it as that of a reader.
    """

    def __init__(
        self, path: str, schema: pa.Schema, receivers: Receivers, *, faults: Faults
    ) -> None:
        super().__init__(path, schema, faults=faults)
        self._receivers = receivers
        self._laid: _Laid | None = _Laid()

    def _full(self) -> bool:
        return self._pending_bytes >= BLOCK_BYTES

    def _groups(self, table: pa.Table) -> Iterator[pa.Table]:
        size = table.nbytes
        found = self._receivers_of(table, size)
        if found is None:
            self._laid = None
            yield from _cut(table, [table.num_rows])
            return
        assert self._laid is not None, "else no receivers were asked for"
        order = np.argsort(found, kind="stable")
        buckets, rows = np.unique(found, return_counts=True)
        self._laid.blocks.append(Block(tuple(buckets.tolist()), tuple(rows.tolist())))
        self._laid.bytes += size
        yield from _cut(table.take(pa.array(order)), rows.tolist())

    def _receivers_of(self, table: pa.Table, size: int) -> Int64s | None:
        """Return the buckets of a block's messages; `None`: it stays as it is, and so the file."""
        small = table.num_rows < self._receivers.rows_min and size < BLOCK_BYTES
        if self._laid is None or (small and not self._laid.blocks):
            return None
        try:
            return self._receivers.of(table)
        except AuthorCodeError:
            return None  # the reader's to tell, as of any message

    def _finish(self, writer: pq.ParquetWriter) -> int:
        if self._laid is None:
            return 0
        width = self._laid.bytes // max(1, self.rows)
        of = self._receivers
        index = MessageIndex(of.buckets, of.own, width, tuple(self._laid.blocks))
        writer.add_key_value_metadata({_KEY: json.dumps(index.to_json(), separators=(",", ":"))})
        return of.buckets


def _cut(table: pa.Table, sizes: Sequence[int]) -> Iterator[pa.Table]:
    """Cut a block, in which each bucket has so many rows, into row groups."""
    start = stop = 0
    for size in sizes:
        if stop - start >= _GROUP_ROWS_MIN or (size >= _GROUP_ROWS_MIN and stop > start):
            yield table.slice(start, stop - start)
            start = stop
        stop += size
        while stop - start > ROWS_PER_GROUP:
            yield table.slice(start, ROWS_PER_GROUP)
            start += ROWS_PER_GROUP
    if stop > start:
        yield table.slice(start, stop - start)
