"""The only task of a translator of whole runs: one call, then the changes of all states.

arrived records -> one table an input -> author -> ReachedState -> files, changes of views
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from cbp.engine.columnar.groups import FlowRun
from cbp.engine.kernel.arrow.groups import author_schema
from cbp.engine.kernel.arrow.reached_state import Halves, ReachedState, Room
from cbp.engine.kernel.arrow.whole_run import call_once
from cbp.engine.shuffle.spool import Spool
from cbp.engine.state.bucket_state import BucketState, parted
from cbp.engine.state.run_files import RunFiles
from cbp.engine.task.bucket_work import count_arrived, flow_runs
from cbp.engine.task.writers import TaskWriters, count_look_ups
from cbp.model.run.account import READ, WAY


@dataclass
class RunWork:
    """All work of the task; `run` is called once."""

    writers: TaskWriters

    def run(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Call the author if any record arrived, and write what changed."""
        plan, counts = self.writers.plan, self.writers.counts
        assert plan.layout is not None, "every input of a whole run has groups"
        touched: set[int] = set()
        with Spool(plan.layout, plan.limits) as spool:
            spool.take(batches)
            count_arrived(plan, spool, counts)
            runs = flow_runs(plan, spool, range(plan.buckets))
            if any(run.table.num_rows for run in runs):
                touched = self._call({run.name: self._table(run) for run in runs})
        self.writers.state.compact_others(touched, self.writers.cache())
        self.writers.state.write_deletes()

    def _table(self, run: FlowRun) -> pa.Table:
        """Return all records of an input as its author sees them."""
        schema = author_schema(self.writers.plan.spec.input(run.name).schema)
        return run.part(0, run.table.num_rows).rename_columns(schema.names).cast(schema)

    def _call(self, inputs: dict[str, pa.Table]) -> set[int]:
        """Call the author, settle all states, and return the buckets of which records changed."""
        plan = self.writers.plan
        room = Room(plan.stage, plan.limits.whole_run_bytes)
        states = {
            spec.name: ReachedState(spec, plan.spec, self._halves(spec.name), plan.hash_mask, room)
            for spec in plan.spec.kept
        }
        operations, way = call_once(plan.stage, plan.spec, inputs, states, plan.context, room)
        self.writers.counts["groups"] = 1
        self._count_ways(way, states)
        touched = set[int]()
        for name, state in states.items():
            files = self._files(name)
            write = partial(self._write_state, files)
            state.settle(operations[name], self.writers.write_output, write)
            for half in state.halves:
                touched |= self._finish(name, half, files)
                count_look_ups(self.writers.counts, half)
        return touched

    def _count_ways(self, way: str, states: Mapping[str, ReachedState]) -> None:
        """Note how the call went; see `cbp.model.run.account.ways`."""
        counts = self.writers.counts
        if way:
            counts[f"{WAY}{way}"] = 1
        for name, state in states.items():
            counts.update((f"{READ}{name}.{what}", many) for what, many in state.reads.items())

    def _halves(self, name: str) -> Halves:
        plan, cache = self.writers.plan, self.writers.cache()
        middle = plan.buckets // 2
        low, high = (
            BucketState(plan.states[name], cache, tuple(buckets), plan.buckets)
            for buckets in (range(middle), range(middle, plan.buckets))
        )
        return low, high

    def _files(self, name: str) -> dict[int, RunFiles]:
        cache = self.writers.cache()
        return {
            bucket: self.writers.state.files(name, bucket, cache)
            for bucket in range(self.writers.plan.buckets)
        }

    def _write_state(self, files: dict[int, RunFiles], name: str, rows: pa.Table) -> None:
        plan = self.writers.plan
        hashes, middle = rows.column("_hash").to_numpy(), plan.buckets // 2
        half = range(middle) if hashes[0] >= 0 else range(middle, plan.buckets)
        for bucket, first, stop in parted(hashes, half, buckets=plan.buckets):
            files[bucket].add(rows.slice(first, stop - first))

    def _finish(self, name: str, half: BucketState, files: dict[int, RunFiles]) -> set[int]:
        """Write what changed in half of the buckets of a state; return those buckets."""
        dead = half.deaths().keys()
        touched = {
            bucket
            for bucket in half.buckets
            if files[bucket].rows or not dead.isdisjoint(half.places(bucket))
        }
        self.writers.state.finish(name, half, {b: files[b] for b in sorted(touched)})
        return touched
