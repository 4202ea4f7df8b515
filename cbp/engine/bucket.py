"""One bucket of one run: cut into windows, call the author, settle its state.

    flows (sorted) ----\
                        group ranges -> window -> translate per group -> outputs
    state (look-up) ---/                                             '-> state: kept, died, new

A window is some thousands of records that are Python objects at the same time. What
state records were emitted again is kept at no cost, what was not dies, what is new is
written: the cost of a run follows the records that it changes.

Invariant: after a run a bucket's live records of a called group are exactly what the
author emitted for it; of every other group what they were (tests/cbp/engine/test_direct.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from cbp.engine.arrow import arrow_schema
from cbp.engine.call import Emitted, author_error, group_type
from cbp.engine.groups import FlowRun, Int64s, group_ranges, key_rows, window_ends
from cbp.engine.rows import Row, encode_rows
from cbp.engine.settle import Settled, settle
from cbp.engine.state.bucket import BucketState, Found
from cbp.engine.window import Source, Window, WindowReader
from cbp.errors import InvariantError
from cbp.model.stage import StateSpec, TranslatorSpec

__all__ = ["ENCODE_ERRORS", "WINDOW_ROWS", "BucketRun", "state_file_schema"]

WINDOW_ROWS = 16_384
ENCODE_ERRORS = (pa.ArrowException, OverflowError, TypeError, ValueError)


def state_file_schema(spec: StateSpec) -> pa.Schema:
    """Return the schema of a state table's data files: its columns, and the hash."""
    return arrow_schema(spec.schema).append(pa.field("_hash", pa.int64()))


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
    states: dict[str, BucketState]
    emitted: Emitted
    write_output: Callable[[str, list[pa.Array]], None]
    written: dict[str, list[pa.Table]] = field(init=False)
    groups: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.written = {name: [] for name in self.states}
        self._group = group_type(self.spec)()

    def run(self) -> None:
        """Call the author for every group of this bucket."""
        hashes, found = self._look_up()
        flows = [*(r.hashes for r in self.runs), *(found[s.name].hashes for s in self.spec.states)]
        ranges = group_ranges(hashes, flows)
        reader = WindowReader(
            self.spec,
            runs=self.runs,
            states=self.states,
            found=found,
            hashes=hashes,
            ranges=ranges,
        )
        start = 0
        for stop in window_ends(ranges, len(hashes), WINDOW_ROWS):
            self._work(reader.read(start, stop))
            start = stop

    def _look_up(self) -> tuple[Int64s, dict[str, Found]]:
        """Return the hashes to call, and the records that each state has for them."""
        hashes = np.unique(np.concatenate([run.hashes for run in self.runs]))
        found: dict[str, Found] = {}
        for spec in self.spec.states:
            if spec.grouping == "outer":
                found[spec.name] = self.states[spec.name].find(None)
                hashes = np.union1d(hashes, found[spec.name].hashes)
        for spec in self.spec.states:
            if spec.grouping == "inner":
                found[spec.name] = self.states[spec.name].find(hashes)
        return hashes, found

    def _work(self, window: Window) -> None:
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
        translate, group, out = self.spec.translate, self._group, self.emitted.out
        ends: dict[str, list[int]] = {name: [] for name in self.states}
        marks = [(self.emitted.buffers[name], ends[name]) for name in self.states]
        flows = [(s.name, s.rows, s.starts, s.stops) for s in window.sources]
        large = [source for source in window.sources if source.chunks is not None]
        at = 0
        try:
            for at, key in enumerate(window.keys):
                for name, rows, starts, stops in flows:
                    setattr(group, name, iter(rows[starts[at] : stops[at]]))
                for source in large:
                    setattr(group, source.name, self._lazily(source))
                translate(key, group, out)
                for buffer, mark in marks:
                    mark.append(len(buffer))
        except ENCODE_ERRORS as exc:
            # Of a large group, emitted records are encoded while the author still reads.
            again = self._explain(window, exc) if large else exc
            raise self._failure(again, window, at) from exc
        except Exception as exc:
            raise self._failure(exc, window, at) from exc
        return ends

    def _lazily(self, source: Source) -> Iterator[Row]:
        """Yield a large group's records; what was emitted meanwhile leaves memory."""
        assert source.chunks is not None, "only large groups are read lazily"
        for chunk in source.chunks():
            yield from chunk
            self._write_outputs()

    def _write_outputs(self) -> None:
        for output in self.spec.outputs:
            rows = self.emitted.buffers[output.name]
            if rows:
                self.write_output(output.name, encode_rows(rows, output.schema))
                rows.clear()

    def _settle(self, spec: StateSpec, source: Source, window: Window, ends: list[int]) -> None:
        settled = settle(source, self.emitted.buffers[spec.name], ends)
        assert source.origin is not None, "state records know where they lie"
        dead = source.origin.at(settled.died)
        self.states[spec.name].kill(dead)
        if settled.born:
            self._check_keys(spec, settled, window)
            hashes = [window.hashes[group] for group in settled.groups]
            columns = [*encode_rows(settled.born, spec.schema), pa.array(hashes, pa.int64())]
            table = pa.Table.from_arrays(columns, schema=state_file_schema(spec))
            self.written[spec.name].append(table)

    def _check_keys(self, spec: StateSpec, settled: Settled, window: Window) -> None:
        """Refuse state for another key than the group's."""
        assert self.spec.key is not None, "only groupwise translators keep state"
        places = [spec.schema.index(name) for name in self.spec.key.names]
        born = zip(*([row[at] for row in settled.born] for at in places), strict=True)
        got = key_rows(born, [column.type for column in self.spec.key.fields])
        expected = [window.keys[group] for group in settled.groups]
        if got == expected:
            return
        wrong = next(i for i, key in enumerate(got) if key != expected[i])
        message = (
            f"state {spec.name!r} was emitted for the key {got[wrong]!r}, "
            "not for the key of its group; emit it where that key is called"
        )
        raise self._failure(ValueError(message), window, settled.groups[wrong])

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


def _all(chunks: Iterable[list[Row]]) -> Iterator[Row]:
    for chunk in chunks:
        yield from chunk
