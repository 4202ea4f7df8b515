"""Delivery of shared records (broadcast, multicast) to the groups of some buckets, per window.

    keys of records, of bindings, of state -> receivers -> (receiver, record) pairs -> flows

A delivery is a position, not a copy, and exists only for the groups of the current window. The
result looks like a flow of records of one key each, so later code sees no difference. Keys
themselves are compared, never only hashes: a receiver is a key in the window's columns.

Guaranteed (`cbp.model.dataflow.routing`): a group gets a record once, however many destinations
name it, in the order of the flow. An `ALL` reaches the groups found by keys, addresses and
states, not those that only another `ALL` reaches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa

from cbp.engine.columnar.arrow_types import Int64s, Mask, arrow_schema
from cbp.engine.columnar.groups import FlowKeys, FlowRun, Ranges
from cbp.engine.columnar.row_codes import row_codes
from cbp.engine.shuffle.broadcast import Rows, Shared, SharedFlow, expand
from cbp.engine.storage.external_sort import order_by_columns
from cbp.model.dataflow.stage import TranslatorSpec

_Members = tuple[Int64s, Int64s]
"""Pairs of a receiver and an audience that it belongs to."""


class Deliveries:
    """The deliveries of one bucket, or of some neighbors, whose other records are `runs`."""

    def __init__(
        self,
        spec: TranslatorSpec,
        shared: Shared,
        buckets: Sequence[int],
        *,
        runs: Sequence[FlowRun],
        orders: Sequence[str],
    ) -> None:
        assert spec.key is not None, "a record-wise stage has no groups"
        self._spec, self._shared, self._runs, self._orders = spec, shared, runs, tuple(orders)
        self._schema = arrow_schema(spec.key, wide=True)
        self._bound = shared.bound(buckets[0], buckets[-1])

    @property
    def hashes(self) -> Int64s:
        """Hashes of the keys that addresses reach; ascending, may repeat."""
        return self._bound.hashes

    def reaches(self, flow: str) -> bool:
        """Return whether an `ALL` reaches all groups that are found in this flow."""
        return self._shared.reaches(flow)

    def sizes(self, hashes: Int64s) -> Ranges:
        """Return an upper bound of shared records per group, as ranges that begin at 0."""
        named = np.sum([flow.counts for flow in self._shared.flows.values()], axis=0)
        everybody = int(named[list(self._shared.alls)].sum())
        sizes = np.full(len(hashes), everybody, np.int64)
        here = np.searchsorted(hashes, self._bound.hashes)
        np.add.at(sizes, here, named[self._bound.audiences])
        return Ranges(np.zeros(len(hashes), np.int64), sizes)

    def flows(
        self, hashes: Int64s, ranges: Sequence[Ranges], states: Sequence[FlowKeys]
    ) -> list[tuple[FlowRun, Ranges]]:
        """Return the records of every input for a window of groups, shared ones included.

        `ranges` has the rows of each hash in each input's run; `states` the keys of each state's
        records.
        """
        window = _Window(self._spec, self._schema, len(hashes))
        for run, rows in zip(self._runs, ranges, strict=True):
            first, last = int(rows.starts[0]), int(rows.stops[-1])
            window.add(run.name, run.key_table(first, last), rows.stops - rows.starts)
        for state, keys in zip(self._spec.states, states, strict=True):
            window.add(state.name, keys.table, keys.stops - keys.starts)
        start = int(np.searchsorted(self._bound.hashes, hashes[0], "left"))
        stop = int(np.searchsorted(self._bound.hashes, hashes[-1], "right"))
        numbers = np.searchsorted(hashes, self._bound.hashes[start:stop])
        window.add_rows("", self._bound.keys.slice(start, stop - start), numbers)
        members = self._members(window, self._bound.audiences[start:stop])
        return [
            (run, rows)
            if at not in self._shared.flows
            else self._delivered(self._shared.flows[at], run, rows, window, members)
            for at, (run, rows) in enumerate(zip(self._runs, ranges, strict=True))
        ]

    def _members(self, window: _Window, audiences: Int64s) -> _Members:
        bound = window.receivers("")
        members, groups = [bound], [audiences]
        for number, limits in self._shared.alls.items():
            hash_parts = [np.empty(0, np.int64)]
            for name in limits or window.names:
                hash_parts.append(window.receivers(name))
            for at, flow in self._shared.flows.items():
                if not limits or self._spec.inputs[at].name in limits:
                    hash_parts.append(bound[flow.counts[audiences] > 0])
            reached = np.unique(np.concatenate(hash_parts))
            self._shared.reached[number] += len(reached)
            members.append(reached)
            groups.append(np.full(len(reached), number, np.int64))
        return np.concatenate(members), np.concatenate(groups)

    def _delivered(
        self, flow: SharedFlow, run: FlowRun, ranges: Ranges, window: _Window, members: _Members
    ) -> tuple[FlowRun, Ranges]:
        first, last = int(ranges.starts[0]), int(ranges.stops[-1])
        who, groups = members
        places, pairs = expand(flow.starts[groups], flow.counts[groups])
        many = len(flow.rows)
        distinct = np.unique(who[pairs] * many + flow.members[places])
        receivers, records = np.divmod(distinct, many)
        own = window.receivers(run.name)
        positions = run.table.column("_seq").slice(first, last - first).to_numpy()
        again = has_already(own, positions, receivers, flow.positions[records])
        receivers, records = receivers[~again], records[~again]
        at = np.concatenate([np.arange(first, last), run.table.num_rows + records])
        who = np.concatenate([own, receivers])
        own_run = run.name, run.table, run.keys, run.key_types, run.columns, run.types
        keys, shared = window.keys, flow.rows
        merged = DeliveredRun(*own_run, shared=shared, at=at, receivers=keys, who=who)
        numbers = window.numbers[who]
        rank = merged.rank(self._orders)
        order = np.lexsort((rank, who, numbers))
        merged.at, merged.who = at[order], who[order]
        bounds = np.arange(len(ranges.starts))
        starts, stops = (np.searchsorted(numbers[order], bounds, s) for s in ("left", "right"))
        return merged, Ranges(starts, stops)


def has_already(own: Int64s, positions: Int64s, receivers: Int64s, shared: Int64s) -> Mask:
    """Return which deliveries (receiver, shared record) a group also has as records of its own.

    `own` and `positions` are receiver and position of every record that goes to one group.
    """
    again = np.isin(shared, positions)
    if not again.any():
        return again
    both = np.concatenate([positions, shared])
    _, dense = np.unique(both, return_inverse=True)
    pairs = np.concatenate([own, receivers]) * (int(dense.max()) + 1) + dense
    repeated: Mask = np.isin(pairs[len(own) :], pairs[: len(own)])
    return repeated


class _Window:
    """The receivers of a window: every key in its columns, as a number."""

    def __init__(self, spec: TranslatorSpec, schema: pa.Schema, groups: int) -> None:
        self._schema, self._groups = schema, groups
        self._tables: dict[str, pa.Table] = {}
        self._numbers: dict[str, Int64s] = {}
        self.names = [*(i.name for i in spec.inputs), *(s.name for s in spec.states)]

    def add(self, name: str, keys: pa.Table, sizes: Int64s) -> None:
        """Add the keys of a flow's records; `sizes` has the number per group of the window."""
        self.add_rows(name, keys, np.repeat(np.arange(self._groups), sizes))

    def add_rows(self, name: str, keys: pa.Table, numbers: Int64s) -> None:
        """Add keys, each with the number of its group in the window."""
        self._tables[name] = keys.rename_columns(self._schema.names).cast(self._schema)
        self._numbers[name] = numbers

    def receivers(self, name: str) -> Int64s:
        """Return the receiver of every record of a flow."""
        return self._codes[name]

    @cached_property
    def _codes(self) -> dict[str, Int64s]:
        codes = row_codes(list(self._tables.values()), list(self._numbers.values()))
        return dict(zip(self._tables, codes, strict=True))

    @cached_property
    def _firsts(self) -> Int64s:
        """For every receiver one row that has its key, counted over all flows."""
        _, firsts = np.unique(np.concatenate(list(self._codes.values())), return_index=True)
        return firsts

    @cached_property
    def keys(self) -> pa.Table:
        """The key of every receiver."""
        return pa.concat_tables(self._tables.values()).take(pa.array(self._firsts))

    @cached_property
    def numbers(self) -> Int64s:
        """The group of every receiver: the number of its hash in the window."""
        return np.concatenate(list(self._numbers.values()))[self._firsts]


@dataclass
class DeliveredRun(FlowRun):
    """The records of one flow in one window, shared ones included; a row per delivery.

    Delivery d is row `at[d]` of `table` followed by `shared`, and goes to the key
    `receivers[who[d]]`.
    """

    shared: Rows = field(kw_only=True)
    at: Int64s = field(kw_only=True)
    receivers: pa.Table = field(kw_only=True)
    who: Int64s = field(kw_only=True)

    @cached_property
    def _own(self) -> Rows:
        return Rows(self.table)

    def rank(self, orders: Sequence[str]) -> Int64s:
        """Return the place of every delivery in the order of its flow."""
        table = self.take(self.at, [*orders, "_seq"])
        if not orders:
            ranks: Int64s = table.column("_seq").to_numpy()
            return ranks
        ranks = np.empty(len(self.at), np.int64)
        ranks[order_by_columns(table, [*orders, "_seq"])] = np.arange(len(self.at))
        return ranks

    def take(self, at: Int64s, columns: Sequence[str]) -> pa.Table:
        """Return some rows of `table` and `shared`."""
        of_many = at >= self.table.num_rows
        own, shared = np.flatnonzero(~of_many), np.flatnonzero(of_many)
        parts = [
            self._own.take(at[own], columns),
            self.shared.take(at[shared] - self.table.num_rows, columns),
        ]
        if not len(shared) or not len(own):
            return pa.concat_tables(parts)
        order = np.argsort(np.concatenate([own, shared]))
        return pa.concat_tables(parts).take(pa.array(order))

    def part(self, start: int, stop: int) -> pa.Table:
        """Return the author's columns of the deliveries `start` to `stop`."""
        return self.take(self.at[start:stop], list(dict.fromkeys(self.columns)))

    def key_table(self, start: int, stop: int) -> pa.Table:
        """Return the receivers' keys of the deliveries `start` to `stop`."""
        return self.receivers.take(pa.array(self.who[start:stop])).rename_columns(list(self.keys))
