"""Writers of one task: its outputs, states and bindings, and the counts of its work.

    work of a task -> TaskWriters -> files, synced together -> reports
    translate -> columns -> file of the flow -> every follower that reads it -> its files

A follower is a record-wise stage. It gets the records as it would read them from the file: in
the file's order, with the values of the columns, and only after they were written. So its output is
the same as if it ran alone, record by record (`TaskOutputs`).

Every kind of task has writers: the stage's own (`cbp.engine.task.stage_task`), and those around a
plan in SQL.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain

import pyarrow as pa

from cbp.engine.columnar.arrow_types import arrow_schema
from cbp.engine.columnar.looked_up import WholeTable
from cbp.engine.columnar.row_codec import copies_maker, decode_table, rows_maker
from cbp.engine.kernel.arrow.groups import author_schema
from cbp.engine.kernel.author_call import Emitted
from cbp.engine.shuffle.message_index import MessageGroups, Receivers
from cbp.engine.shuffle.multicast_bindings import Binding, BindingSink
from cbp.engine.state.bucket_state import BucketState
from cbp.engine.state.due_groups import earliest
from cbp.engine.state.index_cache import IndexCache, index_cache
from cbp.engine.storage.external_sort import order_by_columns
from cbp.engine.storage.file_names import flow_file
from cbp.engine.storage.parquet_writer import ParquetSink, sync_files
from cbp.engine.storage.table_names import flow_table
from cbp.engine.task.message_reader import Misplaced
from cbp.engine.task.record_task import RecordRun
from cbp.engine.task.reports import (
    BindingsFile,
    Counts,
    Failed,
    GroupsFailed,
    MessageMisplaced,
    NextTimer,
    OutputFile,
    ProcessChanged,
    TaskReport,
)
from cbp.engine.task.state_writer import TaskState
from cbp.engine.task.task_plan import LookupTable, TaskPlan
from cbp.errors import CbpError
from cbp.model.author.decimals import author_decimals, decimals_changed
from cbp.model.author.process_state import process_watch
from cbp.model.dataflow.call_rules import Fresh
from cbp.model.dataflow.stage import StateSpec, TranslatorSpec


def read_whole_table(spec: StateSpec, one: LookupTable, cache: IndexCache) -> pa.Table:
    """Return all records of a table, in their order."""
    schema, names = arrow_schema(spec.schema), spec.schema.names
    parts = [
        part.select(list(names)).cast(schema)
        for bucket in sorted(one.table.live)
        for part in BucketState(one.table, cache, (bucket,), one.buckets).records(names)
    ]
    table = pa.concat_tables(parts) if parts else schema.empty_table()
    return table.take(pa.array(order_by_columns(table, list(spec.order))))


def read_whole_records(spec: StateSpec, one: LookupTable, cache: IndexCache) -> WholeTable:
    """Return all records of a table as an author reads them."""
    table, schema = read_whole_table(spec, one, cache), spec.schema
    rows = rows_maker(spec.name, schema.names)(decode_table(table, schema))
    return WholeTable(rows, copies_maker(spec.name, schema))


_COUNTED = (
    "groups",
    "records_combined",
    "state_written",
    "state_removed",
    "state_remote",
    "bytes_read",
    "bytes_shuffled",
    "bytes_broadcast",
    "bytes_bindings",
    "lookups_index",
    "lookups_scan",
)


def no_counts() -> dict[str, float]:
    """Return the counts of a task that has done nothing yet."""
    return dict.fromkeys(_COUNTED, 0)


def count_look_ups(counts: dict[str, float], state: BucketState) -> None:
    """Add the bytes and look-ups of a state's buckets to the counts of a task."""
    counts["bytes_read"] += state.bytes_read
    for way, lookups in state.lookups.items():
        counts[f"lookups_{way}"] += lookups


class TaskOutputs:
    """The output files of one task; `attempt` is unique, and part of their names."""

    def __init__(self, plan: TaskPlan, part: int, attempt: str) -> None:
        self._plan = plan
        self._file = flow_file(plan.epoch, plan.first_number + part, f"{plan.run}-{attempt}")
        self._paths: dict[str, str] = {}
        self._sinks: dict[str, ParquetSink] = {}
        self._columns: dict[str, tuple[str, ...]] = {}
        self._readers: dict[str, list[RecordRun]] = {}
        self._runs: list[RecordRun] = []
        self._open(plan.stage, plan.spec, plan.receivers(part))
        for one in plan.followers:
            self._open(one.stage, one.spec, {})
            write, emitted, context = partial(self.write, one.stage), Emitted(one.spec), one.context
            run = RecordRun(
                one.stage, one.spec, emitted, write, limits=plan.limits, context=context
            )
            self._readers[one.flow].append(run)
            self._runs.append(run)

    def write(self, stage: str, output: str, columns: list[pa.Array]) -> None:
        """Write records of a stage's output, then run its followers on them."""
        flow = f"{stage}.{output}"
        epoch = pa.repeat(pa.scalar(self._plan.epoch, pa.int64()), len(columns[0]))
        sink = self._sinks[flow]
        sink.write(pa.Table.from_arrays([*columns, epoch], schema=sink.schema))
        if self._readers[flow]:
            table = pa.Table.from_arrays(columns, names=list(self._columns[flow]))
            for run in self._readers[flow]:
                run.take(table)

    def close(self) -> list[OutputFile]:
        """Close the files and return a report of each; the files are not synced yet."""
        done: list[OutputFile] = []
        for flow, sink in self._sinks.items():
            if (file := sink.close()) is not None:
                path = self._paths[flow]
                done.append(OutputFile(flow, path, file.rows, file.bytes, file.buckets))
        return done

    def counts(self) -> dict[str, float]:
        """Return `records_out` over all flows, and per follower `<stage>/records_in` and so on."""
        counts: dict[str, float] = {"records_out": sum(s.rows for s in self._sinks.values())}
        for run in self._runs:
            flows = [f"{run.stage}.{output.name}" for output in run.spec.outputs]
            records = run.records.total()
            counts[f"{run.stage}/records_in"] = counts[f"{run.stage}/groups"] = records
            counts[f"{run.stage}/records_out"] = sum(self._sinks[flow].rows for flow in flows)
        return counts

    def _open(self, stage: str, spec: TranslatorSpec, receivers: Mapping[str, Receivers]) -> None:
        for output in spec.outputs:
            flow = f"{stage}.{output.name}"
            self._paths[flow] = f"{flow_table(stage, output.name)}/_runs/{self._file}"
            schema = arrow_schema(output.schema).append(pa.field("_epoch", pa.int64()))
            path = f"{self._plan.folder}/{self._paths[flow]}"
            by_bucket = receivers.get(output.name)
            groups = None if by_bucket is None else MessageGroups(by_bucket, self._plan.limits)
            self._sinks[flow] = ParquetSink(path, schema, faults=self._plan.faults, groups=groups)
            self._columns[flow] = output.schema.names
            self._readers[flow] = []


@dataclass
class TaskWriters:
    """The writers of one task, and the counts of its work.

    Attributes:
        plan: The run's plan, with translator instances of this task's own.
        emitted: The records that the author emits between two writes.
        counts: Figures of the task's work, by name.
        done: Reports of what was written so far.
    """

    plan: TaskPlan
    part: int
    attempt: str
    emitted: Emitted = field(init=False)
    counts: dict[str, float] = field(init=False, default_factory=no_counts)
    state: TaskState = field(init=False)
    done: list[TaskReport] = field(init=False, default_factory=list)
    _timer_us: int | None = field(init=False, default=None)
    _written: list[str] = field(init=False, default_factory=list)
    _outputs: TaskOutputs = field(init=False)
    _bindings: BindingSink | None = field(init=False, default=None)
    _fresh: list[Fresh] = field(init=False)

    def __post_init__(self) -> None:
        self._fresh = self._fresh_instances()
        plan = self.plan
        self.emitted = Emitted(plan.spec)
        done, written, counts = self.done, self._written, self.counts
        self.state = TaskState(
            plan, self._number, self.attempt, done=done, written=written, counts=counts
        )
        self._outputs = TaskOutputs(plan, self.part, self.attempt)

    def _fresh_instances(self) -> list[Fresh]:
        """Make this task's own translator instances, since its process may run other tasks."""
        own = Fresh(self.plan.spec, stage=self.plan.stage)
        behind = [Fresh(one.spec, stage=one.stage) for one in self.plan.followers]
        pairs = zip(self.plan.followers, behind, strict=True)
        followers = tuple(replace(one, spec=fresh.spec) for one, fresh in pairs)
        self.plan = replace(self.plan, spec=own.spec, followers=followers)
        return [own, *behind]

    @cached_property
    def whole_tables(self) -> Mapping[str, WholeTable]:
        """The looked-up tables whose records all go to every group."""
        plan, cache = self.plan, self.cache()
        return {
            spec.name: read_whole_records(spec, plan.lookups[spec.name], cache)
            for spec in plan.spec.looked_up_whole
        }

    @cached_property
    def whole_arrow_tables(self) -> Mapping[str, pa.Table]:
        """The looked-up tables for every group, in the types that a vectorised translator sees."""
        plan, cache = self.plan, self.cache()
        return {
            spec.name: read_whole_table(spec, plan.lookups[spec.name], cache).cast(
                author_schema(spec.schema)
            )
            for spec in plan.spec.looked_up_whole
        }

    @property
    def _number(self) -> int:
        return self.plan.first_number + self.part

    def report(self, work: Callable[[], None]) -> list[TaskReport]:
        """Do the task's work, close and sync its files, and return reports.

        An author's error is returned as a report too: an exception would make Spark
        retry the task, which would fail again.
        """
        watch = process_watch()
        by_loading = watch.loaded() if watch else []
        with author_decimals():
            reports = self._worked(work)
            by_calls = ["the decimal context"] if decimals_changed() else []
        by_calls += watch.ended() if watch else []
        changed = self._changed("loading", by_loading), self._changed("calls", by_calls)
        return [*chain.from_iterable(changed), *reports]

    def _changed(self, by: str, what: list[str]) -> list[TaskReport]:
        if not what:
            return []
        spec = self.plan.spec
        function = f"{spec.name}.translate"
        return [ProcessChanged(self.plan.stage, function, spec.place, by, tuple(what))]

    def _worked(self, work: Callable[[], None]) -> list[TaskReport]:
        started = time.perf_counter()
        gc.disable()  # a window's records are all in use: collection runs between windows
        try:
            work()
            self.state.close_remote()
            self._close_outputs()
            for fresh in self._fresh:
                fresh.check()
            sync_files(self._written, faults=self.plan.faults)
        except Misplaced:
            return [MessageMisplaced()]
        except GroupsFailed as failed:
            return [*failed.reports]
        except CbpError as error:
            return [Failed.of(error)]
        finally:
            gc.enable()
        if self._timer_us is not None:
            self.done.append(NextTimer(self._timer_us))
        self.counts["seconds_task"] = time.perf_counter() - started
        self.done.append(Counts(dict(self.counts)))
        return self.done

    def cache(self) -> IndexCache:
        """Return the cache of index copies on this worker."""
        return index_cache(self.plan.cache, self.plan.limits)

    def note_timer(self, at_us: int | None) -> None:
        """Take the time of a pending timer, in microseconds since 1970; the earliest counts."""
        if at_us is not None:
            self._timer_us = at_us if self._timer_us is None else min(self._timer_us, at_us)

    def note_records(self, state: str, records: pa.Table) -> None:
        """Take new records of a state: its timers, if it holds timers."""
        if self.plan.spec.state(state).timers:
            self.note_timer(earliest(records))

    def write_output(self, name: str, columns: list[pa.Array]) -> None:
        """Write records of an output."""
        self._outputs.write(self.plan.stage, name, columns)

    def write_remote(self, state: str, columns: list[pa.Array]) -> None:
        """Write state records that a group emitted for other keys."""
        names = self.plan.spec.state(state).schema.names
        self.note_records(state, pa.Table.from_arrays(columns, names=list(names)))
        self.state.write_remote(state, columns, self.cache())

    def write_bindings(self, bindings: Sequence[Binding]) -> None:
        """Write bindings of groups to addresses."""
        plan = self.plan
        if self._bindings is None:
            self._bindings = BindingSink(
                plan.stage,
                plan.spec,
                folder=plan.folder,
                epoch=plan.epoch,
                part=self._number,
                suffix=f"{plan.run}-{self.attempt}",
                hash_mask=plan.hash_mask,
                faults=plan.faults,
            )
        self._bindings.write(bindings)

    def _close_outputs(self) -> None:
        files: list[OutputFile | BindingsFile] = [*self._outputs.close()]
        if self._bindings is not None:
            if (bound := self._bindings.close()) is not None:
                files.append(BindingsFile(self._bindings.path, bound.rows, bound.bytes))
            self.counts["bindings"] = self._bindings.rows
        self._written.extend(f"{self.plan.folder}/{file.path}" for file in files)
        self.done.extend(files)
        self.counts.update(self._outputs.counts())
