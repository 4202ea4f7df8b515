"""The black-box mode: state is shuffled with the increment and rewritten in every epoch.

For the shuffle, state is one more input flow: every task gets all state records of its buckets,
calls the author as the direct engine does, and writes all records again. A record for `ALL` or an
address is copied for each of its groups before the shuffle (`replication.py`).
If `replicates` is false, each task gets one copy instead, which is the paper's "broadcast support"
alone. This mode is the baseline that the direct engine is measured against. Both run the same
author's code and leave the same tables, so each can continue where the other stopped.

Guaranteed: the results of the direct engine (test_blackbox.py).
Not supported: tables with deletion vectors, which this mode never writes, and translators in SQL,
which look up their state themselves. Both are refused.

Source: CBP (SoCC'10), section 4.5, "Black-box" execution.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cbp.engine.columnar.file_slices import share_of
from cbp.engine.delta.deletion_vectors import rows_of
from cbp.engine.interface.runs import RunPlan
from cbp.engine.run.executor import LocalExecutor
from cbp.engine.shuffle.broadcast import Shared
from cbp.engine.shuffle.layout import COUNT, TO, shuffle_layout
from cbp.engine.shuffle.several_destinations import destinations
from cbp.engine.shuffle.spool import Spool
from cbp.engine.state.bucket_state import BucketState, LiveFile, Positions, StateTable
from cbp.engine.state.index_cache import index_cache
from cbp.engine.state.lookup import IndexedFile, StateRows
from cbp.engine.state.run_files import state_file_schema
from cbp.engine.storage.engine_limits import DEFAULT_LIMITS
from cbp.engine.storage.table_names import state_table
from cbp.engine.task.bucket_work import (
    author_work,
    count_arrived,
    deliveries_of,
    flow_run,
    looked_up,
    shared_records,
)
from cbp.engine.task.reports import Counts, DroppedFile, Failed, JobLane, TaskReport
from cbp.engine.task.stage_task import arranged_batches, counting_bytes
from cbp.engine.task.state_writer import new_files
from cbp.engine.task.task_plan import TaskPlan
from cbp.engine.task.writers import TaskWriters
from cbp.errors import DataflowInvalidError, InvariantError, Mistake, TableFeatureError
from cbp.model.dataflow.dataflow import StageNode
from cbp.model.dataflow.stage import InputSpec, StateSpec, TranslatorSpec
from cbp.model.flow.increment import DataFile, Increment
from cbp.model.plan.spark_or_worker import Lane
from tests.bench.candidates.ours.replication import replication, state_flow

__all__ = [
    "BlackboxTask",
    "LocalBlackboxExecutor",
    "moves_nothing_else",
    "require_all_state",
    "require_plain",
    "with_state_as_input",
]


def with_state_as_input(
    plan: RunPlan, task: TaskPlan, *, replicates: bool = True
) -> tuple[RunPlan, TaskPlan]:
    """Return plan and task with every state as a further input flow, after the others.

    Args:
        plan: The run.
        task: The plan of its tasks.
        replicates: Whether shared records are copied for each group; otherwise for each task.

    Raises:
        TableFeatureError: If a state table has deletion vectors, or deletes to be published.
    """
    spec = task.spec
    more = tuple(InputSpec(state_flow(s.name), s.schema, spec.key_of(s).names) for s in spec.states)
    wide = replace(spec, inputs=(*spec.inputs, *more))
    increments = {
        state_flow(s.name): (_increment(state_table(task.stage, s.name), task.states[s.name]),)
        for s in spec.states
    }
    files = {
        name: tuple(share_of(plan.folder, file) for file in increment.files)
        for name, (increment,) in increments.items()
    }
    return (
        replace(plan, inputs={**plan.inputs, **increments}),
        replace(
            task,
            spec=wide,
            layout=shuffle_layout(wide),
            tasks=task.buckets,
            inputs={**task.inputs, **files},
            in_place=frozenset(),
            by_bucket=frozenset(),
            replicate=replication if replicates else None,
        ),
    )


def require_plain(dataflow: str, nodes: Sequence[StageNode]) -> None:
    """Refuse what a task that gets its state with its input would compute differently.

    A translator in Spark SQL reads its state files itself, and would ignore the state that
    arrives. A loop within a run would end after one superstep, and one that is called once for the
    whole run would see only the groups that are called.

    Raises:
        DataflowInvalidError: Rule `black_box_in_sql`, `black_box_in_loop` or
            `black_box_set_aside`, by stage.
    """
    mistakes = []
    for node in nodes:
        spec = node.translator
        if spec.form == "sql":
            said = f"{spec.name} is written in Spark SQL, which the black-box mode does not run"
            mistakes.append(Mistake("black_box_in_sql", f"stages.{node.name}", said, spec.place))
        if spec.has_one_task or spec.supersteps > 1:
            said = f"{spec.name} has one task for all groups, which the black-box mode does not run"
            mistakes.append(Mistake("black_box_in_loop", f"stages.{node.name}", said, spec.place))
        if node.sets_aside:
            said = "the black-box mode does not set records aside"
            where = f"stages.{node.name}.on_error"
            mistakes.append(Mistake("black_box_set_aside", where, said, spec.place))
    if mistakes:
        raise DataflowInvalidError(dataflow, mistakes)


def moves_nothing_else(task: TaskPlan) -> bool:
    """Tell whether a stage runs as on the direct engine: it has no state and no shared records."""
    layout = task.layout
    return layout is None or not (task.spec.states or layout.shared)


def require_all_state(task: TaskPlan, reports: Sequence[TaskReport]) -> None:
    """Raise `InvariantError` unless every state record arrived in a task."""
    for name, table in task.states.items():
        expected = sum(file.rows for files in table.live.values() for file in files)
        figure = f"records_in.{state_flow(name)}"
        counts = (report.figures for report in reports if isinstance(report, Counts))
        received = sum(int(figures.get(figure, 0)) for figures in counts)
        if received != expected and not any(isinstance(report, Failed) for report in reports):
            message = f"state {name!r} has {expected} records, but {received} reached the tasks"
            raise InvariantError(message, expected=expected, found=received)


@dataclass
class BlackboxTask:
    """One task whose state arrives with its input; its plan is `with_state_as_input`."""

    plan: TaskPlan
    part: int
    attempt: str
    writers: TaskWriters = field(init=False)

    def __post_init__(self) -> None:
        self.writers = TaskWriters(self.plan, self.part, self.attempt)
        self.plan = self.writers.plan  # with translator instances of this task's own

    def run(self, batches: Iterable[pa.RecordBatch]) -> list[TaskReport]:
        """Run the groups of all records that arrived, and return reports."""
        arrived = counting_bytes(batches, self.writers.counts)
        return self.writers.report(lambda: self._run_groups(arrived))

    def run_arranged(self) -> list[TaskReport]:
        """Run this task's groups of an increment that the task reads itself."""
        own = arranged_batches(self.plan, self.part)
        return self.writers.report(lambda: self._run_groups(own))

    def _run_groups(self, batches: Iterable[pa.RecordBatch]) -> None:
        plan, counts = self.plan, self.writers.counts
        layout = plan.layout
        assert layout is not None, "only groupwise stages have state"
        with Spool(layout, self.plan.limits) as spool:
            spool.take(batches)
            count_arrived(plan, spool, counts)
            counts["copies"] = sum(spool.arrived(flow) for flow in layout.shared)
            # Without replication, every task has got one copy of each shared record.
            shared = None if plan.replicate else shared_records(plan, self.part, spool, counts)
            if shared is None:
                counts["dead_letters"] = _dead_letters(spool)
            for bucket in sorted({*spool.sizes(), *(shared.sizes() if shared else ())}):
                self._rewrite(bucket, spool, shared)
            counts.update(shared.counts() if shared else {})

    def _rewrite(self, bucket: int, spool: Spool, shared: Shared | None) -> None:
        plan, counts = self.plan, self.writers.counts
        spec = _narrow(plan.spec)
        many = len(spec.inputs)
        arrived = {
            state.name: self._records(state, many + i, spool.between(many + i, bucket, bucket))
            for i, state in enumerate(spec.states)
        }
        states = {name: _Arrived(rows, bucket) for name, rows in arrived.items()}
        written: dict[str, list[pa.Table]] = {name: [] for name in arrived}
        runs = [
            flow_run(plan, i, spool.between(i, bucket, bucket), spool.row_bytes(i))
            for i in range(many)
        ]
        work = author_work(
            self.writers,
            spec,
            runs,
            {name: state for name, state in states.items()},
            partial(self._take, written),
            deliveries_of(plan, (bucket,), runs, shared),
            looked_up(self.plan, (bucket,), self.writers.cache()),
        )
        work.run()
        counts["groups"] += work.groups
        for name, state in states.items():
            counts["bytes_read"] += arrived[name].nbytes
            self._write_all(name, bucket, arrived[name], state, written[name])

    def _take(self, written: dict[str, list[pa.Table]], name: str, rows: pa.Table) -> None:
        self.writers.note_records(name, rows)
        written[name].append(rows)

    def _records(self, state: StateSpec, at: int, table: pa.Table) -> pa.Table:
        """Return state records in the schema of the state's files."""
        layout = self.plan.layout
        assert layout is not None
        schema = state_file_schema(state)
        slots = [*layout.flows[at].columns, "_hash"]
        return table.select(slots).rename_columns(schema.names).cast(schema)

    def _write_all(
        self,
        name: str,
        bucket: int,
        arrived: pa.Table,
        state: BucketState,
        written: list[pa.Table],
    ) -> None:
        """Write kept and new records as one file that replaces all files of the bucket."""
        keep = np.ones(arrived.num_rows, np.bool_)
        for dead in state.deaths().values():
            keep[rows_of(dead)] = False
        rows = pa.concat_tables([arrived.filter(pa.array(keep)), *written])
        writers = self.writers
        writers.counts["state_removed"] += len(keep) - int(keep.sum())
        writers.counts["state_written"] += rows.num_rows
        for file in self.plan.states[name].live.get(bucket, ()):
            writers.done.append(DroppedFile(name, file.path, file.size))
        files = writers.state.files(name, bucket, None)  # no index copies: there are no look-ups
        files.add(rows)
        files.close()
        writers.done.extend(new_files(name, files.done))


class _Arrived(BucketState):
    """The state of a bucket as one table in memory, instead of files."""

    def __init__(self, rows: pa.Table, bucket: int) -> None:
        file = LiveFile("arrived", 0, rows.num_rows)
        live: dict[int, tuple[LiveFile, ...]] = {bucket: (file,)} if rows.num_rows else {}
        super().__init__(StateTable("", "", live), index_cache("", DEFAULT_LIMITS), (bucket,))
        self._indexed = IndexedFile(_one_batch(rows)) if rows.num_rows else None

    def open(self, at: int) -> IndexedFile:
        """Return the records that arrived."""
        assert self._indexed is not None, "only asked when there are records"
        return self._indexed

    def reader(self, at: int, wanted: Positions | None) -> StateRows:
        """Return the records that arrived."""
        return self.open(at)


class LocalBlackboxExecutor(LocalExecutor):
    """Carries out black-box tasks one after the other in this process, without Spark.

    Args:
        replicates: See `with_state_as_input`.
    """

    def __init__(self, *, replicates: bool = True) -> None:
        super().__init__()
        self._replicates = replicates

    def refuse(self, dataflow: str, nodes: Sequence[StageNode]) -> None:
        """Raise for translators in SQL, and for loops within a run."""
        require_plain(dataflow, nodes)

    def execute(self, plan: RunPlan, task: TaskPlan) -> list[TaskReport]:
        """Run the same task code as Spark's workers."""
        if moves_nothing_else(task):
            return super().execute(plan, replace(task, then=None))
        _, wide = with_state_as_input(plan, task, replicates=self._replicates)
        runs = (BlackboxTask(wide, part, "0").run_arranged() for part in range(wide.tasks))
        reports = [report for run in runs for report in run]
        require_all_state(task, reports)
        return [*reports, JobLane(Lane.LOCAL)]


def _dead_letters(spool: Spool) -> int:
    """Count the destinations that reached no group; every task has them, only one counts them."""
    dead = 0
    for flow in spool.layout.shared:
        table = spool.shared(flow)
        for text in table.filter(pc.equal(table.column(COUNT), 1)).column(TO).to_pylist():
            dead += sum(1 for _ in destinations(text))
    return dead


def _narrow(spec: TranslatorSpec) -> TranslatorSpec:
    """Return the author's spec: the wide one without the state inputs."""
    return replace(spec, inputs=spec.inputs[: len(spec.inputs) - len(spec.states)])


def _increment(folder: str, table: StateTable) -> Increment:
    live = [file for files in table.live.values() for file in files]
    if any(file.dead for file in live):
        raise TableFeatureError(
            table.folder,
            ["deletionVectors, in the black-box mode"],
            next_step="give the black-box mode a folder of its own",
        )
    files = tuple(DataFile(f"{folder}/{file.path}", file.rows, file.size) for file in live)
    return Increment(folder, 0, 0, files)


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    """Return all rows as one batch, with strings widened (`large_string`) so that any size fits."""
    wide = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
    schema = pa.schema([f.with_type(wide.get(f.type, f.type)) for f in table.schema])
    (batch,) = table.cast(schema).combine_chunks().to_batches()
    return batch
