"""A task's arrived records: one run per flow, in memory, or in a mapped spill file if large.

Batches come sorted by (flow, bucket, hash, key, order), or are sorted here by
unsigned hash. Each flow stays one run, so that flows can be read in any order
without buffering one to reach the other.

Memory: for a run on disk, one number per bucket; nothing that grows with its records.

Source: CBP (SoCC'10), section 4.5.4, "Flow separation in Map-Reduce".
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from functools import cached_property, lru_cache
from itertools import accumulate

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cbp.engine.columnar.arrow_types import arrow_type
from cbp.engine.shuffle.layout import COUNT, ShuffleLayout
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.engine.storage.external_sort import sorted_tables
from cbp.engine.storage.spill_files import BatchFile
from cbp.model.flow.schema import DataType

_RANK = "_rank"


class _Run:
    """One flow's run: batches in memory up to `spool_bytes`, in a file from then on."""

    def __init__(self, limits: EngineLimits) -> None:
        self._limits, self._bytes_max = limits, limits.spool_bytes
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0
        self.bytes = 0
        self._file: BatchFile | None = None
        self.table: pa.Table | None = None
        self.rows = 0

    def append(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self.rows += batch.num_rows
        size = batch.nbytes
        self._bytes += size
        self.bytes += size
        if self._bytes > self._bytes_max:
            self._spill(batch.schema)

    def _spill(self, schema: pa.Schema) -> None:
        if self._file is None:
            self._file = BatchFile(schema)
        self._file.write(pa.Table.from_batches(self._batches))
        self._batches, self._bytes = [], 0

    def seal(self) -> None:
        if self._file is not None:
            if self._batches:
                self._spill(self._batches[0].schema)
            self.table = self._file.whole()
        elif self._batches:
            self.table = pa.Table.from_batches(self._batches)

    @cached_property
    def sizes(self) -> Counter[int]:
        """Buckets of a sealed run, in the run's order, with their number of records."""
        size_by_bucket: Counter[int] = Counter()
        for chunk in () if self.table is None else self.table.column("_bucket").chunks:
            buckets = chunk.to_numpy()
            starts = np.flatnonzero(np.diff(buckets, prepend=buckets[:1] - 1))
            sizes = np.diff(starts, append=len(buckets))
            for bucket, size in zip(buckets[starts].tolist(), sizes.tolist(), strict=True):
                size_by_bucket[bucket] += size
        return size_by_bucket

    @cached_property
    def _ends(self) -> list[int]:
        return list(accumulate(self.sizes.values(), initial=0))

    def before(self, bucket: int) -> int:
        """Return the number of records before those of a bucket."""
        if self.table is not None and self.table.column("_bucket").num_chunks == 1:
            return int(self.table.column("_bucket").chunk(0).to_numpy().searchsorted(bucket))
        return self._ends[bisect_left(self._buckets, bucket)]

    @cached_property
    def _buckets(self) -> list[int]:
        return list(self.sizes)

    def by_hash(self) -> _Run:
        """Return a sealed run with the same rows, sorted by unsigned hash."""
        if self.table is None:
            return self
        ranks = self.table.column("_hash").to_numpy().view(np.uint64)
        if np.all(ranks[1:] >= ranks[:-1]):
            return self
        sorted_run = _Run(self._limits)
        if self.table.nbytes <= self._bytes_max:
            table = self.table.take(pa.array(np.argsort(ranks))).combine_chunks()
            parts: Iterable[pa.Table] = [table]
        else:
            ranked = self.table.append_column(_RANK, pa.array(ranks))
            pieces = (pa.Table.from_batches([batch]) for batch in ranked.to_batches())
            ordered = sorted_tables(pieces, [_RANK], limits=self._limits)
            parts = (part.drop_columns(_RANK) for part in ordered)
        try:
            for part in parts:
                for batch in part.to_batches():
                    sorted_run.append(batch)
            sorted_run.seal()
        except BaseException:
            sorted_run.close()
            raise
        self.close()
        return sorted_run

    def close(self) -> None:
        self.table = None
        if self._file is not None:
            self._file.close()


class Spool:
    """The runs of all flows of one task; a context manager that closes its files."""

    def __init__(self, layout: ShuffleLayout, limits: EngineLimits) -> None:
        self.layout = layout
        self._runs = [_Run(limits) for _ in range(layout.tags)]

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *_: object) -> None:
        for run in self._runs:
            run.close()

    def take(self, batches: Iterable[pa.RecordBatch], *, ordered: bool = True) -> None:
        """Read all batches and separate them by flow.

        If they are not `ordered`, each flow is sorted by hash; the records of one hash are in any
        order.
        """
        for batch in batches:
            flows = batch.column(batch.schema.get_field_index("_flow")).to_numpy()
            if ordered and len(flows) and flows[0] == flows[-1]:
                self._runs[int(flows[0])].append(batch)
                continue
            edges = np.flatnonzero(np.diff(flows)) + 1
            starts = [0, *edges.tolist()]
            for start, stop in zip(starts, [*edges.tolist(), batch.num_rows], strict=True):
                if stop > start:
                    self._runs[int(flows[start])].append(batch.slice(start, stop - start))
        for run in self._runs:
            run.seal()
        if not ordered:
            for at, run in enumerate(self._runs):  # one at a time: if one fails, all get closed
                self._runs[at] = run.by_hash()

    def records(self, flow: int) -> int:
        """Return the number of arrived records of an input; a combined one counts its originals."""
        shared = self._counted(self.layout.tag(flow)) if flow in self.layout.shared else 0
        return self._counted(flow) + shared

    def _counted(self, flow: int) -> int:
        table, arrived = self._runs[flow].table, self.arrived(flow)
        if table is None or COUNT not in table.column_names:
            return arrived
        counts = table.column(COUNT)
        several: int = pc.sum(counts).as_py() or 0
        return several + int(counts.null_count)

    def arrived(self, flow: int) -> int:
        """Return the number of arrived rows of a flow; a combined row counts as one."""
        return self._runs[flow].rows

    def row_bytes(self, flow: int) -> int:
        """Return the average size of a row of a flow, in bytes."""
        return self._runs[flow].bytes // max(1, self.arrived(flow))

    def sizes(self) -> dict[int, int]:
        """Return the number of records, other than shared ones, by bucket."""
        size_by_bucket: Counter[int] = Counter()
        for run in self._runs[: len(self.layout.flows)]:
            size_by_bucket.update(run.sizes)
        return dict(size_by_bucket)

    def shared(self, flow: int) -> pa.Table:
        """Return the shared records of an input."""
        table = self._runs[self.layout.tag(flow)].table
        return _nothing(self.layout.slots) if table is None else table

    def between(self, flow: int, first: int, last: int) -> pa.Table:
        """Return one flow's records of the buckets `first` to `last`, as a view."""
        run = self._runs[flow]
        if run.table is None:
            return _nothing(self.layout.slots)
        start, stop = run.before(first), run.before(last + 1)
        return run.table if stop - start == run.rows else run.table.slice(start, stop - start)


@lru_cache(maxsize=256)
def _nothing(slots: tuple[tuple[str, DataType], ...]) -> pa.Table:
    columns = [(name, arrow_type(type_)) for name, type_ in slots]
    numbers = [("_flow", pa.int8()), ("_bucket", pa.int32()), ("_hash", pa.int64())]
    return pa.schema([*numbers, *columns, ("_seq", pa.int64())]).empty_table()
