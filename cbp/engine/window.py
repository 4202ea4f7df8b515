"""A window of groups: the records of every flow as Python objects, and each group's slice.

Built from whole columns. A group's key is read from the first flow that has it; that all
its records have that key is verified on lists, at C speed. Where one hash stands for
several keys, `split` takes the window apart by key; only such a window pays for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cbp.engine.groups import FlowRun, Int64s, Ranges, key_rows
from cbp.engine.rows import Row, decode_columns, row_type
from cbp.engine.state.bucket import BucketState, Found
from cbp.model.stage import StateSpec, TranslatorSpec

__all__ = ["LARGE_ROWS", "Source", "Window", "WindowReader"]

LARGE_ROWS = 65_536
"""Records of one group and one input above which they are read chunk by chunk."""


_SHOWN_ROWS = 3


@dataclass(slots=True)
class Source:
    """One flow of a window.

    Attributes:
        starts, stops: Group g has `rows[starts[g]:stops[g]]`.
        keys: Of a state: the key of every record; of an input: empty.
        origin: Of a state: where every record lies; of an input: `None`.
        chunks: Of a group too large for a window: its records, chunk by chunk, each time
            anew; `rows` then holds only the first of them, for messages.
    """

    name: str
    rows: list[Row]
    starts: list[int]
    stops: list[int]
    keys: list[Row]
    origin: Found | None = None
    chunks: Callable[[], Iterator[list[Row]]] | None = None

    def of(self, group: int) -> list[Row]:
        """Return the records of a group."""
        return self.rows[self.starts[group] : self.stops[group]]


@dataclass(slots=True)
class Window:
    """Some groups, ready to be called: parallel lists, one entry per group."""

    keys: list[Any]
    hashes: list[int]
    inputs: list[Source]
    states: list[Source]

    @property
    def sources(self) -> list[Source]:
        """Inputs, then states."""
        return [*self.inputs, *self.states]


class WindowReader:
    """Reads windows of one bucket.

    Args:
        hashes: The hashes of the groups to call, ascending.
        found: The looked-up records of each state, by name.
        ranges: Of every input, then of every state: the rows of each hash.
    """

    def __init__(
        self,
        spec: TranslatorSpec,
        *,
        runs: Sequence[FlowRun],
        states: dict[str, BucketState],
        found: dict[str, Found],
        hashes: Int64s,
        ranges: list[Ranges],
    ) -> None:
        assert spec.key is not None, "only groupwise translators have groups"
        self._spec, self._runs, self._states, self._found = spec, runs, states, found
        self._hashes, self._ranges = hashes, ranges
        self._key = row_type("Key", spec.key.names)
        schemas = {
            **{input_.name: input_.schema for input_ in spec.inputs},
            **{state.name: state.schema for state in spec.states},
        }
        self._rows = {name: row_type(name, schema.names) for name, schema in schemas.items()}

    def read(self, start: int, stop: int) -> Window:
        """Return the groups `start` to `stop`."""
        window, pure = self._read(start, stop, large=LARGE_ROWS)
        if pure:
            return window
        if any(source.chunks for source in window.inputs):
            window, _ = self._read(start, stop, large=None)
        return self._split(window, start)

    def _read(self, start: int, stop: int, *, large: int | None) -> tuple[Window, bool]:
        """Return a window, and whether every record of a group has the group's key."""
        many = len(self._runs)
        inputs = [
            self._input(run, ranges, start, stop, large)
            for run, ranges in zip(self._runs, self._ranges[:many], strict=True)
        ]
        states = [
            self._state(spec, ranges, start, stop)
            for spec, ranges in zip(self._spec.states, self._ranges[many:], strict=True)
        ]
        keys, pure = self._keys(states, start, stop)
        hashes = self._hashes[start:stop].tolist()
        return Window(list(map(self._key._make, keys)), hashes, inputs, states), pure

    def _input(
        self, run: FlowRun, ranges: Ranges, start: int, stop: int, large: int | None
    ) -> Source:
        first, last = int(ranges.starts[start]), int(ranges.stops[stop - 1])
        make = self._rows[run.name]._make
        if large is not None and stop - start == 1 and last - first > large:
            return self._large(run, make, first, last)
        rows = list(map(make, run.rows(first, last))) if last > first else []
        return Source(run.name, rows, *_slices(ranges, start, stop, first), [])

    def _large(
        self, run: FlowRun, make: Callable[[Iterable[Any]], Row], first: int, last: int
    ) -> Source:
        """Return one group that is read lazily; the flow's run lies in Arrow, or on disk."""

        def chunks() -> Iterator[list[Row]]:
            for start in range(first, last, LARGE_ROWS):
                yield list(map(make, run.rows(start, min(start + LARGE_ROWS, last))))

        shown = list(map(make, run.rows(first, first + _SHOWN_ROWS)))
        return Source(run.name, shown, [0], [len(shown)], [], chunks=chunks)

    def _state(self, spec: StateSpec, ranges: Ranges, start: int, stop: int) -> Source:
        """Return a state's records, each group's ordered by all columns."""
        found = self._found[spec.name]
        first, last = int(ranges.starts[start]), int(ranges.stops[stop - 1])
        origin = found.part(first, last)
        rows: list[Row] = []
        keys: list[Row] = []
        if last > first:
            assert self._spec.key is not None
            table = self._states[spec.name].take(origin, spec.schema.names)
            if np.any(origin.hashes[1:] == origin.hashes[:-1]):
                order = _state_order(table, origin.hashes, spec)
                table, origin = table.take(pa.array(order)), origin.at(order)
            names = spec.schema.names
            decoded = decode_columns(table, names, [f.type for f in spec.schema.fields])
            rows = list(map(self._rows[spec.name]._make, decoded))
            places = [spec.schema.index(name) for name in self._spec.key.names]
            found_keys = zip(*([row[at] for row in rows] for at in places), strict=True)
            keys = key_rows(found_keys, [column.type for column in self._spec.key.fields])
        return Source(spec.name, rows, *_slices(ranges, start, stop, first), keys, origin)

    def _keys(self, states: list[Source], start: int, stop: int) -> tuple[list[Row], bool]:
        """Return each group's key, and whether every record of a group has that key.

        Records of one hash are sorted by key: if first and last agree, all do.
        """
        keys: list[Any] = [None] * (stop - start)
        pure = True
        for run, ranges in zip(self._runs, self._ranges[: len(self._runs)], strict=True):
            starts, stops = ranges.starts[start:stop], ranges.stops[start:stop]
            at = np.flatnonzero(stops > starts)
            first = run.keys_at(starts[at])
            pure = pure and bool(
                np.all(stops[at] - starts[at] == 1) or first == run.keys_at(stops[at] - 1)
            )
            pure = _merge(keys, at.tolist(), first) and pure
        for source in states:
            sizes = np.array(source.stops) - np.array(source.starts)
            pure = (
                _merge(keys, np.repeat(np.arange(len(keys)), sizes).tolist(), source.keys) and pure
            )
        return keys, pure

    def _split(self, window: Window, start: int) -> Window:
        """Return the window's groups apart by key, keys of one hash in order.

        A state key that nothing called, under inner grouping, is left out, and so its
        records stay what they are.
        """
        keys: list[Any] = []
        hashes: list[int] = []
        chosen: list[list[list[int]]] = [[] for _ in window.sources]
        for group, hash_ in enumerate(window.hashes):
            by_key = [self._by_key(at, s, group, start) for at, s in enumerate(window.sources)]
            called = {key for at, found in enumerate(by_key) if self._calls(at) for key in found}
            for key in sorted(called, key=_nulls_first):
                keys.append(self._key(*key))
                hashes.append(hash_)
                for at, found in enumerate(by_key):
                    chosen[at].append(found.get(key, []))
        sources = [_chosen(s, c) for s, c in zip(window.sources, chosen, strict=True)]
        many = len(window.inputs)
        return Window(keys, hashes, sources[:many], sources[many:])

    def _calls(self, source: int) -> bool:
        """Whether a flow's records call their group."""
        many = len(self._runs)
        return source < many or self._spec.states[source - many].grouping == "outer"

    def _by_key(self, at: int, source: Source, group: int, start: int) -> dict[Row, list[int]]:
        """Return key -> positions in `source.rows` of one group's records."""
        rows = range(source.starts[group], source.stops[group])
        if source.origin is not None:
            keys = source.keys[rows.start : rows.stop]
        else:
            ranges = self._ranges[at]
            first, last = ranges.starts[start + group], ranges.stops[start + group]
            keys = self._runs[at].keys_at(np.arange(first, last))
        found: dict[Row, list[int]] = {}
        for position, key in zip(rows, keys, strict=True):
            found.setdefault(key, []).append(position)
        return found


def _merge(keys: list[Any], groups: list[int], found: list[Row]) -> bool:
    """Fill in the keys of some groups; tell whether none of them had another key."""
    before = [keys[group] for group in groups]
    if before == found:
        return True
    pure = all(old is None or old == new for old, new in zip(before, found, strict=True))
    for group, key in zip(groups, found, strict=True):
        if pure and keys[group] is not None and keys[group] != key:
            pure = False
        keys[group] = key
    return pure


def _slices(ranges: Ranges, start: int, stop: int, first: int) -> tuple[list[int], list[int]]:
    starts = (ranges.starts[start:stop] - first).tolist()
    return starts, (ranges.stops[start:stop] - first).tolist()


def _chosen(source: Source, groups: list[list[int]]) -> Source:
    """Return the source with exactly these records per group."""
    flat = [at for group in groups for at in group]
    stops = np.cumsum([len(group) for group in groups]).tolist()
    return Source(
        source.name,
        [source.rows[at] for at in flat],
        [0, *stops[:-1]],
        stops,
        [source.keys[at] for at in flat] if source.keys else [],
        None if source.origin is None else source.origin.at(np.array(flat, np.int64)),
    )


def _nulls_first(key: Row) -> tuple[tuple[bool, Any], ...]:
    return tuple((value is not None, value) for value in key)


def _state_order(table: pa.Table, hashes: Int64s, spec: StateSpec) -> Int64s:
    """Return the order by (hash, every column that can be compared), nulls first."""
    columns = [f.name for f in spec.schema.fields if not f.type.arguments]
    sortable = table.select(columns).append_column("_hash", pa.array(hashes))
    keys = [(name, "ascending", "at_start") for name in ("_hash", *columns)]
    order: Int64s = pc.sort_indices(sortable, sort_keys=keys).to_numpy().astype(np.int64)
    return order
