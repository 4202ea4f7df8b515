"""One bucket of one run: cut into windows, call the author, settle its state.

    flows (sorted) ----\
                        group ranges -> window -> translate per group -> outputs
    state (look-up) ---/                                             '-> state: kept, died, new

A window is some thousands of records that are Python objects at the same time. State
is settled per group: what was emitted again is kept at no cost, what was not dies, what
is new is written. The cost of a run therefore follows the records it changes.

Invariant: after a run a bucket's live records of a called group are exactly what the
author emitted for it; of every other group what they were (tests/cbp/engine/test_direct.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from cbp.engine.arrow import arrow_schema
from cbp.engine.call import Emitted, author_error, group_type
from cbp.engine.groups import FlowRun, Int64s, Ranges, group_ranges, window_ends
from cbp.engine.rows import Row, decode_columns, encode_rows, identity, row_type
from cbp.engine.state.bucket import BucketState, Found
from cbp.errors import InvariantError
from cbp.model.stage import StateSpec, TranslatorSpec

__all__ = ["WINDOW_ROWS", "BucketRun", "state_file_schema"]

WINDOW_ROWS = 16_384
_ENCODE_ERRORS = (pa.ArrowException, OverflowError, TypeError, ValueError)


def state_file_schema(spec: StateSpec) -> pa.Schema:
    """Return the schema of a state table's data files: its columns, and the hash."""
    return arrow_schema(spec.schema).append(pa.field("_hash", pa.int64()))


@dataclass(slots=True)
class _Source:
    """One flow of a window: its records, and each group's slice of them."""

    name: str
    rows: list[Row]
    starts: list[int]
    stops: list[int]

    def of(self, group: int) -> list[Row]:
        return self.rows[self.starts[group] : self.stops[group]]


@dataclass
class BucketRun:
    """See the module header; `run` is called once.

    Attributes:
        written: After `run`: new state records, as tables sorted by hash.
        groups: Number of groups that were called.
    """

    stage: str
    spec: TranslatorSpec
    runs: Sequence[FlowRun]
    states: Mapping[str, BucketState]
    emitted: Emitted
    write_output: Callable[[str, list[pa.Array]], None]
    written: dict[str, list[pa.Table]] = field(init=False)
    groups: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        assert self.spec.key is not None, "only groupwise translators have buckets"
        self.written = {name: [] for name in self.states}
        self._key = row_type("Key", self.spec.key.names)
        self._group = group_type(self.spec)()
        self._rows = {
            flow.name: row_type(flow.name, flow.schema.names)
            for flow in (*self.spec.inputs, *self.spec.states)
        }
        self._key_columns = {
            s.name: tuple(s.schema.index(c) for c in self.spec.key.names) for s in self.spec.states
        }

    def run(self) -> None:
        """Call the author for every group of this bucket."""
        hashes = np.unique(np.concatenate([run.hashes for run in self.runs]))
        self._found: dict[str, Found] = {}
        for spec in self.spec.states:
            outer = spec.grouping == "outer"
            self._found[spec.name] = self.states[spec.name].find(None if outer else hashes)
        outers = [s.name for s in self.spec.states if s.grouping == "outer"]
        if outers:
            hashes = np.unique(np.concatenate([hashes, *(self._found[n].hashes for n in outers)]))
            for spec in self.spec.states:
                if spec.grouping == "inner":
                    self._found[spec.name] = self.states[spec.name].find(hashes)
        self._hashes: Int64s = hashes
        ranges = group_ranges(
            hashes,
            [
                *(r.hashes for r in self.runs),
                *(self._found[s.name].hashes for s in self.spec.states),
            ],
        )
        start = 0
        for stop in window_ends(ranges, len(hashes), WINDOW_ROWS):
            self._window(ranges, start, stop)
            start = stop

    def _window(self, ranges: list[Ranges], start: int, stop: int) -> None:
        flows = [
            self._flow_source(run, r, start, stop)
            for run, r in zip(self.runs, ranges[: len(self.runs)], strict=True)
        ]
        kept = [
            self._state_source(spec, r, start, stop)
            for spec, r in zip(self.spec.states, ranges[len(self.runs) :], strict=True)
        ]
        states = [source for source, _ in kept]
        origins = [origin for _, origin in kept]
        keys, pure = self._keys(ranges, flows, states, start, stop)
        hashes = self._hashes[start:stop].tolist()
        if not pure:
            keys, hashes, flows, states, origins = self._split(
                ranges, flows, states, origins, start
            )
        ends = self._call(keys, [*flows, *states])
        self.groups += len(keys)
        try:
            self._settle(keys, hashes, states, origins, ends)
            self._write_outputs()
        except _ENCODE_ERRORS as exc:
            raise self._explain(keys, [*flows, *states], exc) from exc
        for buffer in self.emitted.buffers.values():
            buffer.clear()

    # what the author is given

    def _flow_source(self, run: FlowRun, ranges: Ranges, start: int, stop: int) -> _Source:
        first, last = int(ranges.starts[start]), int(ranges.stops[stop - 1])
        rows = list(map(self._rows[run.name]._make, run.rows(first, last))) if last > first else []
        return _source(run.name, rows, ranges, start, stop, first)

    def _state_source(
        self, spec: StateSpec, ranges: Ranges, start: int, stop: int
    ) -> tuple[_Source, Found]:
        """Return the state records of a window, each group's ordered by all columns."""
        found = self._found[spec.name]
        first, last = int(ranges.starts[start]), int(ranges.stops[stop - 1])
        part = Found(found.hashes[first:last], found.file[first:last], found.position[first:last])
        rows: list[Row] = []
        if last > first:
            table = self.states[spec.name].take(part, 0, last - first, spec.schema.names)
            if np.any(part.hashes[1:] == part.hashes[:-1]):
                order = _state_order(table, part.hashes, spec)
                table = table.take(pa.array(order))
                part = Found(part.hashes[order], part.file[order], part.position[order])
            types = [f.type for f in spec.schema.fields]
            decoded = decode_columns(table, spec.schema.names, types)
            rows = list(map(self._rows[spec.name]._make, decoded))
        return _source(spec.name, rows, ranges, start, stop, first), part

    def _keys(
        self,
        ranges: list[Ranges],
        flows: list[_Source],
        states: list[_Source],
        start: int,
        stop: int,
    ) -> tuple[list[Any], bool]:
        """Return each group's key, and whether every record of a group has that key."""
        keys: list[Any] = [None] * (stop - start)
        pure = True
        for run, r in zip(self.runs, ranges[: len(self.runs)], strict=True):
            at = np.flatnonzero(r.stops[start:stop] > r.starts[start:stop])
            if not len(at):
                continue
            first = run.keys_at(r.starts[start:stop][at])
            many = (r.stops - r.starts)[start:stop][at] > 1
            last = run.keys_at(r.stops[start:stop][at] - 1) if many.any() else first
            pure = pure and first == last
            for i, key in zip(at.tolist(), first, strict=True):
                if keys[i] is None:
                    keys[i] = key
                elif keys[i] != key:
                    pure = False
        for source in states:
            columns = self._key_columns[source.name]
            for i in range(len(keys)):
                for row in source.of(i):
                    key = tuple(row[c] for c in columns)
                    if keys[i] is None:
                        keys[i] = key
                    elif keys[i] != key:
                        pure = False
        return list(map(self._key._make, keys)), pure

    def _split(
        self,
        ranges: list[Ranges],
        flows: list[_Source],
        states: list[_Source],
        origins: list[Found],
        start: int,
    ) -> tuple[list[Any], list[int], list[_Source], list[_Source], list[Found]]:
        """Take a window apart by key, where one hash stands for several keys.

        Keys of one hash are visited in order; a state key that nothing called, under
        inner grouping, is left out and so keeps its records.
        """
        sources = [*flows, *states]
        parts: list[list[list[Row]]] = [[] for _ in sources]
        places: list[list[list[int]]] = [[] for _ in states]
        keys: list[Any] = []
        hashes: list[int] = []
        for g in range(len(sources[0].starts)):
            by_key = [self._by_key(s, g, ranges[i], start + g) for i, s in enumerate(sources)]
            called = {k for i, s in enumerate(by_key) if self._calls(i) for k in s}
            for key in sorted(called, key=_ordering):
                keys.append(self._key(*key))
                hashes.append(int(self._hashes[start + g]))
                for i, found in enumerate(by_key):
                    at = found.get(key, [])
                    parts[i].append([sources[i].rows[p] for p in at])
                    if i >= len(flows):
                        places[i - len(flows)].append(at)
        made = [_joined(s.name, p) for s, p in zip(sources, parts, strict=True)]
        moved = []
        for origin, place in zip(origins, places, strict=True):
            flat = np.array([p for at in place for p in at], dtype=np.int64)
            moved.append(Found(origin.hashes[flat], origin.file[flat], origin.position[flat]))
        return keys, hashes, made[: len(flows)], made[len(flows) :], moved

    def _calls(self, source: int) -> bool:
        """Whether a flow's records call their group."""
        if source < len(self.runs):
            return True
        return self.spec.states[source - len(self.runs)].grouping == "outer"

    def _by_key(self, source: _Source, group: int, r: Ranges, at: int) -> dict[Row, list[int]]:
        rows = range(source.starts[group], source.stops[group])
        found: dict[Row, list[int]] = {}
        if source.name in self._key_columns:
            columns = self._key_columns[source.name]
            keys: Sequence[Row] = [tuple(source.rows[p][c] for c in columns) for p in rows]
        else:
            run = next(run for run in self.runs if run.name == source.name)
            keys = run.keys_at(np.arange(r.starts[at], r.stops[at])) if len(rows) else []
        for position, key in zip(rows, keys, strict=True):
            found.setdefault(key, []).append(position)
        return found

    # the call

    def _call(self, keys: list[Any], sources: list[_Source]) -> dict[str, list[int]]:
        """Call the author for every group; return where each group's state emissions end."""
        translate, group, out = self.spec.translate, self._group, self.emitted.out
        ends: dict[str, list[int]] = {name: [] for name in self.states}
        marks = [(self.emitted.buffers[name], ends[name]) for name in self.states]
        flows = [(s.name, s.rows, s.starts, s.stops) for s in sources]
        i = 0
        try:
            for i, key in enumerate(keys):  # noqa: B007 - read where the call failed
                for name, rows, starts, stops in flows:
                    setattr(group, name, iter(rows[starts[i] : stops[i]]))
                translate(key, group, out)
                for buffer, mark in marks:
                    mark.append(len(buffer))
        except Exception as exc:
            raise self._failure(exc, keys[i], sources, i) from exc
        return ends

    def _failure(self, exc: Exception, key: Any, sources: list[_Source], i: int) -> Exception:
        inputs = {source.name: source.of(i) for source in sources}
        return author_error(exc, self.spec, stage=self.stage, key=key, inputs=inputs)

    def _explain(self, keys: list[Any], sources: list[_Source], exc: Exception) -> Exception:
        """Call the groups of a window again, to find who emitted what does not fit."""
        out = Emitted(self.spec, checked=True).out
        for i, key in enumerate(keys):
            for source in sources:
                setattr(self._group, source.name, iter(source.of(i)))
            try:
                self.spec.translate(key, self._group, out)
            except Exception as again:
                return self._failure(again, key, sources, i)
        return InvariantError(
            f"stage {self.stage!r}: {self.spec.name} emitted what does not fit ({exc}), "
            "but not when it was called again: it is not deterministic"
        )

    # what the author emitted

    def _write_outputs(self) -> None:
        for output in self.spec.outputs:
            rows = self.emitted.buffers[output.name]
            if rows:
                self.write_output(output.name, encode_rows(rows, output.schema))

    def _settle(
        self,
        keys: list[Any],
        hashes: list[int],
        states: list[_Source],
        origins: list[Found],
        ends: dict[str, list[int]],
    ) -> None:
        for spec, source, origin in zip(self.spec.states, states, origins, strict=True):
            new: list[Row] = []
            new_hashes: list[int] = []
            for group, row in self._changes(spec, source, origin, ends[spec.name]):
                self._check_key(spec, row, keys[group], states, group)
                new.append(row)
                new_hashes.append(hashes[group])
            if new:
                columns = [*encode_rows(new, spec.schema), pa.array(new_hashes, pa.int64())]
                table = pa.Table.from_arrays(columns, schema=state_file_schema(spec))
                self.written[spec.name].append(table)

    def _changes(
        self, spec: StateSpec, source: _Source, origin: Found, ends: list[int]
    ) -> Iterator[tuple[int, Row]]:
        """Yield (group, record) for what is new; mark what died."""
        emitted, state = self.emitted.buffers[spec.name], self.states[spec.name]
        files, positions = origin.file, origin.position
        start = 0
        for group, end in enumerate(ends):
            first, last = source.starts[group], source.stops[group]
            olds, news = source.rows[first:last], emitted[start:end]
            start = end
            if olds == news:
                continue
            died, born = _difference(olds, news)
            for at in died:
                state.kill(int(files[first + at]), int(positions[first + at]))
            for row in born:
                yield group, row

    def _check_key(
        self, spec: StateSpec, row: Row, key: Row, states: list[_Source], group: int
    ) -> None:
        got = tuple(row[c] for c in self._key_columns[spec.name])
        if got != key:
            message = (
                f"state {spec.name!r} was emitted for the key {got!r}, "
                "not for the key of its group; emit it where that key is called"
            )
            raise self._failure(ValueError(message), key, states, group)


def _difference(olds: list[Row], news: list[Row]) -> tuple[list[int], list[Row]]:
    """Return which of `olds` are not emitted again, and which of `news` are new; as multisets."""
    if not olds:
        return [], news
    if len(olds) == 1 and len(news) == 1:
        return [0], news
    wanted = Counter(map(identity, news))
    died = []
    for at, old in enumerate(olds):
        same = identity(old)
        if wanted[same] > 0:
            wanted[same] -= 1
        else:
            died.append(at)
    born = []
    for row in news:
        same = identity(row)
        if wanted[same] > 0:
            wanted[same] -= 1
            born.append(row)
    return died, born


def _source(
    name: str, rows: list[Row], ranges: Ranges, start: int, stop: int, first: int
) -> _Source:
    starts = (ranges.starts[start:stop] - first).tolist()
    return _Source(name, rows, starts, (ranges.stops[start:stop] - first).tolist())


def _joined(name: str, groups: list[list[Row]]) -> _Source:
    starts, stops, rows = [], [], []
    for part in groups:
        starts.append(len(rows))
        rows.extend(part)
        stops.append(len(rows))
    return _Source(name, rows, starts, stops)


def _ordering(key: Row) -> tuple[tuple[bool, Any], ...]:
    """Order keys with nulls first."""
    return tuple((value is not None, value) for value in key)


def _state_order(table: pa.Table, hashes: Int64s, spec: StateSpec) -> Int64s:
    """Return the order by (hash, every column that can be compared), nulls first."""
    columns = [f.name for f in spec.schema.fields if not f.type.arguments]
    sortable = table.select(columns).append_column("_hash", pa.array(hashes))
    keys = [("_hash", "ascending", "at_start"), *((c, "ascending", "at_start") for c in columns)]
    order: Int64s = pa.compute.sort_indices(sortable, sort_keys=keys).to_numpy().astype(np.int64)
    return order
