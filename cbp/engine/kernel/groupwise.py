"""Runs a groupwise translator on one bucket: cuts windows, calls the author, diffs the state.

    flows (sorted) ----\
                        group ranges -> window -> translate per group -> outputs
    state (look-up) ---/                                             '-> state: kept, died, new,
                                                                         and of other keys

Invariant: after a run, the live records of a called group are exactly those that the author emitted
for it; in a kept state, those that it had, changed by the author's puts and deletions. The records
of other groups are unchanged. Records emitted by `.remote` are appended to another key's state, and
are never among the records above. Local state for another key is an author's error
(tests/cbp/engine/test_direct.py, tests/cbp/engine/test_kept_state.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, compress, count, repeat
from typing import Any

import numpy as np
import pyarrow as pa

from cbp.engine.columnar.arrow_types import Mask
from cbp.engine.columnar.author_errors import author_error, not_deterministic
from cbp.engine.columnar.groups import FlowRun
from cbp.engine.columnar.looked_up import LookedUp, WholeTable
from cbp.engine.columnar.row_codec import (
    ENCODE_ERRORS,
    copies_maker,
    encode_rows,
    floats_rounder,
)
from cbp.engine.columnar.values import Row
from cbp.engine.kernel.arrow.emission import OutputKeys
from cbp.engine.kernel.author_call import Emitted, calling_loop, free_cycles, new_group
from cbp.engine.kernel.expiry import Expiry, Wrote
from cbp.engine.kernel.group_batch import Source, Window, WindowReader
from cbp.engine.kernel.large_state import LargeState, LargeView
from cbp.engine.kernel.state_settlement import StateSettlement
from cbp.engine.kernel.view_changes import ViewChanges
from cbp.engine.shuffle.delivery import Deliveries
from cbp.engine.shuffle.multicast_bindings import Binding
from cbp.engine.state.bucket_state import BucketState, RecordPositions
from cbp.engine.state.due_groups import Woken
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.errors import AuthorMisuse, is_authors
from cbp.model.author.read_once import Once, read_freely
from cbp.model.dataflow.call_rules import refuse_returned
from cbp.model.dataflow.expiry import authored
from cbp.model.dataflow.run_context import NO_RUN, RunContext
from cbp.model.dataflow.stage import StateSpec, TranslatorSpec


@dataclass
class GroupwiseRun:
    """One bucket of a run; `run` is called once. New state records come ascending by hash."""

    stage: str
    spec: TranslatorSpec
    runs: Sequence[FlowRun]
    states: dict[str, BucketState]
    emitted: Emitted
    write_output: Callable[[str, list[pa.Array]], None]
    write_state: Callable[[str, pa.Table], None]
    write_remote: Callable[[str, list[pa.Array]], None]
    write_bindings: Callable[[list[Binding]], None]
    limits: EngineLimits
    deliveries: Deliveries | None = None
    context: RunContext = NO_RUN
    woken: Woken | None = None
    lookups: Mapping[str, BucketState] = field(default_factory=dict)
    whole_tables: Mapping[str, WholeTable] = field(default_factory=dict)
    groups: int = field(init=False, default=0)
    _read: Callable[[], Window] = field(init=False, repr=False)
    _expiry: Expiry | None = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        shown = authored(self.spec)
        once = (*(i.name for i in shown.inputs), *(s.name for s in shown.replaced))
        self._hidden = frozenset(timers.name for timers in self.spec.expiries)
        if self._hidden:
            wakes = self.woken is not None
            self._expiry = Expiry(self.spec, self.context.time, wakes=wakes)
        kept = tuple(state.name for state in self.spec.kept)
        tables = (*self.spec.looked_up, *self.spec.looked_up_by_key)
        handed = (*kept, *(table.name for table in tables))
        names, absent = (*once, *handed), tuple(i.name for i in self.spec.absent)
        self._group = new_group((*names, *absent, *self.whole_tables), self.spec, self.context)
        for name in absent:
            setattr(self._group, name, iter(()))
        for name, table in self.whole_tables.items():
            setattr(self._group, name, LookedUp(table.records(), name))
        self._output_keys = OutputKeys(self.spec)
        self._rounders = {s.name: floats_rounder(s.schema) for s in self.spec.replaced}
        self._copies = {s.name: copies_maker(s.name, s.schema) for s in self.spec.replaced}
        watched = read_freely(self.spec.translate, once)
        self._settlement = StateSettlement(
            self.spec, self.states, self.write_output, self.write_state
        )
        self._emits = tuple(name for name in self.states if name not in self._hidden)
        self._loop = calling_loop(names, self._emits, watched, frozenset(handed))
        self._tables = {**self.states, **self.lookups}

    def run(self) -> None:
        """Call the author for every group of this bucket."""
        reader = WindowReader(
            self.spec,
            runs=self.runs,
            states=self._tables,
            limits=self.limits,
            deliveries=self.deliveries,
            woken=self.woken,
        )
        for start, stop in reader.spans():
            self._read = partial(reader.read, start, stop)
            window = self._read()
            self._work(window)
            window.release()
            del window
            free_cycles()

    def _work(self, window: Window) -> None:
        called = None if self._expiry is None else self._expiry.called(window)
        self._output_keys.begin(window.key_table)
        self.groups += len(window.keys) if called is None else int(called.sum())
        if any(source.chunks is not None for source in window.sources):
            self._work_large(window, idle=called is not None and not called[0])
            return
        ends = self._call(window, called)
        wrote: Wrote = {}
        if self._expiry is not None and called is not None:
            wrote = self._expiry.complete(window, called, self.emitted.buffers, ends)
        try:
            for spec, source in zip(self.spec.replaced, window.states, strict=True):
                if spec.expires:
                    continue
                emitted, rounder = self.emitted.buffers[spec.name], self._rounders[spec.name]
                if rounder is not None:
                    emitted = rounder(emitted)
                self._settlement.settle(spec, source, window, emitted, ends[spec.name])
            for kept in window.kept:
                operations = self.emitted.buffers[kept.name]
                self._settlement.settle_kept(kept, window, operations, ends[kept.name])
            if called is not None:
                self._settle_timers(window, called, wrote)
            self._write_outputs()
        except (*ENCODE_ERRORS, AuthorMisuse) as exc:
            raise self._explain(exc) from exc
        for buffer in self.emitted.buffers.values():
            buffer.clear()

    def _call(self, window: Window, called: Mask | None) -> dict[str, list[int]]:
        """Call the author for every group; return where each group's state emissions end."""
        ends: list[list[int]] = [[] for _ in self._emits]
        sources = (*window.inputs, *window.states)
        flows: list[Iterator[Any]] = [
            repeat(()) if self._forgets(source) else self._given(source).groups()
            for source in sources
            if source.name not in self._hidden
        ]
        flows += [source.groups() for source in window.kept]
        flows += [map(LookedUp, one.groups(), repeat(one.name)) for one in window.lookups]
        flows += [source.groups() for source in window.looked_up_by_key]
        keys, numbers = window.keys, np.arange(len(window.keys))
        if called is not None and not called.all():
            keys = list(compress(keys, called))
            flows = [compress(flow, called) for flow in flows]
            numbers = np.flatnonzero(called)
        done = count()
        try:
            buffers = [self.emitted.buffers[name] for name in self._emits]
            translate = self._translate(window)
            self._loop(keys, flows, done, translate, self._group, self.emitted.out, buffers, ends)
        except BaseException as exc:
            if not is_authors(exc):
                raise
            raise self._failure(exc, int(numbers[next(done) - 1])) from exc
        return dict(zip(self._emits, ends, strict=True))

    def _settle_timers(self, window: Window, called: Mask, wrote: Wrote) -> None:
        assert self._expiry is not None, "only states that expire have timers"
        for hidden in self.spec.expiries:
            state = self.spec.state(hidden.expires)
            timers = self._expiry.changed_timers(state, window, called, wrote[state.name])
            self._settlement.settle_timers(hidden, window, timers)

    def _forgets(self, source: Source) -> bool:
        """Return whether a state is empty for the author, since its groups are recomputed."""
        return bool(self.spec.anew) and (source.origin is not None or source.stream is not None)

    def _translate(self, window: Window) -> Callable[..., object]:
        """Return the author's function; when recomputing, it skips groups that end up empty."""
        translate = self.spec.translate
        if not self.spec.anew:
            return translate
        emptied = iter(_emptied(window, self.spec.anew).tolist())

        def call(key: Any, group: Any, out: Any) -> object:
            return None if next(emptied) else translate(key, group, out)

        return call

    def _given(self, source: Source) -> Source:
        """Return a source for the author; state records that are compared later are copied."""
        copies = self._copies.get(source.name)
        return source if copies is None else replace(source, rows=copies(source.rows))

    def _work_large(self, window: Window, *, idle: bool) -> None:
        """Call one group that does not fit in memory; emitted records are processed meanwhile."""
        with ExitStack() as stack:
            states = [
                self._large_state(spec, source, window)
                for spec, source in zip(self.spec.replaced, window.states, strict=True)
                if not spec.expires
            ]
            for state in states:
                stack.enter_context(state)
            inputs = [self._lazily(source, states) for source in window.inputs]
            drain = partial(self._drain, states)
            read = (iter(()) if self.spec.anew else state.read(drain) for state in states)
            flows = [*inputs, *read]
            sources = (*window.inputs, *window.states)
            read_once = (source for source in sources if source.name not in self._hidden)
            for source, rows in zip(read_once, flows, strict=True):
                setattr(self._group, source.name, Once(rows, source.name))
            self._hand_over(window, 0)
            out = self.emitted.flushing(self.limits.large_group_rows, partial(self._drain, states))
            try:
                if idle:
                    self._emit_idle(window, states, flows[len(window.inputs) :])
                else:
                    translate = self._translate(window)
                    refuse_returned(translate(window.keys[0], self._group, out))
                self._drain(states)
                wrote = self._wrote(states, idle=idle)
                for state in states:
                    state.finish()
                for kept in window.kept:
                    operations = self.emitted.buffers[kept.name]
                    self._settlement.settle_kept(kept, window, operations, [len(operations)])
                    operations.clear()
                if self._expiry is not None:
                    self._settle_timers(window, np.array([not idle]), wrote)
            except (*ENCODE_ERRORS, AuthorMisuse) as exc:
                # A wrong record shows here: emitted records are encoded while the author's code
                # still reads.
                raise self._failure(self._explain(exc), 0) from exc
            except BaseException as exc:
                if not is_authors(exc):
                    raise
                raise self._failure(exc, 0) from exc

    def _hand_over(self, window: Window, at: int) -> None:
        """Set the flows that a group can read repeatedly: kept states and looked-up tables."""
        for kept in (*window.kept, *window.looked_up_by_key):
            setattr(self._group, kept.name, kept.handle(at))
        for source in window.lookups:
            records = _Chunked(source) if source.chunks else source.of(at)
            setattr(self._group, source.name, LookedUp(records, source.name))
        for name, table in self.whole_tables.items():
            setattr(self._group, name, LookedUp(table.records(), name))

    def _emit_idle(
        self, window: Window, states: Sequence[LargeState], read: Sequence[Iterator[Row]]
    ) -> None:
        assert self._expiry is not None, "only a stage whose states expire has idle groups"
        specs = (spec for spec in self.spec.replaced if not spec.expires)
        for spec, state, rows in zip(specs, states, read, strict=True):
            if self._expiry.is_expired(spec.name, window, 0):
                continue
            for row in rows:
                self.emitted.buffers[spec.name].append(row)
            state.drain()
        for spec in self.spec.kept:
            self.emitted.buffers[spec.name].extend(self._expiry.emissions_of(spec, window, 0))

    def _wrote(self, states: Sequence[LargeState], *, idle: bool) -> Wrote:
        specs = (spec for spec in self.spec.replaced if not spec.expires)
        wrote = {spec.name: state.has_emitted for spec, state in zip(specs, states, strict=True)}
        wrote |= {spec.name: bool(self.emitted.buffers[spec.name]) for spec in self.spec.kept}
        return {name: np.array([one and not idle]) for name, one in wrote.items()}

    def _large_state(self, spec: StateSpec, source: Source, window: Window) -> LargeState:
        state = self.states[spec.name]
        view = None
        if spec.changes:
            view = LargeView(ViewChanges(spec, self.write_output), state, self.limits)

        def died(records: RecordPositions) -> None:
            state.kill(records)
            if view is not None:
                view.died(records)

        def born(rows: list[Row]) -> None:
            columns = self._settlement.write_born(spec, window, rows)
            if view is not None:
                view.born(columns)

        return LargeState(
            source,
            self.emitted.buffers[spec.name],
            died=died,
            born=born,
            limits=self.limits,
            copies=self._copies[spec.name],
            rounder=self._rounders[spec.name],
            view=view,
        )

    def _lazily(self, source: Source, states: Sequence[LargeState]) -> Iterator[Row]:
        """Yield an input's records; after each chunk, emitted records are written out."""
        for chunk in [source.rows] if source.chunks is None else source.chunks():
            yield from chunk
            self._drain(states)

    def _drain(self, states: Sequence[LargeState]) -> None:
        self._write_outputs()
        for state in states:
            state.drain()
        free_cycles()

    def _write_outputs(self) -> None:
        for output in self.spec.emitted:
            rows = self.emitted.buffers[output.name]
            if rows:
                columns = encode_rows(rows, output.schema)
                self._output_keys.take(output.name, columns)
                self.write_output(output.name, columns)
                rows.clear()
        for name, rows in self.emitted.remote.items():
            if rows:
                self.write_remote(name, encode_rows(rows, self.emitted.schemas[name]))
                rows.clear()
        if self.emitted.bindings:
            self.write_bindings(self.emitted.bindings)
            self.emitted.bindings.clear()

    def _failure(self, exc: BaseException, at: int) -> Exception:
        window = self._read()  # read again: the author may have changed the given records
        shown = (source for source in window.flows if source.name not in self._hidden)
        inputs = {source.name: source.of(at) for source in shown}
        places = {
            run.name: place
            for run in self.runs
            if (place := run.first_place(int(window.hashes[at]))) is not None
        }
        key = window.keys[at]
        return author_error(exc, self.spec, stage=self.stage, key=key, inputs=inputs, places=places)

    def _explain(self, exc: Exception) -> Exception:
        """Call the groups of the window again, to find the line that emitted the wrong record."""
        checked, window = Emitted(self.spec, checked=True), self._read()
        called = None if self._expiry is None else self._expiry.called(window)
        if self.spec.anew:
            called = ~_emptied(window, self.spec.anew)
        for at, key in enumerate(window.keys):
            checked.begin(key)
            if called is not None and not called[at]:
                continue
            for source in (*window.inputs, *window.states):
                if source.name in self._hidden:
                    continue
                rows = iter(source.of(at) if source.chunks is None else _all(source.chunks()))
                if self._forgets(source):
                    rows = iter(())
                setattr(self._group, source.name, Once(rows, source.name))
            self._hand_over(window, at)
            try:
                self.spec.translate(key, self._group, checked.out)
            except Exception as again:
                return self._failure(again, at)
        return not_deterministic(self.stage, self.spec, exc)


def _emptied(window: Window, input_: str) -> Mask:
    """Return the groups that end up empty: those with a record of this input."""
    (source,) = (one for one in window.inputs if one.name == input_)
    return source.sizes > 0


@dataclass(frozen=True, slots=True)
class _Chunked:
    """The records of a looked-up group that does not fit in memory; read at each iteration."""

    source: Source

    def __iter__(self) -> Iterator[Row]:
        assert self.source.chunks is not None, "only large groups are read in chunks"
        return _all(self.source.chunks())


_all = chain.from_iterable
