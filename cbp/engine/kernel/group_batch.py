"""Group batches, called windows: records of some groups as Python objects, a slice per group.

A window is built from whole columns. A group's key is read from the first flow that has the group,
and compared with the keys of all its records, as columns. The window is separated by key (`_split`)
only if one hash belongs to several keys. A large group's records are in ranges of mapped files. At
the first request they are sorted on disk, together with their places, by which those that die are
marked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from cbp.engine.columnar.arrow_types import Int64s, arrow_schema
from cbp.engine.columnar.groups import (
    FlowKeys,
    FlowRun,
    Ranges,
    group_keys,
    key_rows,
    positive_zeros,
)
from cbp.engine.columnar.row_codec import decode_lists, decode_table, rows_maker
from cbp.engine.columnar.values import Row
from cbp.engine.kernel.groups_to_call import find_groups
from cbp.engine.kernel.kept_groups import KeptSource
from cbp.engine.kernel.named_records import named_by
from cbp.engine.shuffle.delivery import Deliveries
from cbp.engine.state.bucket_state import BucketState, RecordPositions
from cbp.engine.state.due_groups import Woken
from cbp.engine.state.large_groups import LargeGroup
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.engine.storage.external_sort import order_by_columns, sorted_tables
from cbp.model.dataflow.run_context import microseconds
from cbp.model.dataflow.stage import TIMER_COLUMN, StateSpec, TranslatorSpec


class StateStream:
    """The records of one large group of a state; see the module header."""

    def __init__(
        self,
        spec: StateSpec,
        group: LargeGroup,
        make: Callable[[Iterable[Row]], list[Row]],
        limits: EngineLimits,
    ) -> None:
        self._spec, self._group, self._make, self._limits = spec, group, make, limits
        self._rows_max, self._names = limits.large_group_rows, spec.schema.names

    def keys(self, columns: Sequence[str]) -> pa.Table:
        """Return the only key, or at least two of the distinct keys if there are several."""
        distinct = None
        for table, _ in self._group.tables(columns):
            # For Arrow, the two zeros are two keys: without this, the search would stop at them.
            keys = positive_zeros(table).group_by(list(columns)).aggregate([])
            distinct = keys if distinct is None else pa.concat_tables([distinct, keys])
            distinct = distinct.group_by(list(columns)).aggregate([])
            if len(distinct) > 1:
                break
        assert distinct is not None, "a large group has records"
        return distinct.select(list(columns))

    def first(self, rows: int) -> list[Row]:
        """Return some records, for error messages."""
        table, _ = next(self._group.tables(self._names))
        return self.decoded(table.slice(0, rows))

    def chunks(self) -> Iterator[list[Row]]:
        """Yield the records in order, in chunks."""
        return (self.decoded(table) for table, _ in self.tables())

    def tables(self) -> Iterator[tuple[pa.Table, RecordPositions]]:
        """Yield the records in order as Arrow tables, each with the places of its records."""
        for table in sorted_tables(self._located(), self._spec.order, limits=self._limits):
            for start in range(0, table.num_rows, self._rows_max):
                part = table.slice(start, self._rows_max)
                yield part, self._places(part)

    def unordered(self) -> Iterator[tuple[pa.Table, RecordPositions]]:
        """Yield what `tables` yields, in any order, which is cheaper."""
        for table, positions in self._group.tables(self._names):
            for start in range(0, table.num_rows, self._rows_max):
                stop = start + self._rows_max
                yield table.slice(start, self._rows_max), positions.part(start, stop)

    def positions(self) -> Iterator[RecordPositions]:
        """Yield the places of the records, in any order."""
        return self._group.positions()

    def decoded(self, table: pa.Table) -> list[Row]:
        """Return the records of a table as the author reads them."""
        return self._make(decode_table(table, self._spec.schema))

    def _located(self) -> Iterator[pa.Table]:
        for table, positions in self._group.tables(self._names):
            self._group.state.bytes_read += table.nbytes
            located = table.append_column("_file", pa.array(positions.file))
            yield located.append_column("_position", pa.array(positions.position))

    def _places(self, part: pa.Table) -> RecordPositions:
        hashes = np.full(part.num_rows, self._group.hash, np.int64)
        file, position = (part.column(name).to_numpy() for name in ("_file", "_position"))
        return RecordPositions(hashes, file, position)


_SHOWN_ROWS = 3

_OTHERS_MAX = 0.25
"""If a larger share of the groups has no record or several, every group is sliced."""


@dataclass(slots=True)
class Source:
    """One flow of a window; group g has `rows[starts[g]:stops[g]]`.

    Attributes:
        origin: For a state, the place of every record; for an input, `None`.
        chunks: For a group too large for a window: each call returns a new iterator over its
            records in chunks; `rows` then holds only the first few, for error messages.
        stream: For such a group's state: its records and their places.
        times: For hidden timers, without `rows`: when each is due, in microseconds since 1970.
    """

    name: str
    rows: list[Row]
    starts: Int64s
    stops: Int64s
    origin: RecordPositions | None = None
    chunks: Callable[[], Iterator[list[Row]]] | None = None
    stream: StateStream | None = None
    times: Int64s | None = None

    @property
    def sizes(self) -> Int64s:
        """Number of records of every group."""
        return self.stops - self.starts

    def of(self, group: int) -> list[Row]:
        """Return the records of a group."""
        return self.rows[self.starts[group] : self.stops[group]]

    def groups(self) -> Iterator[Sequence[Row]]:
        """Yield the records of each group in turn."""
        if len(self.rows) == len(self.starts) and bool(np.all(self.sizes == 1)):
            return zip(self.rows, strict=True)
        others = np.flatnonzero(self.sizes != 1)
        if len(others) > len(self.starts) * _OTHERS_MAX:
            slices = map(slice, self.starts.tolist(), self.stops.tolist())
            return map(self.rows.__getitem__, slices)
        # Most have one record: a tuple of one record costs half as much as a slice.
        firsts = np.minimum(self.starts, len(self.rows) - 1)
        groups: list[Sequence[Row]] = list(zip(map(self.rows.__getitem__, firsts.tolist())))
        starts, stops = self.starts[others].tolist(), self.stops[others].tolist()
        for group, start, stop in zip(others.tolist(), starts, stops, strict=True):
            groups[group] = self.rows[start:stop]
        return iter(groups)


@dataclass(slots=True)
class Window:
    """Some groups, ready to be called; parallel lists with one entry per group.

    `states` has the states whose records are replaced by the emitted ones. `arrived` has the
    inputs' records as columns, and each group's rows in them. It is empty if there are few or too
    many records, if groups had to be distinguished by key, or if groups share records.
    """

    keys: list[Any]
    key_table: pa.Table
    hashes: Int64s
    inputs: list[Source]
    states: list[Source]
    kept: list[KeptSource] = field(default_factory=list)
    lookups: list[Source] = field(default_factory=list)
    looked_up_by_key: list[KeptSource] = field(default_factory=list)
    arrived: Sequence[tuple[FlowRun, Ranges]] = ()

    def release(self) -> None:
        """Forget the records that the groups found by key, after the groups are done."""
        for source in (*self.kept, *self.looked_up_by_key):
            source.release()

    @property
    def sources(self) -> list[Source]:
        """Inputs, then states that are not kept, then looked-up tables."""
        return [*self.inputs, *self.states, *self.lookups]

    @property
    def flows(self) -> list[Source | KeptSource]:
        """All flows, in the order in which the author gets them."""
        return [*self.sources, *self.kept, *self.looked_up_by_key]


class WindowReader:
    """Reads the windows of one bucket; a group with too many records has its own window."""

    def __init__(
        self,
        spec: TranslatorSpec,
        *,
        runs: Sequence[FlowRun],
        states: Mapping[str, BucketState],
        limits: EngineLimits,
        deliveries: Deliveries | None = None,
        woken: Woken | None = None,
    ) -> None:
        assert spec.key is not None, "only groupwise translators have groups"
        self._spec, self._runs, self._states = spec, runs, states
        self._deliveries, self._limits, self._woken = deliveries, limits, woken
        self._groups = find_groups(
            spec, runs, states, above=limits.large_group_rows, deliveries=deliveries, woken=woken
        )
        self._hashes, self._ranges = self._groups.hashes, self._groups.ranges
        self._key_types = tuple(column.type for column in spec.key.fields)
        self._key_schema = arrow_schema(spec.key, wide=True)
        self._key = rows_maker("Key", spec.key.names)
        schemas = {
            **{input_.name: input_.schema for input_ in spec.inputs},
            **{state.name: state.schema for state in spec.states},
            **{lookup.name: lookup.schema for lookup in spec.lookups},
        }
        self._rows = {name: rows_maker(name, schema.names) for name, schema in schemas.items()}

    def spans(self) -> Iterator[tuple[int, int]]:
        """Yield the first group of each window, and the last one + 1."""
        rows, size = self._limits.window_rows, self._limits.window_bytes
        return self._groups.spans(rows_max=rows, bytes_max=size)

    def read(self, start: int, stop: int) -> Window:
        """Return the groups `start` to `stop`."""
        window = self._window(start, stop)
        window.kept = [self._kept(state, window) for state in self._spec.kept]
        by_key = self._spec.looked_up_by_key
        window.looked_up_by_key = [self._kept(table, window) for table in by_key]
        return window

    def _kept(self, state: StateSpec, window: Window) -> KeptSource:
        named = None
        if flows := window.arrived:
            records = [source.rows for source in window.inputs]
            named = partial(named_by, state, self._spec.inputs, flows, records)
        return KeptSource(
            state,
            self._spec,
            self._states[state.name],
            self._rows[state.name],
            hashes=window.hashes,
            keys=window.keys,
            key_table=window.key_table,
            named=named,
        )

    def _window(self, start: int, stop: int) -> Window:
        window, flows, pure = self._read(start, stop, large=self._limits.large_group_rows)
        if pure:
            rows = sum(int(ranges.stops[-1] - ranges.starts[0]) for _, ranges in flows)
            limits = self._limits
            whole = self._deliveries is None and not any(one.chunks for one in window.inputs)
            if whole and limits.named_rows <= rows <= limits.window_rows:
                window.arrived = flows
            return window
        if any(source.chunks or source.times is not None for source in window.sources):
            window, flows, _ = self._read(start, stop, large=None)
        return self._split(window, flows)

    def _read(
        self, start: int, stop: int, *, large: int | None
    ) -> tuple[Window, list[tuple[FlowRun, Ranges]], bool]:
        """Return a window, its flows, and whether every record of a group has the group's key."""
        states, state_keys = self._read_states(start, stop, large=large)
        flows = self._flows(start, stop, state_keys)
        inputs, keys, flat = [], [], None
        for run, ranges in flows:
            first, last = int(ranges.starts[0]), int(ranges.stops[-1])
            starts, stops = ranges.starts - first, ranges.stops - first
            table = run.key_table(first, last)
            keys.append(FlowKeys(table, starts, stops, ordered=True))
            if large is not None and stop - start == 1 and last - first > large:
                inputs.append(self._large(run, self._rows[run.name], first, last))
                continue
            lists = run.lists(first, last)
            rows = self._rows[run.name](zip(*lists, strict=True))
            inputs.append(Source(run.name, rows, starts, stops))
            if not flat and len(rows) == stop - start and bool(np.all(stops - starts == 1)):
                flat = run.keys_in(lists)
        key_table, pure = group_keys([*keys, *state_keys], stop - start, self._key_schema)
        # Otherwise a flow has one record per group: its key columns, decoded already, are the keys.
        if not flat or not pure:
            flat = decode_lists(key_table, key_table.column_names, self._key_types)
        made = self._key(key_rows(zip(*flat, strict=True), self._key_types))
        hashes = self._hashes[start:stop]
        states, lookups = states[: len(self._spec.replaced)], states[len(self._spec.replaced) :]
        return Window(made, key_table, hashes, inputs, states, lookups=lookups), flows, pure

    def _read_states(
        self, start: int, stop: int, *, large: int | None
    ) -> tuple[list[Source], list[FlowKeys]]:
        states, keys = [], []
        read = (*self._spec.replaced, *self._spec.looked_up)
        for spec, ranges in zip(read, self._ranges[len(self._runs) :], strict=True):
            group = self._groups.large[spec.name].get(int(self._hashes[start]))
            if spec.expires and large is not None:
                source, table = self._timers(spec, ranges, start, stop)
                keys.append(FlowKeys(table, source.starts, source.stops, ordered=False))
            elif group is not None and large is not None:
                assert stop - start == 1, "a large group has a window of its own"
                source, table = self._streamed(spec, group)
                keys.append(FlowKeys(table, source.starts, np.array([len(table)]), ordered=False))
            else:
                source, table = self._state(spec, ranges, start, stop, group)
                keys.append(FlowKeys(table, source.starts, source.stops, ordered=False))
            states.append(source)
        return states, keys

    def _flows(
        self, start: int, stop: int, states: Sequence[FlowKeys]
    ) -> list[tuple[FlowRun, Ranges]]:
        ranges = [r.part(start, stop) for r in self._ranges[: len(self._runs)]]
        if self._deliveries is not None:
            return self._deliveries.flows(self._hashes[start:stop], ranges, states)
        return list(zip(self._runs, ranges, strict=True))

    def _large(
        self, run: FlowRun, make: Callable[[Iterable[Row]], list[Row]], first: int, last: int
    ) -> Source:
        """Return one group that is read lazily; the flow's run is in Arrow memory or on disk."""
        step = self._limits.large_group_rows

        def chunks() -> Iterator[list[Row]]:
            for start in range(first, last, step):
                yield make(run.rows(start, min(start + step, last)))

        shown = make(run.rows(first, first + _SHOWN_ROWS))
        return Source(run.name, shown, np.array([0]), np.array([len(shown)]), chunks=chunks)

    def _streamed(self, spec: StateSpec, group: LargeGroup) -> tuple[Source, pa.Table]:
        """Return the state of one large group, to be read lazily, and its distinct keys."""
        stream = StateStream(spec, group, self._rows[spec.name], self._limits)
        shown = stream.first(_SHOWN_ROWS)
        source = Source(spec.name, shown, np.array([0]), np.array([len(shown)]))
        source.chunks, source.stream = stream.chunks, stream
        return source, stream.keys(self._spec.key_of(spec).names)

    def _state(
        self, spec: StateSpec, ranges: Ranges, start: int, stop: int, group: LargeGroup | None
    ) -> tuple[Source, pa.Table]:
        """Return a state's records, ordered within each group, and their keys."""
        first, last = int(ranges.starts[start]), int(ranges.stops[stop - 1])
        origin = self._groups.positions[spec.name].part(first, last)
        starts, stops = ranges.starts[start:stop] - first, ranges.stops[start:stop] - first
        if group is not None:
            origin = RecordPositions.concat(list(group.positions()))
            starts, stops = np.array([0]), np.array([len(origin.position)])
        if not len(origin.position):
            return Source(spec.name, [], starts, stops, origin), self._key_schema.empty_table()
        table = self._states[spec.name].take(origin, spec.schema.names)
        rows = self._rows[spec.name](decode_table(table, spec.schema))
        keys = table.select(list(self._spec.key_of(spec).names))
        if np.any(origin.hashes[1:] == origin.hashes[:-1]):
            # Reordered as a list, not as a table: this does not copy the rows.
            order = state_order(table, origin.hashes, spec)
            rows = list(map(rows.__getitem__, order.tolist()))
            keys, origin = keys.take(pa.array(order)), origin.at(order)
        return Source(spec.name, rows, starts, stops, origin), keys

    def _timers(
        self, spec: StateSpec, ranges: Ranges, start: int, stop: int
    ) -> tuple[Source, pa.Table]:
        first, last = int(ranges.starts[start]), int(ranges.stops[stop - 1])
        origin = self._groups.positions[spec.name].part(first, last)
        starts, stops = ranges.starts[start:stop] - first, ranges.stops[start:stop] - first
        keys, times = self._key_schema.empty_table(), np.empty(0, np.int64)
        if len(origin.position):
            table = self._states[spec.name].take(origin, spec.schema.names)
            keys = table.select(list(self._spec.key_of(spec).names))
            times = table.column(TIMER_COLUMN).cast(pa.int64()).to_numpy()
        return Source(spec.name, [], starts, stops, origin, times=times), keys

    def _split(self, window: Window, flows: Sequence[tuple[FlowRun, Ranges]]) -> Window:
        """Return the window with one group per key; keys of one hash in order.

        State keys that nothing called are left out, so their records stay unchanged.
        """
        read = (*self._spec.replaced, *self._spec.looked_up)
        keys: list[Any] = []
        groups: list[int] = []
        chosen: list[list[list[int]]] = [[] for _ in window.sources]
        for group in range(len(window.hashes)):
            spans = [(run, int(of.starts[group]), int(of.stops[group])) for run, of in flows]
            keys_of = [run.keys_of(start, stop) for run, start, stop in spans]
            keys_of += [
                self._state_keys(spec, source, group)
                for spec, source in zip(read, window.sources[len(flows) :], strict=True)
            ]
            by_key = list(map(partial(_by_key, group), window.sources, keys_of))
            called = {
                key
                for at, source in enumerate(window.sources)
                for key, positions in by_key[at].items()
                if self._calls(at, source, positions)
            }
            for key in sorted(called, key=lambda one: [(part is not None, part) for part in one]):
                keys += self._key([key])
                groups.append(group)
                for at, positions_by_key in enumerate(by_key):
                    chosen[at].append(positions_by_key.get(key, []))
        sources = [_chosen(s, c) for s, c in zip(window.sources, chosen, strict=True)]
        states = sources[len(window.inputs) :]
        columns = zip(*keys, strict=True) if keys else ((),) * len(self._key_schema)
        arrays = [
            pa.array(column, field.type)
            for column, field in zip(columns, self._key_schema, strict=True)
        ]
        key_table = pa.Table.from_arrays(arrays, schema=self._key_schema)
        hashes = window.hashes[groups]
        inputs, states = sources[: len(window.inputs)], states[: len(window.states)]
        lookups = sources[len(inputs) + len(states) :]
        for spec, source in zip(self._spec.replaced, states, strict=True):
            if spec.expires:
                at = spec.schema.index(TIMER_COLUMN)
                times = [microseconds(row[at]) for row in source.rows]
                source.rows, source.times = [], np.array(times, np.int64)
        return Window(keys, key_table, hashes, inputs, states, lookups=lookups)

    def _calls(self, at: int, source: Source, positions: Iterable[int]) -> bool:
        many = len(self._runs)
        if at < many:
            return True
        if at >= many + len(self._spec.replaced):
            return False  # looked-up records call no group
        state = self._spec.replaced[at - many]
        if state.timers and self._woken is not None:
            place, until = state.schema.index(TIMER_COLUMN), self._woken.until
            return any(source.rows[position][place] <= until for position in positions)
        return state.grouping == "outer"

    def _state_keys(self, state: StateSpec, source: Source, group: int) -> list[Row]:
        places = [state.schema.index(name) for name in self._spec.key_of(state).names]
        raw = (tuple(row[place] for place in places) for row in source.of(group))
        return key_rows(raw, self._key_types)


def _by_key(group: int, source: Source, keys: Iterable[Row]) -> dict[Row, list[int]]:
    positions_by_key: dict[Row, list[int]] = {}
    rows = range(int(source.starts[group]), int(source.stops[group]))
    for position, key in zip(rows, keys, strict=True):
        positions_by_key.setdefault(key, []).append(position)
    return positions_by_key


def _chosen(source: Source, groups: list[list[int]]) -> Source:
    flat = [at for group in groups for at in group]
    stops = np.cumsum([len(group) for group in groups], dtype=np.int64)
    starts = np.concatenate([np.zeros(1, np.int64), stops[:-1]])
    rows = [source.rows[at] for at in flat]
    origin = None if source.origin is None else source.origin.at(np.array(flat, np.int64))
    return Source(source.name, rows, starts, stops, origin)


def state_order(table: pa.Table, hashes: Int64s, spec: StateSpec) -> Int64s:
    """Return the order by (hash, `order_by`, every other comparable column), nulls first."""
    sortable = table.select(list(spec.order)).append_column("_hash", pa.array(hashes))
    return order_by_columns(sortable, ["_hash", *spec.order])
