"""Reads the groups of a bucket as Arrow tables, for calls of many groups; whole columns only.

Groups are ranges of equal hashes, as in `cbp.engine.kernel.group_batch`. If two keys share a hash,
or a comparison cannot decide (NaN), each key gets an integer code (`row_codes`), and records are
sorted by group again. This costs little and is always right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cbp.engine.columnar.arrow_types import Int64s, with_types
from cbp.engine.columnar.groups import FlowKeys, FlowRun, Ranges, group_keys, positive_zeros
from cbp.engine.columnar.row_codes import row_codes
from cbp.engine.kernel.arrow.expiry import called_groups
from cbp.engine.kernel.arrow.groups import Groups, author_schema, no_records
from cbp.engine.kernel.group_batch import state_order
from cbp.engine.kernel.groups_to_call import GroupsToCall, find_groups
from cbp.engine.shuffle.delivery import Deliveries
from cbp.engine.state.bucket_state import BucketState, RecordPositions
from cbp.engine.state.due_groups import Woken, is_due
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.model.dataflow.stage import StateSpec, TranslatorSpec


@dataclass(frozen=True, slots=True)
class Call:
    """One call: the author's arguments, and the values that the engine needs afterwards.

    The `hashes` of the groups ascend. `called` has the numbers of the groups whose author is
    called, ascending; the others only lose expired records. It is `None` if no state expires, so
    that all groups are called.
    """

    groups: Groups
    hashes: Int64s
    origins: Mapping[str, RecordPositions]
    called: Int64s | None = None

    @property
    def called_keys(self) -> pa.Table:
        """The keys of the groups whose author is called, one row each."""
        keys = self.groups.keys
        return keys if self.called is None else keys.take(pa.array(self.called))

    def called_records(self, flow: str) -> pa.Table:
        """Return a flow's records, only of the groups whose author is called."""
        if self.called is None:
            return getattr(self.groups, flow)
        return Groups.part(self.groups, flow, self.called)[0]


@dataclass(frozen=True, slots=True)
class _Flow:
    """The records of one flow; group g has the rows `starts[g]:stops[g]`."""

    name: str
    table: pa.Table
    keys: pa.Table
    starts: Int64s
    stops: Int64s
    origin: RecordPositions | None
    calling: Int64s


def read_calls(
    spec: TranslatorSpec,
    runs: Sequence[FlowRun],
    states: Mapping[str, BucketState],
    *,
    limits: EngineLimits,
    deliveries: Deliveries | None = None,
    woken: Woken | None = None,
    whole_tables: Mapping[str, pa.Table] = MappingProxyType({}),
) -> tuple[Int64s, Iterator[Call]]:
    """Return the hashes of a bucket's groups to call (ascending), and the calls for them."""
    groups = find_groups(spec, runs, states, deliveries=deliveries, woken=woken)
    reader = CallReader(spec, runs, states, groups, deliveries, woken, whole_tables)
    spans = groups.spans(rows_max=limits.call_rows, bytes_max=limits.call_bytes)
    return groups.hashes, (reader.read(start, stop) for start, stop in spans)


@dataclass(frozen=True)
class CallReader:
    """Reads calls of one bucket."""

    spec: TranslatorSpec
    runs: Sequence[FlowRun]
    states: Mapping[str, BucketState]
    groups: GroupsToCall
    deliveries: Deliveries | None
    woken: Woken | None
    whole_tables: Mapping[str, pa.Table]

    def read(self, start: int, stop: int) -> Call:
        """Return the groups of the hashes `start` to `stop`."""
        assert self.spec.key is not None, "only a translator with a key has groups"
        schema = author_schema(self.spec.key)
        ranges, hashes = self.groups.ranges, self.groups.hashes[start:stop]
        many, read = len(self.runs), (*self.spec.replaced, *self.spec.looked_up)
        states = [
            self._state(state, each, start, stop)
            for state, each in zip(read, ranges[many:], strict=True)
        ]
        inputs = list(zip(self.runs, (r.part(start, stop) for r in ranges), strict=False))
        if self.deliveries is not None:
            state_keys = [FlowKeys(f.keys, f.starts, f.stops, ordered=False) for f in states]
            parts = [each for _, each in inputs]
            inputs = self.deliveries.flows(hashes, parts, state_keys)
        flows = [*(self._input(run, each) for run, each in inputs), *states]
        keyed = [FlowKeys(f.keys, f.starts, f.stops, ordered=f.origin is None) for f in flows]
        keys, pure = group_keys(keyed, stop - start, schema)
        if not pure:
            keys, hashes, flows = _split(flows, hashes, schema)
        tables = {f.name: (f.table, np.append(np.int64(0), f.stops)) for f in flows}
        origins = {f.name: f.origin for f in flows if f.origin is not None}
        groups, called = Groups(positive_zeros(keys), tables, self.whole_tables), None
        if self.spec.expiries:
            called = called_groups(self.spec, groups, [run.name for run in self.runs], self.woken)
        return Call(groups, hashes, origins, called)

    def _input(self, run: FlowRun, ranges: Ranges) -> _Flow:
        first, last = int(ranges.starts[0]), int(ranges.stops[-1])
        declared = self.spec.input(run.name).schema
        if first == last:
            assert self.spec.key is not None, "only a translator with a key has groups"
            zeros, nothing = np.zeros(len(ranges.starts), np.int64), np.empty(0, np.int64)
            keys = no_records(self.spec.key)
            return _Flow(run.name, no_records(declared), keys, zeros, zeros, None, nothing)
        schema = author_schema(declared)
        table = with_types(run.part(first, last).rename_columns(schema.names), schema)
        keys = run.key_table(first, last)
        starts, stops = ranges.starts - first, ranges.stops - first
        calling = np.arange(table.num_rows)
        return _Flow(run.name, table, keys, starts, stops, None, calling)

    def _state(self, state: StateSpec, ranges: Ranges, start: int, stop: int) -> _Flow:
        first, last = int(ranges.starts[start]), int(ranges.stops[stop - 1])
        schema = author_schema(state.schema)
        origin = self.groups.positions[state.name].part(first, last)
        table = no_records(state.schema)
        if last > first:
            table = with_types(self.states[state.name].take(origin, state.schema.names), schema)
            if np.any(origin.hashes[1:] == origin.hashes[:-1]):
                order = state_order(table, origin.hashes, state)
                table, origin = table.take(pa.array(order)), origin.at(order)
        keys = table.select(list(self.spec.key_of(state).names))
        starts, stops = ranges.starts[start:stop] - first, ranges.stops[start:stop] - first
        # The rows of the records that call their groups.
        calling = np.arange(table.num_rows if state.grouping == "outer" else 0)
        if state.timers and self.woken is not None:
            calling = np.flatnonzero(is_due(table, self.woken.until))
        return _Flow(state.name, table, keys, starts, stops, origin, calling)


def _split(
    flows: Sequence[_Flow], hashes: Int64s, schema: pa.Schema
) -> tuple[pa.Table, Int64s, list[_Flow]]:
    """Return keys, hashes and flows with one group per key; keys of one hash in order.

    With inner grouping, state keys that nothing called are left out, so their records stay
    unchanged.
    """
    numbers = [np.repeat(np.arange(len(hashes)), f.stops - f.starts) for f in flows]
    tables = [with_types(f.keys.rename_columns(schema.names), schema) for f in flows]
    codes = row_codes(tables, numbers)
    keys, number, code = _called(flows, tables, numbers, codes)
    group_of = np.full(max(int(c.max(initial=-1)) for c in codes) + 1, -1, np.int64)
    group_of[code] = np.arange(len(code))
    apart = [_regrouped(f, group_of[c], len(code)) for f, c in zip(flows, codes, strict=True)]
    return keys, hashes[number], apart


def _called(
    flows: Sequence[_Flow], tables: Sequence[pa.Table], numbers: list[Int64s], codes: list[Int64s]
) -> tuple[pa.Table, Int64s, Int64s]:
    """Return key, hash number and code of every called group, in order."""
    calls = [flow.calling for flow in flows]
    all_codes = np.concatenate([c[rows] for c, rows in zip(codes, calls, strict=True)])
    _, first = np.unique(all_codes, return_index=True)
    calling = [t.take(pa.array(rows)) for t, rows in zip(tables, calls, strict=True)]
    keys = pa.concat_tables(calling).take(pa.array(first))
    number = np.concatenate([n[rows] for n, rows in zip(numbers, calls, strict=True)])[first]
    numbered = keys.append_column("_number", pa.array(number))
    by = [(name, "ascending", "at_start") for name in ("_number", *keys.column_names)]
    order = pc.sort_indices(numbered, sort_keys=by).to_numpy().astype(np.int64)
    return keys.take(pa.array(order)), number[order], all_codes[first][order]


def _regrouped(flow: _Flow, groups: Int64s, count: int) -> _Flow:
    """Return a flow's records sorted by new groups; records of group -1 are left out."""
    order = np.argsort(groups, kind="stable")[int((groups < 0).sum()) :]
    stops = np.cumsum(np.bincount(groups[groups >= 0], minlength=count)).astype(np.int64)
    starts = np.concatenate([np.zeros(1, np.int64), stops[:-1]])
    rows = pa.array(order)
    origin = None if flow.origin is None else flow.origin.at(order)
    chosen_rows = flow.table.take(rows)
    return _Flow(flow.name, chosen_rows, flow.keys.take(rows), starts, stops, origin, flow.calling)
