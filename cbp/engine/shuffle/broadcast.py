"""Broadcast and multicast records of a task: each is stored once for all groups that it reaches.

The destinations of such a record become *audiences*: an address together with the epoch in which
the message was written, or an `ALL` together with the flows that limit it. The bindings of that
epoch map addresses to keys; every task reads them and keeps those of its own buckets. Which groups
belong to an `ALL` is known only per window of groups (`cbp.engine.shuffle.delivery`).

Memory: the shared records of the task, or their spill file; the bindings of its buckets; and a
number for each different destination.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cbp.engine.columnar.arrow_types import Int64s, arrow_schema
from cbp.engine.columnar.groups import span_rows
from cbp.engine.columnar.key_hash import bucket_shift
from cbp.engine.columnar.row_codes import row_codes
from cbp.engine.shuffle.exchange import owners
from cbp.engine.shuffle.layout import MADE, TO
from cbp.engine.shuffle.multicast_bindings import BindingFile, read_bindings
from cbp.engine.shuffle.several_destinations import destinations
from cbp.engine.shuffle.spool import Spool
from cbp.model.dataflow.stage import TranslatorSpec

ALL_REACHED, ALL_NAMED = "all_found.", "all_named."
"""Prefixes of the figures of an `ALL`: how many groups it reached, and how often it was named."""

_Address = tuple[int, str]
"""The epoch of the binding, and the address as JSON."""


class Rows:
    """A table from which any rows can be taken; its chunks are never concatenated."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self._batches = table.to_batches()
        sizes = [batch.num_rows for batch in self._batches]
        self._starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def take(self, rows: Int64s, columns: Sequence[str]) -> pa.Table:
        """Return some rows, in the given order."""
        chunks = np.searchsorted(self._starts, rows, "right") - 1
        parts = [self.table.select(list(columns)).slice(0, 0)]
        places = []
        for chunk in np.unique(chunks).tolist():
            mine = np.flatnonzero(chunks == chunk)
            at = pa.array(rows[mine] - self._starts[chunk])
            own = self._batches[chunk].select(list(columns)).take(at)
            parts.append(pa.Table.from_batches([own]))
            places.append(mine)
        table = pa.concat_tables(parts)
        if len(places) < 2:
            return table
        return table.take(pa.array(np.argsort(np.concatenate(places), kind="stable")))


@dataclass(frozen=True, slots=True)
class SharedFlow:
    """The shared records of one input, in the order in which a group reads them.

    Audience a has the records `members[starts[a]:starts[a] + counts[a]]`; a record that names the
    audience twice counts twice. `positions` has the `_seq` of each record.
    """

    rows: Rows
    positions: Int64s
    counts: Int64s
    starts: Int64s
    members: Int64s


@dataclass(frozen=True, slots=True)
class Bound:
    """The keys that belong to address audiences; parallel arrays, ascending by hash."""

    hashes: Int64s
    audiences: Int64s
    keys: pa.Table


class Shared:
    """The shared records of a task, by the index of an input; see the module header.

    `alls` has the flows that limit each `ALL`, by its audience; `reached` the number of groups that
    it has reached so far.
    """

    def __init__(
        self,
        spec: TranslatorSpec,
        spool: Spool,
        *,
        part: int,
        tasks: int,
        buckets: int,
        files: Sequence[BindingFile],
    ) -> None:
        assert spec.key is not None, "a record-wise stage shares nothing"
        self._part, self._tasks = part, tasks
        self._shift = np.uint64(bucket_shift(buckets))
        self._addresses: dict[_Address, int] = {}
        self.alls: dict[int, tuple[str, ...]] = {}
        named = {flow: self._named(spool.shared(flow)) for flow in spool.layout.shared}
        many = len(self._addresses) + len(self.alls)
        self.flows = {
            flow: _flow(spool.shared(flow), *pairs, many)
            for flow, pairs in named.items()
            if len(pairs[0])
        }
        self.reached = dict.fromkeys(self.alls, 0)
        self._bound_anywhere = np.zeros(many, np.bool_)
        self._bound = self._read(spec, files, tasks, buckets)
        self.bytes = sum(flow.rows.table.nbytes for flow in self.flows.values())

    def __bool__(self) -> bool:
        return bool(self.flows)

    def _named(self, table: pa.Table) -> tuple[Int64s, Int64s]:
        """Return pairs of audience and record, ascending; numbers the audiences."""
        if not table.num_rows:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        (codes,) = row_codes([table.select([TO, MADE])])
        _, firsts = np.unique(codes, return_index=True)
        different = table.select([TO, MADE]).take(pa.array(firsts)).to_pydict()
        numbers = [
            [self._number(each, made) for each in destinations(text)]
            for text, made in zip(different[TO], different[MADE], strict=True)
        ]
        sizes = np.array([len(each) for each in numbers], np.int64)
        flat = np.array([number for each in numbers for number in each], np.int64)
        places, records = expand(np.cumsum(sizes)[codes] - sizes[codes], sizes[codes])
        audiences = flat[places]
        order = np.lexsort((records, audiences))
        return audiences[order], records[order]

    def _number(self, destination: str | int | tuple[str, ...], made: int | None) -> int:
        many = len(self._addresses) + len(self.alls)
        if isinstance(destination, tuple):
            for number, limits in self.alls.items():
                if limits == destination:
                    return number
            self.alls[many] = destination
            return many
        assert made is not None, "only messages have addresses"
        return self._addresses.setdefault((made, json.dumps(destination)), many)

    def _read(
        self, spec: TranslatorSpec, files: Sequence[BindingFile], tasks: int, buckets: int
    ) -> Bound:
        """Return the bindings of this task's buckets for addresses that messages name."""
        assert spec.key is not None
        by_epoch: dict[int, dict[str, int]] = {}
        for (made, address), number in self._addresses.items():
            by_epoch.setdefault(made, {})[address] = number
        tables, audiences = [], []
        self.bytes_bindings = 0
        for file in files:
            wanted = by_epoch.get(file.epoch, {})
            texts, numbers = pa.array(wanted, pa.string()), np.array([*wanted.values()], np.int64)
            for table in read_bindings(file, spec.key) if wanted else ():
                self.bytes_bindings += table.nbytes
                at = pc.index_in(table.column("_address"), texts)
                named = at.is_valid().to_numpy()
                audience = numbers[at.fill_null(0).to_numpy()]
                self._bound_anywhere[audience[named]] = True
                owner = owners(table.column("_hash").to_numpy(), tasks=tasks, buckets=buckets)
                mine = np.flatnonzero(named & (owner == self._part))
                tables.append(table.take(pa.array(mine)))
                audiences.append(audience[mine])
        return _by_hash(spec, tables, audiences)

    def sizes(self) -> dict[int, int]:
        """Return the number of bindings per bucket, for buckets that have some."""
        counts = np.unique(self._bound.hashes.view(np.uint64) >> self._shift, return_counts=True)
        return dict(zip(*(numbers.tolist() for numbers in counts), strict=True))

    def bound(self, first: int, last: int) -> Bound:
        """Return the bindings of the buckets `first` to `last`."""
        buckets = self._bound.hashes.view(np.uint64) >> self._shift
        start = int(np.searchsorted(buckets, first, "left"))
        stop = int(np.searchsorted(buckets, last, "right"))
        return Bound(
            self._bound.hashes[start:stop],
            self._bound.audiences[start:stop],
            self._bound.keys.slice(start, stop - start),
        )

    def reaches(self, flow: str) -> bool:
        """Return whether some `ALL` reaches the groups that are found in an input or a state."""
        return any(not limits or flow in limits for limits in self.alls.values())

    def counts(self) -> Mapping[str, float]:
        """Return `dead_letters` to addresses, and how often each `ALL` was named and reached.

        Only one task counts an address, since every task knows all bindings. Only all tasks
        together know whether an `ALL` reached any group.
        """
        named: dict[int, int] = {}
        for flow in self.flows.values():
            for number, count in enumerate(flow.counts.tolist()):
                named[number] = named.get(number, 0) + count
        judged = (
            number
            for (_, address), number in self._addresses.items()
            if zlib.crc32(address.encode()) % self._tasks == self._part
        )
        dead = sum(named.get(number, 0) for number in judged if not self._bound_anywhere[number])
        counts: dict[str, float] = {"dead_letters": dead}
        for number, limits in self.alls.items():
            text = ",".join(limits)
            counts[ALL_REACHED + text] = self.reached[number]
            counts[ALL_NAMED + text] = 0 if self._part else named[number]
        return counts


def expand(starts: Int64s, counts: Int64s) -> tuple[Int64s, Int64s]:
    """Return every place of some ranges, each with the number of its range."""
    return span_rows(starts, counts), np.repeat(np.arange(len(starts)), counts)


def _flow(table: pa.Table, audiences: Int64s, records: Int64s, many: int) -> SharedFlow:
    counts = np.bincount(audiences, minlength=many).astype(np.int64)
    positions = table.column("_seq").to_numpy()
    return SharedFlow(Rows(table), positions, counts, np.cumsum(counts) - counts, records)


def _by_hash(
    spec: TranslatorSpec, tables: Sequence[pa.Table], audiences: Sequence[Int64s]
) -> Bound:
    assert spec.key is not None
    wide = arrow_schema(spec.key, wide=True)
    if not tables:
        return Bound(np.empty(0, np.int64), np.empty(0, np.int64), wide.empty_table())
    table, audience = pa.concat_tables(tables), np.concatenate(audiences)
    hashes = table.column("_hash").to_numpy()
    order = np.argsort(hashes.view(np.uint64), kind="stable")
    keys = table.select(list(spec.key.names)).take(pa.array(order))
    return Bound(hashes[order], audience[order], keys.cast(wide))
