"""The only task of a translator of whole runs: one call, then the changes of all states.

arrived records -> one table per input -> author -> ReachedState -> files, changes of views

One task reads all records, and its author finds what belongs together. So if every key consists of
columns, records are read in the order of their files, neither hashed nor sorted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import chain

import pyarrow as pa

from cbp.engine.kernel.arrow.groups import author_schema
from cbp.engine.kernel.arrow.reached_state import Halves, ReachedState
from cbp.engine.kernel.arrow.remembered import remembered, version_after, version_of
from cbp.engine.kernel.arrow.whole_run import Called, Notes, call_once
from cbp.engine.shuffle.replicated_read import read_input
from cbp.engine.shuffle.spool import Spool
from cbp.engine.state.bucket_state import BucketState, parted
from cbp.engine.state.run_files import RunFiles
from cbp.engine.storage.held_records import Room
from cbp.engine.task.bucket_work import count_arrived, flow_runs
from cbp.engine.task.reports import DroppedFile, MergedFile, NewStateFile
from cbp.engine.task.superstep_log import Snapshot, SuperstepLog
from cbp.engine.task.task_plan import TaskPlan
from cbp.engine.task.writers import TaskWriters, count_look_ups
from cbp.model.run.account import READ, RECALLED, WAY

_REMEMBERED_SHARE = 4
"""A process keeps at most this part (a quarter) of `whole_run_bytes` in memory between runs."""


def reads_files(plan: TaskPlan) -> bool:
    """Return whether a plan is a whole run whose inputs have no function, order or combiner."""
    return plan.spec.form == "run" and all(
        isinstance(one.route_by, tuple) and one.order_by is None and one.combine is None
        for one in plan.spec.inputs
    )


@dataclass
class RunWork:
    """All work of the task; `run` is called once."""

    writers: TaskWriters
    _room: Room = field(init=False)

    def __post_init__(self) -> None:
        self._room = Room.of(self.writers.plan.stage, self.writers.plan.limits)

    def run(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Call the author if any record arrived, and write the changes."""
        plan, counts = self.writers.plan, self.writers.counts
        assert plan.layout is not None, "every input of a whole run has groups"
        with Spool(plan.layout, plan.limits) as spool:
            spool.take(batches)
            count_arrived(plan, spool, counts)
            runs = flow_runs(plan, spool, range(plan.buckets))
            # All records of an input, as its author sees them.
            tables = {}
            for run in runs:
                schema = author_schema(plan.spec.input(run.name).schema)
                part = run.part(0, run.table.num_rows).rename_columns(schema.names)
                tables[run.name] = self._room.keep([part.cast(schema)])
            self._work(tables)

    def run_files(self) -> None:
        """Do the same for plans with `reads_files`: read the inputs' files, without a shuffle."""
        plan, tables = self.writers.plan, dict[str, pa.Table]()
        for spec in plan.spec.inputs:
            schema = author_schema(spec.schema)
            files = plan.inputs.get(spec.name, ())
            came = (read_input([file], spec).select(schema.names).cast(schema) for file in files)
            table = self._room.keep(chain([schema.empty_table()], came))
            tables[spec.name] = table if self._room.on_disk else table.combine_chunks()
            self.writers.counts[f"records_in.{spec.name}"] = table.num_rows
        self._work(tables)

    def _work(self, inputs: dict[str, pa.Table]) -> None:
        touched, remember = set[int](), None
        if any(map(len, inputs.values())):
            touched, remember = self._call(inputs)
        self.writers.state.compact_others(touched, self.writers.cache())
        self.writers.state.write_deletes()
        if remember:
            remember()

    def _call(self, inputs: dict[str, pa.Table]) -> tuple[set[int], Callable[[], None]]:
        """Call the author and settle all states; return the changed buckets, and a last step.

        The last step stores the value to remember, once all files are written.
        """
        plan, room = self.writers.plan, self._room
        states = {
            spec.name: ReachedState(spec, plan.spec, self._halves(spec.name), plan.hash_mask, room)
            for spec in plan.spec.kept
        }
        halves = {name: state.halves for name, state in states.items()}
        memory, name = remembered(plan.cache), self._remembered_as
        called = call_once(
            plan.stage,
            plan.spec,
            inputs,
            states,
            plan.context,
            room,
            self._notes(room),
            lambda: memory.take(name, lambda: version_of(halves)),
        )
        self.writers.counts["groups"] = 1
        if called.way:
            self.writers.counts[f"{WAY}{called.way}"] = 1
        for name, state in states.items():
            reads = state.reads.items()
            self.writers.counts.update((f"{READ}{name}.{what}", many) for what, many in reads)
        if called.recalled:
            self.writers.counts[RECALLED] = 1
        cache, buckets = self.writers.cache(), range(plan.buckets)
        files = {n: {b: self.writers.state.files(n, b, cache) for b in buckets} for n in states}
        for name, state in states.items():
            write = partial(self._write_state, files[name])
            state.settle(called.operations[name], self.writers.write_output, write)
        touched = set[int]()
        for name, state in states.items():
            for half in state.halves:
                touched |= self._finish(name, half, files[name])
                count_look_ups(self.writers.counts, half)
        return touched, partial(self._remember, called, halves)

    @property
    def _remembered_as(self) -> str:
        """The name of the remembered value: that of the stage, its code and its tables."""
        plan = self.writers.plan
        tables = " ".join(table.id for table in plan.states.values())
        return f"{plan.spec.name} {plan.spec.code} {tables}"

    def _remember(self, called: Called, halves: Mapping[str, Halves]) -> None:
        value, size = called.remembered
        if value is None:
            return
        gone, new = list[tuple[str, str]](), list[tuple[str, str, int]]()
        for report in self.writers.done:
            if isinstance(report, DroppedFile):
                gone.append((report.state, report.path))
            if isinstance(report, MergedFile):
                gone.extend((report.state, path) for path in report.replaces)
            if isinstance(report, (MergedFile, NewStateFile)):
                new.append((report.state, report.path, report.size))
        version, plan = version_after(halves, gone, new), self.writers.plan
        most = plan.limits.whole_run_bytes // _REMEMBERED_SHARE
        remembered(plan.cache).put(self._remembered_as, value, size, version, most=most)

    def _notes(self, room: Room) -> Notes:
        """Return the notes of another attempt of the run, and the writer of new notes."""
        if not self.writers.plan.spec.notes:
            return Notes()
        log, counts = SuperstepLog(self.writers.plan), self.writers.counts
        before = log.newest()
        number = 0 if before is None else before.supersteps
        if before is not None:
            counts["notes_before"] = before.supersteps
            for table in before.tables.values():
                room.take(table)

        def take(make: Callable[[], Mapping[str, pa.Table]]) -> None:
            nonlocal number
            self.writers.plan.faults("superstep.after")
            made = cache(make)
            number += 1
            counts["notes"] = number
            if log.is_due(lambda: sum(int(table.nbytes) for table in made().values())):
                log.put(lambda: Snapshot(number, {}, made()))
                counts["seconds_superstep_log"] = log.spent

        return Notes({} if before is None else before.tables, take)

    def _halves(self, name: str) -> Halves:
        plan, cache = self.writers.plan, self.writers.cache()
        middle = plan.buckets // 2
        low, high = (
            BucketState(plan.states[name], cache, tuple(buckets), plan.buckets)
            for buckets in (range(middle), range(middle, plan.buckets))
        )
        return low, high

    def _write_state(self, files: dict[int, RunFiles], name: str, rows: pa.Table) -> None:
        plan = self.writers.plan
        hashes, middle = rows.column("_hash").to_numpy(), plan.buckets // 2
        half = range(middle) if hashes[0] >= 0 else range(middle, plan.buckets)
        for bucket, first, stop in parted(hashes, half, buckets=plan.buckets):
            files[bucket].write_beside(rows.slice(first, stop - first))

    def _finish(self, name: str, half: BucketState, files: dict[int, RunFiles]) -> set[int]:
        dead = half.deaths().keys()
        touched = {
            bucket
            for bucket in half.buckets
            if files[bucket].rows or not dead.isdisjoint(half.places(bucket))
        }
        self.writers.state.finish(name, half, {b: files[b] for b in sorted(touched)})
        return touched
