"""Reader of a loopback's messages without a shuffle: each task reads the rows of its own buckets.

    files sorted by bucket       each block's rows of some buckets   -> sorted -> batches
    files that are not (loose)   all rows are read, its own are kept -'

A task reads a range of its buckets at a time, so that the sort fits in memory. A bucket that is
too large for that is sorted on disk (`cbp.engine.storage.external_sort`). The result has the
layout and the order of the shuffle, so later steps see no difference.

Guaranteed: the key of every row is computed again. A row in the wrong bucket (the author's
function has changed) raises `Misplaced` before anything is recorded; the run then shuffles the
messages like any other input. Each row belongs to exactly one task, so if no task finds a
misplaced row, no task misses one.
Not here: `route(...)`, whose messages may have several receivers or an address, and keys in SQL.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate, chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cbp.engine.columnar.file_slices import Share, windows
from cbp.engine.columnar.key_hash import first_bucket
from cbp.engine.shuffle.layout import ShuffleLayout
from cbp.engine.shuffle.message_index import MessageIndex
from cbp.engine.shuffle.replicated_read import arrival_order, routed
from cbp.engine.storage.checked_parquet import open_parquet, reading_increment
from cbp.engine.storage.external_sort import sorted_tables
from cbp.engine.task.task_plan import TaskPlan

_SLOT_BYTES = 40
"""The shuffle's layout adds at most about this many bytes to a message."""


class Misplaced(Exception):
    """A message is in a bucket other than its receiver's, or its file has no index."""


@dataclass
class MessageReader:
    """The messages that one task receives, of all loopbacks that are read in place.

    `figures` count messages and their bytes while reading: local ones, which their writer sent to
    one of its own buckets, and remote ones.
    """

    plan: TaskPlan
    part: int
    figures: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        names = ("messages_local", "messages_remote")
        self.figures = {f"{prefix}{name}": 0 for prefix in ("", "bytes_") for name in names}

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the messages in the order of the shuffle, flow by flow; may raise `Misplaced`."""
        assert self.plan.layout is not None, "a plan without a layout reads no messages"
        for at, input_ in enumerate(self.plan.spec.inputs):
            files = self.plan.inputs.get(input_.name, ())
            if input_.name in self.plan.in_place and files:
                yield from _Flow(self.plan, self.plan.layout, self.part, at, self).batches()

    def count(self, own: tuple[int, int], table: pa.Table) -> None:
        """Count messages, sorted by bucket, written by the task that owns the buckets `own`."""
        start, stop = np.searchsorted(table.column("_bucket").to_numpy(), own).tolist()
        local = table.slice(start, stop - start)
        rows, size = local.num_rows, local.nbytes if local.num_rows else 0
        self.figures["messages_local"] += rows
        self.figures["messages_remote"] += table.num_rows - rows
        self.figures["bytes_messages_local"] += size
        self.figures["bytes_messages_remote"] += max(0, table.nbytes - size)


class _Flow:
    """The messages of one loopback that one task receives."""

    def __init__(
        self, plan: TaskPlan, layout: ShuffleLayout, part: int, at: int, reader: MessageReader
    ) -> None:
        self._plan, self._layout, self._at, self._reader = plan, layout, at, reader
        self._input, self._part = plan.spec.inputs[at], part
        files = plan.inputs[self._input.name]
        starts = accumulate((file.stop - file.start for file in files), initial=0)
        self._files = list(zip(files, starts, strict=False))
        self._indexes = [self._index(file) for file in files]

    def batches(self) -> Iterator[pa.RecordBatch]:
        loose = [
            None if index is not None else self._loose(*file)
            for file, index in zip(self._files, self._indexes, strict=True)
        ]
        for first, stop in self._stretches(loose):
            yield from self._sorted(self._pieces(first, stop, loose))

    def _index(self, file: Share) -> MessageIndex | None:
        """Return the file's index, or `None` if the file is not sorted by the plan's buckets."""
        if file.buckets != self._plan.buckets:
            return None
        with reading_increment(file.path, file.rows), open_parquet(file.path) as opened:
            index = MessageIndex.of(opened)
        if index is None or index.buckets != file.buckets:
            raise Misplaced(file.path)
        return index

    def _loose(self, file: Share, start: int) -> pa.Table | None:
        """Return this task's messages of a file that is in the order of emission."""
        tables = []
        for table in self._routed(file, start):
            owners = table.column("_bucket").to_numpy().astype(np.int64)
            mine = owners * self._plan.tasks // self._plan.buckets == self._part
            tables.append(table.filter(pa.array(mine)))
        return pa.concat_tables(tables) if tables else None

    def _stretches(self, loose: Iterable[pa.Table | None]) -> Iterator[tuple[int, int]]:
        """Yield the task's buckets as half-open ranges; each range is sorted separately."""
        tasks, buckets = self._plan.tasks, self._plan.buckets
        first = first_bucket(self._part, tasks=tasks, buckets=buckets)
        last = first_bucket(self._part + 1, tasks=tasks, buckets=buckets)
        sizes = np.zeros(buckets, np.int64)
        for index in filter(None, self._indexes):
            for block in index.blocks:
                rows = np.array(block.rows, np.int64)
                sizes[list(block.buckets)] += rows * (index.row_bytes + _SLOT_BYTES)
        for table in loose:
            if table is not None:
                bucket_of_row = table.column("_bucket").to_numpy()
                width = table.nbytes // max(1, table.num_rows)
                sizes += np.bincount(bucket_of_row, minlength=buckets) * width
        held, most = 0, self._plan.limits.message_sort_bytes
        for bucket in range(first, last):
            if held and held + sizes[bucket] > most:
                yield first, bucket
                first, held = bucket, 0
            held += int(sizes[bucket])
        yield first, last

    def _pieces(self, first: int, stop: int, loose: list[pa.Table | None]) -> Iterator[pa.Table]:
        """Yield the messages of a range of buckets in the order of their arrival."""
        for (file, start), index, rest in zip(self._files, self._indexes, loose, strict=True):
            if index is not None:
                for table in self._of_blocks(file, start, index, first, stop):
                    of_row = table.column("_bucket").to_numpy()
                    inside = not len(of_row) or (of_row[0] >= first and of_row[-1] < stop)
                    if not inside or (np.diff(of_row) < 0).any():
                        raise Misplaced(file.path)
                    self._reader.count(index.own, table)
                    yield table
            elif rest is not None:
                buckets = rest.column("_bucket")
                yield rest.filter(pc.and_(pc.greater_equal(buckets, first), pc.less(buckets, stop)))

    def _of_blocks(
        self, file: Share, start: int, index: MessageIndex, first: int, stop: int
    ) -> Iterator[pa.Table]:
        before = 0
        for block in index.blocks:
            begin, end = block.between(first, stop)
            if end > begin:
                rows = Share(file.path, file.rows, before + begin, before + end)
                yield from self._routed(rows, start + before + begin)
            before += sum(block.rows)

    def _routed(self, rows: Share, start: int) -> Iterator[pa.Table]:
        """Yield rows of a file in the shuffle's layout; `start` is the first row's position."""
        plan = self._plan
        for table in windows(rows, self._input, plan.limits.message_group_rows_max):
            positions = np.arange(start, start + table.num_rows, dtype=np.int64)
            start += table.num_rows
            yield routed(table.append_column("_seq", pa.array(positions)), plan.route(self._at))

    def _sorted(self, pieces: Iterator[pa.Table]) -> Iterator[pa.RecordBatch]:
        """Sort messages, given in the order of their arrival, as the shuffle does; yield them."""
        held: list[pa.Table] = []
        size, limits = 0, self._plan.limits
        for piece in pieces:
            held.append(piece)
            size += piece.nbytes
            if size > 2 * limits.message_sort_bytes:
                columns = list(dict.fromkeys(self._layout.sort_columns))
                for part in sorted_tables(chain(held, pieces), columns, limits=limits):
                    yield from part.to_batches()
                return
        if held:
            table = pa.concat_tables(held).combine_chunks()
            order = arrival_order(table, np.arange(table.num_rows), self._layout)
            yield from table.take(pa.array(order)).to_batches()
