"""Runs a groupwise translator on one bucket: cuts windows, calls the author, diffs the state.

    flows (sorted) ----\
                        group ranges -> window -> translate per group -> outputs
    state (look-up) ---/                                             '-> state: kept, died, new,
                                                                         and of other keys

A window is some thousands of records that are Python objects at the same time. State
records that were emitted again are kept at no cost, others are deleted, and new ones are
written: the cost of a run follows the records that it changes.

Invariant: after a run, a bucket's live records of a called group are exactly what the
author emitted for it, and those of every other group are unchanged. Records emitted by `.remote`
are appended to another key's state. They are handed on, and are never among the records above.
Local state for another key is an author's error (tests/cbp/engine/test_direct.py).
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count

import numpy as np
import pyarrow as pa

from cbp.engine.columnar.arrow_types import arrow_schema
from cbp.engine.columnar.author_errors import author_error
from cbp.engine.columnar.groups import FlowRun, Int64s, Ranges, group_ranges, union, window_ends
from cbp.engine.columnar.row_codec import ENCODE_ERRORS, Row, copies_maker, encode_rows
from cbp.engine.columnar.row_codes import row_codes
from cbp.engine.kernel.author_call import Emitted, calling_loop, group_type
from cbp.engine.kernel.large_state_writer import LargeState
from cbp.engine.kernel.state_diff import Settled, settle
from cbp.engine.kernel.window import Source, Window, WindowReader
from cbp.engine.shuffle.delivery import Deliveries
from cbp.engine.shuffle.multicast_bindings import Binding
from cbp.engine.state.bucket_state import BucketState, RecordPositions
from cbp.engine.state.large_groups import LargeGroup, large_groups, without
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.errors import InvariantError, is_authors
from cbp.model.author.read_once import Once, read_freely
from cbp.model.dataflow.call_rules import refuse_returned
from cbp.model.dataflow.stage import StateSpec, TranslatorSpec

__all__ = ["BucketRun", "look_up", "rows_that_fit", "state_file_schema"]


def state_file_schema(spec: StateSpec) -> pa.Schema:
    """Return the schema of a state table's data files: the state's columns and the hash."""
    return arrow_schema(spec.schema).append(pa.field("_hash", pa.int64()))


def look_up(
    spec: TranslatorSpec,
    runs: Sequence[FlowRun],
    states: Mapping[str, BucketState],
    *,
    deliveries: Deliveries | None = None,
) -> tuple[Int64s, dict[str, RecordPositions]]:
    """Return the hashes to call, and the records found for them in each state."""
    hashes, rows_by_state, _ = look_up_large(
        spec, runs, states, above=sys.maxsize, deliveries=deliveries
    )
    return hashes, rows_by_state


def rows_that_fit(
    runs: Sequence[FlowRun],
    states: Mapping[str, BucketState],
    *,
    rows_max: int,
    bytes_max: int,
) -> int:
    """Return how many records fit in `bytes_max` at a time, judged by the flow with widest rows.

    Args:
        runs: The inputs' records.
        states: States after their look-up, which tells how wide their records are.
        rows_max: Most records in any case.
        bytes_max: Most bytes.
    """
    widths = [*(run.row_bytes for run in runs), *(state.row_bytes for state in states.values())]
    return max(1, min(rows_max, bytes_max // max([1, *widths])))


def look_up_large(
    spec: TranslatorSpec,
    runs: Sequence[FlowRun],
    states: Mapping[str, BucketState],
    *,
    above: int,
    deliveries: Deliveries | None = None,
) -> tuple[Int64s, dict[str, RecordPositions], dict[str, dict[int, LargeGroup]]]:
    """Return what `look_up` does, but groups of more than `above` records of a state apart."""
    hashes = union([*(run.hashes for run in runs), *([deliveries.hashes] if deliveries else [])])
    rows_by_state: dict[str, RecordPositions] = {}
    large: dict[str, dict[int, LargeGroup]] = {}
    whole = {
        state.name
        for state in spec.states
        if state.grouping == "outer" or (deliveries and deliveries.reaches(state.name))
    }
    for state in sorted(spec.states, key=lambda state: state.name not in whole):
        wanted = None if state.name in whole else hashes
        groups = large[state.name] = large_groups(states[state.name], wanted, above)
        rows_by_state[state.name] = without(states[state.name], list(groups), wanted)
        if wanted is None:
            of_groups = np.array(sorted(groups), np.int64)
            hashes = union([hashes, rows_by_state[state.name].hashes, of_groups])
    return hashes, rows_by_state, large


@dataclass
class BucketRun:
    """One bucket of a run; see the module header. `run` is called once.

    Attributes:
        write_state: Called with new records of a state, as tables that ascend by hash.
        write_remote: Called with columns of the records that were emitted by a state's `.remote`,
            in any order.
        write_bindings: Called with the addresses that groups bound to keys.
        limits: How many records, and bytes of them, are Python objects at a time.
        deliveries: Records that the groups share, if any.
        groups: Number of groups that were called.
    """

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
    groups: int = field(init=False, default=0)
    _read: Callable[[], Window] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        names = (*(i.name for i in self.spec.inputs), *(s.name for s in self.spec.states))
        absent = tuple(i.name for i in self.spec.absent)
        self._group = group_type((*names, *absent))()
        for name in absent:
            setattr(self._group, name, iter(()))
        self._copies = {s.name: copies_maker(s.name, s.schema) for s in self.spec.states}
        watched = read_freely(self.spec.translate, names)
        self._loop = calling_loop(names, tuple(self.states), watched)

    def run(self) -> None:
        """Call the author for every group of this bucket."""
        hashes, rows_by_state, large = look_up_large(
            self.spec,
            self.runs,
            self.states,
            above=self.limits.large_group_rows,
            deliveries=self.deliveries,
        )
        flows = [
            *(r.hashes for r in self.runs),
            *(rows_by_state[s.name].hashes for s in self.spec.states),
        ]
        ranges = group_ranges(hashes, flows)
        reader = WindowReader(
            self.spec,
            runs=self.runs,
            states=self.states,
            found=rows_by_state,
            hashes=hashes,
            ranges=ranges,
            large=large,
            limits=self.limits,
            deliveries=self.deliveries,
        )
        start = 0
        sizes = [*ranges, *(_sizes(hashes, groups) for groups in large.values() if groups)]
        if self.deliveries is not None:
            sizes.append(self.deliveries.sizes(hashes))
        most = rows_that_fit(
            self.runs,
            self.states,
            rows_max=self.limits.window_rows,
            bytes_max=self.limits.window_bytes,
        )
        for stop in window_ends(sizes, len(hashes), most):
            self._read = partial(reader.read, start, stop)
            self._work(self._read())
            gc.collect(0)  # reference cycles of the author's code; the window itself is freed
            start = stop

    def _work(self, window: Window) -> None:
        if any(source.chunks is not None for source in window.sources):
            self._work_large(window)
            self.groups += 1
            return
        ends = self._call(window)
        self.groups += len(window.keys)
        try:
            for spec, source in zip(self.spec.states, window.states, strict=True):
                self._settle(spec, source, window, ends[spec.name])
            self._write_outputs()
        except ENCODE_ERRORS as exc:
            raise self._explain(exc) from exc
        for buffer in self.emitted.buffers.values():
            buffer.clear()

    def _call(self, window: Window) -> dict[str, list[int]]:
        """Call the author for every group; return where each group's state emissions end."""
        ends: list[list[int]] = [[] for _ in self.states]
        flows = [self._given(source).groups() for source in window.sources]
        done = count()
        try:
            buffers = [self.emitted.buffers[name] for name in self.states]
            self._loop(
                window.keys,
                flows,
                done,
                self.spec.translate,
                self._group,
                self.emitted.out,
                buffers,
                ends,
            )
        except BaseException as exc:
            if not is_authors(exc):
                raise
            raise self._failure(exc, next(done) - 1) from exc
        return dict(zip(self.states, ends, strict=True))

    def _given(self, source: Source) -> Source:
        """Return a source for the author; state records that are compared later are copied."""
        copies = self._copies.get(source.name)
        return source if copies is None else replace(source, rows=copies(source.rows))

    def _work_large(self, window: Window) -> None:
        """Call one group that does not fit in memory; emitted records are processed meanwhile."""
        with ExitStack() as stack:
            states = [
                LargeState(
                    source,
                    self.emitted.buffers[spec.name],
                    died=self.states[spec.name].kill,
                    born=partial(self._born, spec, window),
                    copies=self._copies[spec.name],
                )
                for spec, source in zip(self.spec.states, window.states, strict=True)
            ]
            for state in states:
                stack.enter_context(state)
            inputs = [self._lazily(source, states) for source in window.inputs]
            flows = [*inputs, *(state.read(partial(self._drain, states)) for state in states)]
            for source, rows in zip(window.sources, flows, strict=True):
                setattr(self._group, source.name, Once(rows, source.name))
            out = self.emitted.flushing(self.limits.large_group_rows, partial(self._drain, states))
            try:
                refuse_returned(self.spec.translate(window.keys[0], self._group, out))
                self._drain(states)
                for state in states:
                    state.finish()
            except ENCODE_ERRORS as exc:
                # Emitted records are encoded while the author's code still reads.
                raise self._failure(self._explain(exc), 0) from exc
            except BaseException as exc:
                if not is_authors(exc):
                    raise
                raise self._failure(exc, 0) from exc

    def _lazily(self, source: Source, states: Sequence[LargeState]) -> Iterator[Row]:
        """Yield an input's records; after each chunk, emitted records are written out."""
        for chunk in [source.rows] if source.chunks is None else source.chunks():
            yield from chunk
            self._drain(states)

    def _drain(self, states: Sequence[LargeState]) -> None:
        self._write_outputs()
        for state in states:
            state.drain()
        gc.collect(0)  # reference cycles of the author's code

    def _write_outputs(self) -> None:
        for output in self.spec.outputs:
            rows = self.emitted.buffers[output.name]
            if rows:
                self.write_output(output.name, encode_rows(rows, output.schema))
                rows.clear()
        for name, rows in self.emitted.remote.items():
            if rows:
                self.write_remote(name, encode_rows(rows, self.emitted.schemas[name]))
                rows.clear()
        if self.emitted.bindings:
            self.write_bindings(self.emitted.bindings)
            self.emitted.bindings.clear()

    def _settle(self, spec: StateSpec, source: Source, window: Window, ends: list[int]) -> None:
        settled = settle(source, self.emitted.buffers[spec.name], ends)
        assert source.origin is not None, "state records know where they lie"
        self.states[spec.name].kill(source.origin.at(settled.died))
        if settled.born:
            self._write_state(spec, settled, window)

    def _born(self, spec: StateSpec, window: Window, rows: list[Row]) -> None:
        """Write new state records of the only group of a window."""
        nothing = np.empty(0, np.int64)
        self._write_state(spec, Settled(nothing, np.zeros(len(rows), np.int64), rows), window)

    def _write_state(self, spec: StateSpec, settled: Settled, window: Window) -> None:
        """Write new records of a state, each with the hash of its group."""
        columns, groups = encode_rows(settled.born, spec.schema), settled.groups
        if self._is_foreign(spec, groups, columns, window):
            message = f"state {spec.name!r} was emitted for another key than its group's"
            raise ValueError(message)  # `_explain` finds the group
        if len(groups):
            hashes = pa.array(window.hashes[groups])
            table = pa.Table.from_arrays([*columns, hashes], schema=state_file_schema(spec))
            self.write_state(spec.name, table)

    def _is_foreign(
        self, spec: StateSpec, groups: Int64s, columns: list[pa.Array], window: Window
    ) -> bool:
        """Return whether a record is for another key than its group's."""
        schema = window.key_table.schema
        places = [spec.schema.index(name) for name in self.spec.key_of(spec).names]
        arrays = [
            columns[place].cast(field.type) for place, field in zip(places, schema, strict=True)
        ]
        emitted = pa.Table.from_arrays(arrays, schema=schema)
        expected = window.key_table
        if len(groups) != expected.num_rows or (np.diff(groups) != 1).any() or groups[:1].any():
            expected = expected.take(pa.array(groups))
        if emitted.equals(expected):
            return False
        # They differ as columns, as NaN always does; as values they may still be equal.
        mine, theirs = row_codes([expected, emitted])
        return bool((mine != theirs).any())

    def _failure(self, exc: BaseException, at: int) -> Exception:
        window = self._read()  # read again: the author may have changed the given records
        inputs = {source.name: source.of(at) for source in window.sources}
        return author_error(exc, self.spec, stage=self.stage, key=window.keys[at], inputs=inputs)

    def _explain(self, exc: Exception) -> Exception:
        """Call the groups of the window again, to find the line that emitted the wrong record."""
        checked, window = Emitted(self.spec, checked=True), self._read()
        for at, key in enumerate(window.keys):
            checked.key = key
            for source in window.sources:
                rows = iter(source.of(at)) if source.chunks is None else _all(source.chunks())
                setattr(self._group, source.name, Once(rows, source.name))
            try:
                self.spec.translate(key, self._group, checked.out)
            except Exception as again:
                return self._failure(again, at)
        return InvariantError(
            f"stage {self.stage!r}: {self.spec.name} emitted what does not fit ({exc}), "
            "but not when it was called again: it is not deterministic"
        )


def _sizes(hashes: Int64s, groups: Mapping[int, LargeGroup]) -> Ranges:
    """Return the sizes of some groups, as ranges that begin at 0."""
    sizes = np.zeros(len(hashes), np.int64)
    for hash_, group in groups.items():
        sizes[np.searchsorted(hashes, hash_)] = group.rows
    return Ranges(np.zeros(len(hashes), np.int64), sizes)


def _all(chunks: Iterable[list[Row]]) -> Iterator[Row]:
    for chunk in chunks:
        yield from chunk
