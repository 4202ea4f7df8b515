"""Settling task after a Spark plan: writes the plan's results, and settles states.

    called groups, results by flow -> SettleTask -> state settled, outputs written

The plan's results for a state are settled by the same code as the emissions of a vectorised
translator, and written to the same files. The called groups of a plan of one task are those that
`LookUpTask` found; if Spark shuffles, this task gets the keys by the shuffle and looks them up.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

import numpy as np
import pyarrow as pa

from cbp.engine.columnar.arrow_types import Int64s, Mask
from cbp.engine.columnar.author_errors import author_error
from cbp.engine.columnar.groups import FlowRun
from cbp.engine.columnar.row_codes import first_twice
from cbp.engine.kernel.arrow.emission import Emission
from cbp.engine.kernel.arrow.groups import author_schema, row_at
from cbp.engine.kernel.arrow.kept_tables import kept_key
from cbp.engine.kernel.arrow.reader import Call, read_calls
from cbp.engine.kernel.arrow.run import CallSettler
from cbp.engine.shuffle.spool import Spool
from cbp.engine.spark.sql.called_groups import Called
from cbp.engine.spark.sql.lookup_task import LookUpTask
from cbp.engine.spark.sql.task_plans import deletions, result_flow
from cbp.engine.state.bucket_state import BucketState
from cbp.engine.task import bucket_work
from cbp.engine.task.reports import TaskReport
from cbp.engine.task.stage_task import counting_bytes
from cbp.engine.task.task_plan import TaskPlan
from cbp.engine.task.writers import TaskWriters
from cbp.errors import AuthorMisuse
from cbp.model.dataflow.call_rules import refuse_output_foreign, refuse_output_twice
from cbp.model.dataflow.stage import OutputSpec, TranslatorSpec
from cbp.model.flow.schema import Schema


@dataclass
class SettleTask:
    """Settles and writes the results of the author's plan; `plan` is that of `with_results`.

    `given` maps a state or output to the flow that has its records: its own, or that of an equal
    result. `look_up` finds the called groups of a plan of one task; `None` if keys arrive by the
    shuffle.
    """

    plan: TaskPlan
    part: int
    attempt: str
    given: Mapping[str, str]
    look_up: LookUpTask | None = None
    writers: TaskWriters = field(init=False)

    def __post_init__(self) -> None:
        self.writers = TaskWriters(self.plan, self.part, self.attempt)
        self.plan = self.writers.plan  # with translator instances of this task's own

    def run(self, batches: Iterable[pa.RecordBatch]) -> list[TaskReport]:
        """Settle all results that arrived, and return reports."""
        arrived = counting_bytes(batches, self.writers.counts)
        return self.writers.report(lambda: self._settle(arrived))

    def _settle(self, batches: Iterable[pa.RecordBatch]) -> None:
        counts, called = self.writers.counts, None
        try:
            called = self._settle_buckets(batches)
        finally:
            if self.look_up is not None:
                self.look_up.forget()
        if called is not None:
            for figure, value in called.figures.items():
                counts[figure] = counts.get(figure, 0) + value
        for flow in set(self.given.values()):
            del counts[f"records_in.{result_flow(flow)}"]

    def _settle_buckets(self, batches: Iterable[pa.RecordBatch]) -> Called | None:
        """Settle all buckets; return the called groups if they were looked up before."""
        plan, writers = self.plan, self.writers
        assert plan.layout is not None, "the plan has no layout of the results"
        cache = writers.cache()
        visited: set[int] = set()
        with Spool(plan.layout, plan.limits) as spool:
            # A plan of one task yields unsorted results: sorting here costs less than in Spark.
            spool.take(batches, ordered=self.look_up is None)
            bucket_work.count_arrived(plan, spool, writers.counts)
            called = None if self.look_up is None else self.look_up.called()
            for some in self._batches(spool, called):
                runs = bucket_work.flow_runs(plan, spool, some)
                bucket_work.run_batch(writers, some, cache, partial(self._work, some, runs, called))
                visited.update(some)
        writers.state.compact_others(visited, cache)
        writers.state.write_deletes()
        return called

    def _batches(self, spool: Spool, called: Called | None) -> list[tuple[int, ...]]:
        if called is None:
            return bucket_work.bucket_batches(self.plan, self.part, spool)
        # File numbers in the calls are relative to the buckets that were looked up together.
        batches = list(called.calls)
        others = [
            (bucket,)
            for bucket in chain(*bucket_work.bucket_batches(self.plan, self.part, spool))
            if not any(some[0] <= bucket <= some[-1] for some in batches)
        ]
        return sorted([*batches, *others])

    def _work(
        self,
        buckets: tuple[int, ...],
        runs: list[FlowRun],
        called: Called | None,
        states: dict[str, BucketState],
        lookups: bucket_work.Lookups,
        write_state: bucket_work.WriteState,
    ) -> bucket_work.BucketWork:
        plan = self.plan
        spec = replace(plan.spec, lookups=())  # the author's plan has read them
        by_name = {run.name: run for run in runs}
        results = {name: by_name[result_flow(flow)] for name, flow in self.given.items()}
        keys = [run for run in runs if not run.name.startswith("_")]
        spec = replace(spec, inputs=spec.inputs[: len(keys)])
        calls: Iterable[Call]
        woken = bucket_work.woken_groups(plan, states, self.writers.note_timer)
        if called is None:
            hashes, calls = read_calls(spec, keys, states, limits=plan.limits, woken=woken)
        else:
            hashes, calls = called.hashes(buckets), called.calls.get(buckets, ())

        def start(write: bucket_work.WriteState) -> _ArrivedResults:
            settler = CallSettler(spec, states, self.writers.write_output, write, plan.context)
            return _ArrivedResults(plan.stage, settler, results, hashes, calls)

        if woken is None or not plan.ages or not spec.expiries:
            return start(write_state)
        busy = [hashes, woken.hashes]
        return bucket_work.AgingWork(spec, states, plan.context, start, write_state, busy)


@dataclass
class _ArrivedResults:
    """The results of some buckets, which Spark has computed already."""

    stage: str
    settler: CallSettler
    results: Mapping[str, FlowRun]
    hashes: Int64s
    calls: Iterable[Call]
    groups: int = field(init=False, default=0)

    def run(self) -> None:
        """Write the outputs, and settle the state of every group."""
        nobody_called = author_schema(self._key).empty_table()
        with closing(self.settler.emission(nobody_called, copies=False)) as nobody:
            self._begin(nobody)
        for call in self.calls:
            if len(call.groups):
                with closing(self.settler.emission(call.called_keys, copies=False)) as emission:
                    self._emit_state(call, emission)
                    self.settler.settle(call, emission)
        self.groups = self.settler.groups

    @property
    def _spec(self) -> TranslatorSpec:
        return self.settler.spec

    def _begin(self, nobody: Emission) -> None:
        """Write the outputs, and raise if state was emitted for a group that is not called."""
        for output in self._spec.emitted:
            run = self.results.get(output.name)
            if run is not None and run.table.num_rows:
                if output.single:
                    self._check_keys(output, run)
                self._emit(nobody, output.name, run, 0, run.table.num_rows)
        for name in self._state_flows:
            run = self.results.get(name)
            if run is not None:
                for row in np.flatnonzero(~_hits(run.hashes, self.hashes))[:1].tolist():
                    self._emit(nobody, name, run, row, row + 1)

    def _check_keys(self, output: OutputSpec, run: FlowRun) -> None:
        """Refuse a record whose key is not that of a called group, and a second record of a key."""
        table = run.table.select(list(run.columns)).rename_columns(list(output.schema.names))
        keys = table.select(list(output.key))
        foreign = np.flatnonzero(~_hits(run.hashes, self.hashes))
        again = first_twice(keys, np.zeros(len(keys), np.int64))
        try:
            if len(foreign):
                groups = keys.select(list(self._key.names))
                refuse_output_foreign(output.name, row_at(groups, int(foreign[0])))
            if again is not None:
                refuse_output_twice(output.name, row_at(keys, again))
        except AuthorMisuse as exc:
            raise author_error(exc, self._spec, stage=self.stage) from exc

    @property
    def _state_flows(self) -> list[str]:
        spec = self._spec
        return [*(deletions(one.name) for one in spec.kept), *(one.name for one in spec.authored)]

    def _emit_state(self, call: Call, emission: Emission) -> None:
        for name in self._state_flows:
            run = self.results.get(name)
            if run is None:
                continue
            start = int(np.searchsorted(run.hashes, call.hashes[0], "left"))
            stop = int(np.searchsorted(run.hashes, call.hashes[-1], "right"))
            if stop > start:
                self._emit(emission, name, run, start, stop)

    def _emit(self, emission: Emission, flow: str, run: FlowRun, start: int, stop: int) -> None:
        spec = self._spec
        schemas = {f.name: f.schema for f in spec.emitted}
        schemas |= {f.name: f.schema for f in spec.states}
        schemas |= {deletions(f.name): kept_key(spec, f) for f in spec.kept}
        part = run.table.select(list(run.columns)).slice(start, stop - start)
        try:
            emit = operator.attrgetter(flow)(emission.out)
            emit(part.rename_columns(list(schemas[flow].names)))
            emission.check_puts()
        except Exception as exc:
            raise author_error(exc, spec, stage=self.stage) from exc

    @property
    def _key(self) -> Schema:
        assert self._spec.key is not None, "the stage has no key"
        return self._spec.key


def _hits(wanted: Int64s, hashes: Int64s) -> Mask:
    """Return a mask of the `wanted` hashes that are in `hashes`; both must be ascending."""
    places = np.searchsorted(hashes, wanted)
    hits: Mask = places < len(hashes)
    hits[hits] = hashes[places[hits]] == wanted[hits]
    return hits
