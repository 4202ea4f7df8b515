"""One bucket of one run: cut into windows, call the author, settle its state.

    flows (sorted) ----\
                        group ranges -> window -> translate per group -> outputs
    state (look-up) ---/                                             '-> state: kept, died, new,
                                                                         and of other keys

A window is some thousands of records that are Python objects at the same time. What
state records were emitted again is kept at no cost, what was not dies, what is new is
written: the cost of a run follows the records that it changes.

Invariant: after a run a bucket's live records of a called group are exactly what the
author emitted for it; of every other group what they were. What is emitted for another
key than the group's is remote: it is handed on, and never among these
(tests/cbp/engine/test_direct.py).
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import count

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cbp.engine import window as windows
from cbp.engine.arrow import arrow_schema
from cbp.engine.call import Binding, Emitted, author_error, calling_loop, group_type
from cbp.engine.deliveries import Deliveries
from cbp.engine.groups import FlowRun, Int64s, Ranges, group_ranges, union, window_ends
from cbp.engine.largestate import LargeState
from cbp.engine.rows import ENCODE_ERRORS, Row, encode_rows
from cbp.engine.settle import Settled, settle
from cbp.engine.state.bucket import BucketState, Found
from cbp.engine.state.large import LargeGroup, large_groups, without
from cbp.engine.vectorised.codes import row_codes
from cbp.engine.window import Source, Window, WindowReader
from cbp.errors import InvariantError
from cbp.model.stage import StateSpec, TranslatorSpec

__all__ = ["WINDOW_ROWS", "BucketRun", "look_up", "rows_that_fit", "state_file_schema"]

WINDOW_ROWS = 16_384
"""Records that are Python objects at a time; of twice as many each costs more, for the caches."""

WINDOW_BYTES = 64 << 20
"""Of the records of a window; of rows below 4 KB the number decides."""


def state_file_schema(spec: StateSpec) -> pa.Schema:
    """Return the schema of a state table's data files: its columns, and the hash."""
    return arrow_schema(spec.schema).append(pa.field("_hash", pa.int64()))


def look_up(
    spec: TranslatorSpec,
    runs: Sequence[FlowRun],
    states: Mapping[str, BucketState],
    *,
    deliveries: Deliveries | None = None,
) -> tuple[Int64s, dict[str, Found]]:
    """Return the hashes to call, and the records that each state has for them."""
    hashes, found, _ = look_up_large(spec, runs, states, above=sys.maxsize, deliveries=deliveries)
    return hashes, found


def rows_that_fit(
    runs: Sequence[FlowRun],
    states: Mapping[str, BucketState],
    *,
    rows_max: int,
    bytes_max: int,
) -> int:
    """Return how many records may be worked on at a time, judged by those of the widest flow.

    Args:
        states: Looked up, since what was found tells how wide it is.
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
) -> tuple[Int64s, dict[str, Found], dict[str, dict[int, LargeGroup]]]:
    """Return the same, with the groups of each state of more than `above` records apart."""
    hashes = union([*(run.hashes for run in runs), *([deliveries.hashes] if deliveries else [])])
    found: dict[str, Found] = {}
    large: dict[str, dict[int, LargeGroup]] = {}
    whole = {
        state.name
        for state in spec.states
        if state.grouping == "outer" or (deliveries and deliveries.reaches(state.name))
    }
    for state in sorted(spec.states, key=lambda state: state.name not in whole):
        wanted = None if state.name in whole else hashes
        groups = large[state.name] = large_groups(states[state.name], wanted, above)
        found[state.name] = without(states[state.name], list(groups), wanted)
        if wanted is None:
            of_groups = np.array(sorted(groups), np.int64)
            hashes = union([hashes, found[state.name].hashes, of_groups])
    return hashes, found, large


@dataclass
class BucketRun:
    """See the module header; `run` is called once.

    Attributes:
        write_state: Takes new records of a state, as tables that ascend by hash.
        write_remote: Takes columns of a state's records that belong to other keys than the
            group that emitted them, in any order.
        write_bindings: Takes what groups bound to addresses.
        deliveries: What the groups share, if anything.
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
    deliveries: Deliveries | None = None
    groups: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        names = (*(i.name for i in self.spec.inputs), *(s.name for s in self.spec.states))
        absent = tuple(i.name for i in self.spec.absent)
        self._group = group_type((*names, *absent))()
        for name in absent:
            setattr(self._group, name, iter(()))
        self._loop = calling_loop(names, tuple(self.states))

    def run(self) -> None:
        """Call the author for every group of this bucket."""
        hashes, found, large = look_up_large(
            self.spec,
            self.runs,
            self.states,
            above=windows.LARGE_ROWS,
            deliveries=self.deliveries,
        )
        flows = [*(r.hashes for r in self.runs), *(found[s.name].hashes for s in self.spec.states)]
        ranges = group_ranges(hashes, flows)
        reader = WindowReader(
            self.spec,
            runs=self.runs,
            states=self.states,
            found=found,
            hashes=hashes,
            ranges=ranges,
            large=large,
            deliveries=self.deliveries,
        )
        start = 0
        sizes = [*ranges, *(_sizes(hashes, groups) for groups in large.values() if groups)]
        if self.deliveries is not None:
            sizes.append(self.deliveries.sizes(hashes))
        most = rows_that_fit(self.runs, self.states, rows_max=WINDOW_ROWS, bytes_max=WINDOW_BYTES)
        for stop in window_ends(sizes, len(hashes), most):
            self._work(reader.read(start, stop))
            gc.collect(0)  # cycles that the author's code left; the window itself is gone
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
            raise self._explain(window, exc) from exc
        for buffer in self.emitted.buffers.values():
            buffer.clear()

    def _call(self, window: Window) -> dict[str, list[int]]:
        """Call the author for every group; return where each group's state emissions end."""
        ends: list[list[int]] = [[] for _ in self.states]
        flows = [source.groups() for source in window.sources]
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
        except Exception as exc:
            raise self._failure(exc, window, next(done) - 1) from exc
        return dict(zip(self.states, ends, strict=True))

    def _work_large(self, window: Window) -> None:
        """Call one group that does not fit in memory; what it emits is worked on meanwhile."""
        with ExitStack() as stack:
            states = [
                LargeState(
                    source,
                    self.emitted.buffers[spec.name],
                    died=self.states[spec.name].kill,
                    born=partial(self._born, spec, window),
                )
                for spec, source in zip(self.spec.states, window.states, strict=True)
            ]
            for state in states:
                stack.enter_context(state)
            inputs = [self._lazily(source, states) for source in window.inputs]
            flows = [*inputs, *(state.read(partial(self._drain, states)) for state in states)]
            for source, rows in zip(window.sources, flows, strict=True):
                setattr(self._group, source.name, rows)
            out = self.emitted.flushing(windows.LARGE_ROWS, partial(self._drain, states))
            try:
                self.spec.translate(window.keys[0], self._group, out)
                self._drain(states)
                for state in states:
                    state.finish()
            except ENCODE_ERRORS as exc:
                # Emitted records are encoded while the author still reads.
                raise self._failure(self._explain(window, exc), window, 0) from exc
            except Exception as exc:
                raise self._failure(exc, window, 0) from exc

    def _lazily(self, source: Source, states: Sequence[LargeState]) -> Iterator[Row]:
        """Yield an input's records; what was emitted meanwhile leaves memory."""
        for chunk in [source.rows] if source.chunks is None else source.chunks():
            yield from chunk
            self._drain(states)

    def _drain(self, states: Sequence[LargeState]) -> None:
        self._write_outputs()
        for state in states:
            state.drain()
        gc.collect(0)  # cycles that the author's code left

    def _write_outputs(self) -> None:
        for output in self.spec.outputs:
            rows = self.emitted.buffers[output.name]
            if rows:
                self.write_output(output.name, encode_rows(rows, output.schema))
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
        """Write new records of a window's only group."""
        nothing = np.empty(0, np.int64)
        self._write_state(spec, Settled(nothing, np.zeros(len(rows), np.int64), rows), window)

    def _write_state(self, spec: StateSpec, settled: Settled, window: Window) -> None:
        """Write new records; a state of the group itself has that group's hash."""
        columns, groups = encode_rows(settled.born, spec.schema), settled.groups
        remote = self._remote(spec, groups, columns, window)
        if remote is not None:
            others, own = pa.array(remote), pa.array(~remote)
            self.write_remote(spec.name, [column.filter(others) for column in columns])
            columns, groups = [column.filter(own) for column in columns], groups[~remote]
        if len(groups):
            hashes = pa.array(window.hashes[groups])
            table = pa.Table.from_arrays([*columns, hashes], schema=state_file_schema(spec))
            self.write_state(spec.name, table)

    def _remote(
        self, spec: StateSpec, groups: Int64s, columns: list[pa.Array], window: Window
    ) -> npt.NDArray[np.bool_] | None:
        """Tell which records are for another key than their group's; `None`: none is."""
        schema = window.key_table.schema
        places = [spec.schema.index(name) for name in self.spec.key_of(spec).names]
        arrays = [
            columns[place].cast(field.type) for place, field in zip(places, schema, strict=True)
        ]
        emitted = pa.Table.from_arrays(arrays, schema=schema)
        expected = window.key_table.take(pa.array(groups))
        if emitted.equals(expected):
            return None
        # Not alike as columns, as NaN never is; as values they may be.
        mine, theirs = row_codes([expected, emitted])
        remote: npt.NDArray[np.bool_] = mine != theirs
        return remote if remote.any() else None

    def _failure(self, exc: Exception, window: Window, at: int) -> Exception:
        inputs = {source.name: source.of(at) for source in window.sources}
        return author_error(exc, self.spec, stage=self.stage, key=window.keys[at], inputs=inputs)

    def _explain(self, window: Window, exc: Exception) -> Exception:
        """Call the groups of a window again, to find who emitted what does not fit."""
        out = Emitted(self.spec, checked=True).out
        for at, key in enumerate(window.keys):
            for source in window.sources:
                rows = iter(source.of(at)) if source.chunks is None else _all(source.chunks())
                setattr(self._group, source.name, rows)
            try:
                self.spec.translate(key, self._group, out)
            except Exception as again:
                return self._failure(again, window, at)
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
