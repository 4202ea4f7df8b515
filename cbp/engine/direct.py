"""The direct engine: state that never moves, a run that costs what its increment touches.

`DirectEngine` is everything about a run except where its tasks execute: it knows the
tables, hands each task the live files of its buckets, turns what tasks wrote into a
prepared run, and publishes recorded intentions. An *executor* carries the tasks out:
`cbp.engine.spark` as one Spark job, `LocalExecutor` here in this process (tests, and
simulations that need no cluster). Both run the same task code on the same files.

Guaranteed: `prepare` publishes nothing; `publish` is redo and may be repeated.
Not guaranteed: files of failed attempts stay until `collect` finds them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from cbp.engine.base import PreparedRun, RunPlan, flow_table, stage_tables, state_table
from cbp.engine.bindings import BindingFile
from cbp.engine.collect import NamedFiles, Retention, TablePlan, collect_table, plan_table
from cbp.engine.contents import OutputContents, StateContents
from cbp.engine.correct import correcting_plan, write_corrections
from cbp.engine.declared import declared_tables
from cbp.engine.delta.actions import AddFile
from cbp.engine.delta.fence import require_placement
from cbp.engine.delta.tables import ManagedTable, create_table, open_table
from cbp.engine.faults import NO_FAULTS, Faults
from cbp.engine.files import Files, LocalFiles
from cbp.engine.frame import frame_increment
from cbp.engine.fused import followers_of, joined, only_flow, phases, reading, with_members
from cbp.engine.layout import shuffle_layout
from cbp.engine.limits import require_no_spark
from cbp.engine.located import located
from cbp.engine.prepared import assemble, empty_outputs, raise_first_error
from cbp.engine.publication import (
    CHANGE,
    app_id,
    begun_ms,
    live_adds,
    live_files,
    plan_entries,
)
from cbp.engine.read import look_up, read_records, read_state_rows, recalled
from cbp.engine.records import record_shares, share_of
from cbp.engine.rewind import TableRewind, Target, plan_rewind, rewind_table
from cbp.engine.rewrite import Rewriter, alter
from cbp.engine.state.bucket import StateTable
from cbp.engine.state.index import index_cache
from cbp.engine.task import BEHIND, StageTask, TaskPlan, Then
from cbp.engine.tiers import FANOUT, live_of, merged_change
from cbp.engine.versions import version_at, version_showing
from cbp.errors import NotFoundError
from cbp.model.correction import Correction
from cbp.model.dataflow import StageNode
from cbp.model.explain import PhysicalLimits
from cbp.model.framing import Segment
from cbp.model.increment import DataFile, Increment
from cbp.model.intention import Intention, TableChange
from cbp.model.snapshot import TableVersion
from cbp.model.stage import InputSpec
from cbp.model.verification import Comparison

__all__ = ["DirectEngine", "Executor", "LocalEngine", "LocalExecutor"]

ROWS_PER_TASK = {"groupwise": 2_000, "arrow": 2_000, "sql": 50_000}
"""Records of an increment that are worth a task of their own; by form.

A plan of Spark without a shuffle is worth more than a second task for some thousand records.
"""
_HASH_ALL_BITS = -1


class Executor(Protocol):
    """Carries out the tasks of one run; safe to call from several threads."""

    @property
    def slots(self) -> int:
        """Tasks that run at the same time."""
        ...

    @property
    def arranged_max(self) -> tuple[int, int] | None:
        """Records times tasks, and bytes, up to which a run is not shuffled; `None`: never is."""
        ...

    def refuse(self, dataflow: str, nodes: Sequence[StageNode]) -> None:
        """Raise `DataflowInvalidError` for what it cannot execute; cheap when asked again."""
        ...

    def execute(self, plan: RunPlan, task: TaskPlan) -> list[dict[str, Any]]:
        """Run every task of a plan and return all their descriptors.

        A task's rows count once, whatever retries and speculation do.
        """
        ...

    def cancel(self, run: str) -> None:
        """Stop the tasks of a run; `execute` then raises `RunCancelledError`."""
        ...

    def forget(self, folder: str) -> None:
        """Drop what is kept for a folder's stages."""
        ...

    def close(self) -> None:
        """Release what the executor holds."""
        ...


class DirectEngine:
    """See the module header; implements `cbp.engine.base.Engine`.

    Args:
        cache: Folder for index copies, on every worker's machine.
        hash_mask: Applied to every hash; only tests narrow it, to force collisions.
    """

    def __init__(
        self,
        executor: Executor,
        *,
        cache: str,
        files: Files | None = None,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        faults: Faults = NO_FAULTS,
        hash_mask: int = _HASH_ALL_BITS,
    ) -> None:
        self._executor, self._cache = executor, cache
        self._files = files or LocalFiles(faults)
        self._now_ms, self._fault, self._hash_mask = clock_ms, faults, hash_mask
        self._tables: dict[str, ManagedTable] = {}
        self._named: dict[str, NamedFiles] = {}
        self._lock = threading.Lock()

    def check(self, dataflow: str, nodes: Sequence[StageNode]) -> None:
        """Refuse what the executor cannot do; see `Engine.check`."""
        self._executor.refuse(dataflow, nodes)

    def limits(self) -> PhysicalLimits:
        """Return what decides how a run is executed."""
        reads, size = self._executor.arranged_max or (None, None)
        return PhysicalLimits(self._executor.slots, ROWS_PER_TASK, reads, size)

    def frame(
        self, folder: str, stage: str, spec: InputSpec, increment: Increment, memo: Any
    ) -> tuple[list[Segment], Any]:
        """Find the frames of an output increment; see `Engine.frame`."""
        return frame_increment(folder, increment, spec, memo, stage=stage)

    def create_tables(self, folder: str, dataflow: str, nodes: Sequence[StageNode]) -> None:
        """Create state and output tables of these stages, where they do not exist."""
        self.check(dataflow, nodes)
        for node in nodes:
            for table in declared_tables(dataflow, node):
                create_table(
                    f"{folder}/{table.name}",
                    table.schema,
                    files=self._files,
                    table_id=table.id,
                    extra=table.extra,
                    partition_by=table.partition_by,
                    configuration=table.configuration,
                    now_ms=self._now_ms(),
                )

    def rewrite(
        self, folder: str, dataflow: str, node: StageNode, *, epoch: int, run: str, anew: bool
    ) -> Sequence[TableChange]:
        """Write what the tables of a changed stage need; see `Engine.rewrite`."""
        rewriter = Rewriter(epoch, run, self._now_ms(), index_cache(self._cache), self._fault)
        changes = []
        for declared in declared_tables(dataflow, node):
            if not self._files.exists(f"{folder}/{declared.name}/_delta_log"):
                continue
            table = self._table(f"{folder}/{declared.name}")
            found = rewriter.rewritten(table, declared, anew=anew and declared.is_state)
            changes += [found] if found else []
        return changes

    def alter(
        self,
        folder: str,
        dataflow: str,
        node: StageNode,
        changes: Sequence[TableChange],
        *,
        epoch: int,
        version: int,
        timestamp_ms: int,
    ) -> None:
        """Put the entries of changed tables; see `Engine.alter`."""
        declared = {table.name: table for table in declared_tables(dataflow, node)}
        for change in changes:
            alter(
                self._table(f"{folder}/{change.table}"),
                declared[change.table],
                change,
                app_id=app_id(dataflow, change.table, f"{CHANGE}{version}"),
                epoch=epoch,
                cause=f"{dataflow}/{node.name}/version {version}",
                timestamp_ms=timestamp_ms,
            )

    def prepare(self, plan: RunPlan) -> PreparedRun:
        """Run stages over their increments; see `Engine.prepare`."""
        prepared = self._run(plan)
        # A look costs a step per live file, so not in every epoch.
        if not prepared.changes or plan.epoch % FANOUT:
            return prepared
        return replace(prepared, changes=(*prepared.changes, *self._merged_outputs(plan)))

    def correct(
        self, plan: RunPlan, stage: str, state: str, corrections: Sequence[Correction]
    ) -> tuple[PreparedRun, str]:
        """Correct records of a state; see `Engine.correct`."""
        node = next(one for one in (plan.node, *plan.fused) if one.name == stage)
        increment = write_corrections(plan, node, state, corrections, files=self._files)
        run = correcting_plan(plan, node, state, increment)
        prepared, _ = self._prepare(run)
        return replace(prepared, outputs=empty_outputs(plan)), increment.files[0].path

    def _merged_outputs(self, plan: RunPlan) -> list[TableChange]:
        """Compact the output tables of a run, as far as they are published."""
        changes = []
        for node in (plan.node, *plan.fused):
            for output in node.translator.outputs:
                table = flow_table(node.name, output.name)
                change = merged_change(
                    table,
                    f"{plan.folder}/{table}",
                    live_adds(
                        self._table(f"{plan.folder}/{table}").snapshot, table, plan.unpublished
                    ),
                    epoch=plan.epoch,
                    run=plan.run,
                    now_ms=self._now_ms(),
                    faults=self._fault,
                )
                changes += [change] if change else []
        return changes

    def _run(self, plan: RunPlan) -> PreparedRun:
        first, behind = phases(plan)
        if not plan.fused:
            return self._prepare(plan)[0]
        if behind is None:
            return with_members(first, self._prepare(first)[0])
        prepared, more = self._prepare(first, behind)
        behind = reading(behind, prepared)
        # A single task may have done both phases; otherwise the second is a job of its own.
        rest = assemble(behind, more, now_ms=self._now_ms()) if more else self._prepare(behind)[0]
        return joined(plan, with_members(first, prepared), with_members(behind, rest))

    def _prepare(
        self, plan: RunPlan, behind: RunPlan | None = None
    ) -> tuple[PreparedRun, list[dict[str, Any]]]:
        """Do one phase; return it with what its task reported of the one behind it."""
        started = time.perf_counter()
        self.check(plan.dataflow, [plan.node, *plan.fused])
        records = sum(i.records for increments in plan.inputs.values() for i in increments)
        if not records:
            return PreparedRun(empty_outputs(plan), (), {"records_in": 0, "groups": 0}), []
        task = self._task(plan, records)
        if behind is not None:
            task = replace(task, then=self._then(plan, behind))
        ready = time.perf_counter()
        self._fault("job.before")
        descriptors = self._executor.execute(plan, task)
        self._fault("job.after")
        raise_first_error(descriptors)
        done = time.perf_counter()
        mine = [d for d in descriptors if d.get("phase") != BEHIND]
        prepared = assemble(plan, mine, now_ms=self._now_ms())
        figures = {
            **prepared.figures,
            "tasks": task.tasks,
            "seconds_plan": ready - started,
            "seconds_job": done - ready,
            "seconds_assemble": time.perf_counter() - done,
        }
        more = [d for d in descriptors if d.get("phase") == BEHIND]
        return PreparedRun(prepared.outputs, prepared.changes, figures), more

    def _then(self, plan: RunPlan, behind: RunPlan) -> Then | None:
        """Return what the only task of a phase may go on with; `None`: there are several."""
        outer = any(state.grouping == "outer" for state in behind.node.translator.states)
        in_sql = behind.node.translator.form == "sql" or any(
            input_.in_sql for input_ in behind.node.translator.inputs
        )
        if outer or in_sql or len(record_shares(plan, self._executor.slots)) > 1:
            return None
        task = self._task(behind, records=1)
        return Then(only_flow(behind.node), task)

    def publish(
        self, folder: str, intentions: Sequence[Intention], *, timestamp_ms: int
    ) -> Mapping[str, int]:
        """Write the log entries of recorded intentions; idempotent, see `Engine.publish`.

        All vectors of all tables are durable before the first entry is written.
        """
        names = [change.table for intention in intentions for change in intention.changes]
        tables = {name: self._table(f"{folder}/{name}") for name in dict.fromkeys(names)}
        found = {name: table.refresh() for name, table in tables.items()}
        timestamp_ms = begun_ms(tables, intentions) or timestamp_ms
        planned = [
            (name, tables[name], entry)
            for name in tables
            for entry in plan_entries(
                folder,
                name,
                found[name],
                intentions,
                timestamp_ms=timestamp_ms,
                files=self._files,
            )
        ]
        return {name: entry.put_into(table, timestamp_ms) for name, table, entry in planned}

    def shown(
        self, folder: str, dataflow: str, node: StageNode, *, at_ms: int | None = None
    ) -> dict[str, TableVersion]:
        """Return the newest versions of a stage's tables as of a time; see `Engine.shown`."""
        return {
            name: version_at(self._table(f"{folder}/{name}"), name, dataflow, at_ms)
            for name in stage_tables(node)
        }

    def first_shown(
        self, folder: str, dataflow: str, node: StageNode, epoch: int
    ) -> dict[str, TableVersion]:
        """Return the oldest versions that show an epoch; see `Engine.first_shown`."""
        found = {
            name: version_showing(self._table(f"{folder}/{name}"), name, dataflow, epoch)
            for name in stage_tables(node)
        }
        return {name: version for name, version in found.items() if version is not None}

    def beside(self) -> DirectEngine:
        """Return an engine for recomputations; see `Engine.beside`."""
        return DirectEngine(
            self._executor,
            cache=f"{self._cache}-beside",
            files=self._files,
            clock_ms=self._now_ms,
            faults=self._fault,
            hash_mask=self._hash_mask,
        )

    def contents(
        self, folder: str, node: StageNode, comparison: Comparison, *, version: int | None = None
    ) -> StateContents | OutputContents:
        """Return the records of one table as of a version; see `Engine.contents`."""
        table = self._table(f"{folder}/{comparison.table}")
        snapshot = table.refresh() if version is None else table.log.snapshot(version)
        if comparison.kind == "state":
            schema = node.translator.state(comparison.name).schema
            live = live_files(snapshot, comparison.table, ())
            found = StateTable(table.path, snapshot.metadata.id, live)
            return StateContents(found, schema, node.buckets, index_cache(self._cache))
        schema = node.translator.output(comparison.name).schema
        return OutputContents(table.path, schema, tuple(snapshot.live.values()))

    def look_up(
        self, folder: str, node: StageNode, state: str, key: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        """Return the published records of one key."""
        table = self._state(folder, node, state)
        cache = index_cache(self._cache)
        return look_up(table, node, state, key, cache, hash_mask=self._hash_mask)

    def read(
        self, folder: str, increments: Sequence[Increment], *, offset: int, limit: int
    ) -> list[dict[str, Any]]:
        """Return records of increments, in order; of old ones, out of their tables."""
        return read_records(
            folder, increments, offset=offset, limit=limit, live_of=self._live_output
        )

    def recall(self, folder: str, flow: str, index: int) -> Increment:
        """Return an old increment out of its table; see `Engine.recall`."""
        increment = Increment(flow, index, index)
        live = self._live_output(folder, increment)
        return recalled(folder, increment, live)

    def locate(self, folder: str, flow: str, increments: Sequence[Increment]) -> list[Increment]:
        """Return old increments by the files that hold them now; see `Engine.locate`."""
        stage, _, output = flow.partition(".")
        snapshot = self._table(f"{folder}/{flow_table(stage, output)}").refresh()
        return located(folder, flow, increments, tuple(snapshot.live.values()))

    def read_state(self, folder: str, node: StageNode, state: str) -> Iterator[dict[str, Any]]:
        """Yield every published record of a state."""
        return read_state_rows(
            self._state(folder, node, state), node, state, index_cache(self._cache)
        )

    def collect(
        self,
        folder: str,
        node: StageNode,
        *,
        queued: Callable[[], Collection[str]],
        retention: Retention,
        dry_run: bool = False,
    ) -> Mapping[str, TablePlan]:
        """Remove what nobody needs of a stage's tables; see `Engine.collect`."""
        plans: dict[str, TablePlan] = {}
        for name in stage_tables(node):
            table = self._table(f"{folder}/{name}")
            plans[name] = plan_table(
                table,
                self._files,
                named=self._named.setdefault(table.path, NamedFiles(table.log)),
                queued=partial(_below, name, queued),
                retention=retention,
                now_ms=self._now_ms(),
            )
            if not dry_run:
                collect_table(table, self._files, plans[name])
        return plans

    def rewind(
        self,
        folder: str,
        node: StageNode,
        target: Target,
        *,
        records: Callable[[int], Sequence[Intention]],
        dry_run: bool = False,
    ) -> Mapping[str, TableRewind]:
        """Take a stage's tables back to an earlier epoch; see `Engine.rewind`."""
        done: dict[str, TableRewind] = {}
        for name in stage_tables(node):
            table = self._table(f"{folder}/{name}")
            if dry_run:
                figures, _ = plan_rewind(folder, name, table, target, records, files=self._files)
                done[name] = figures
            elif found := rewind_table(folder, name, table, target, records, files=self._files):
                done[name] = found
        return done

    def cancel(self, run: str) -> None:
        """Ask a run to stop."""
        self._executor.cancel(run)

    def forget(self, folder: str) -> None:
        """Drop the snapshots of a folder's tables."""
        with self._lock:
            for path in [path for path in self._tables if path.startswith(f"{folder}/")]:
                del self._tables[path]
                self._named.pop(path, None)
        self._executor.forget(folder)

    def close(self) -> None:
        """Release the executor."""
        self._executor.close()

    def _task(self, plan: RunPlan, records: int) -> TaskPlan:
        spec, node = plan.node.translator, plan.node
        outer = any(state.grouping == "outer" for state in spec.states)
        wanted = node.buckets if outer else -(-records // ROWS_PER_TASK[spec.form])
        return TaskPlan(
            folder=plan.folder,
            stage=node.name,
            epoch=plan.epoch,
            run=plan.run,
            spec=spec,
            layout=None if spec.record_wise else shuffle_layout(spec),
            buckets=node.buckets,
            tasks=max(1, min(wanted, self._executor.slots, node.buckets)),
            states={
                state.name: self._state(
                    plan.folder, node, state.name, plan.unpublished, refresh=False
                )
                for state in spec.states
            },
            cache=self._cache,
            inputs={
                name: tuple(share_of(plan.folder, f) for i in many for f in i.files)
                for name, many in plan.inputs.items()
            },
            bindings=tuple(
                BindingFile(f"{plan.folder}/{file.path}", file.records, increment.index)
                for file, increment in _bindings(plan).items()
            ),
            followers=followers_of(plan),
            hash_mask=self._hash_mask,
            faults=self._fault,
        )

    def _live_output(self, folder: str, increment: Increment) -> list[AddFile]:
        """Return the live files that hold an increment's records now, in order."""
        stage, _, output = increment.flow.partition(".")
        if not output:
            raise NotFoundError(kind="increment", name=increment.name)
        snapshot = self._table(f"{folder}/{flow_table(stage, output)}").refresh()
        return live_of(snapshot.live.values(), increment.index)

    def _state(
        self,
        folder: str,
        node: StageNode,
        state: str,
        unpublished: Sequence[Intention] = (),
        *,
        refresh: bool = True,
    ) -> StateTable:
        """Return a state's live files; refuse one whose records lie elsewhere than we look."""
        name = state_table(node.name, state)
        table = self._table(f"{folder}/{name}")
        snapshot = table.refresh() if refresh else table.snapshot
        require_placement(table.path, snapshot.metadata, buckets=node.buckets)
        live = live_files(snapshot, name, unpublished)
        return StateTable(table.path, snapshot.metadata.id, live)

    def _table(self, path: str) -> ManagedTable:
        with self._lock:
            if path not in self._tables:
                self._tables[path] = open_table(path, self._files)
            return self._tables[path]


class LocalExecutor:
    """Carries out tasks one after the other in this process, without Spark.

    Args:
        kind: What a task is.
    """

    slots = 2
    arranged_max = None

    def __init__(self, kind: type[StageTask] = StageTask) -> None:
        self._kind = kind

    def refuse(self, dataflow: str, nodes: Sequence[StageNode]) -> None:
        """Do nothing: what is computed by SQL has a function too, or fails as it is called."""

    def execute(self, plan: RunPlan, task: TaskPlan) -> list[dict[str, Any]]:
        """Run the same task code as Spark's workers."""
        require_no_spark(plan.node.name, task.spec)
        if task.spec.record_wise:
            work = record_shares(plan, self.slots)
            runs = (self._kind(task, i, "0").run_shares(share) for i, share in enumerate(work))
        else:
            runs = (self._kind(task, part, "0").run_arranged() for part in range(task.tasks))
        return [descriptor for run in runs for descriptor in run]

    def cancel(self, run: str) -> None:
        """Do nothing: a task here cannot be interrupted."""

    def forget(self, folder: str) -> None:
        """Do nothing: nothing is kept."""

    def close(self) -> None:
        """Hold nothing, release nothing."""


class LocalEngine(DirectEngine):
    """The direct engine without Spark; same files, same tables."""

    def __init__(self, *, cache: str, **options: Any) -> None:
        super().__init__(LocalExecutor(), cache=cache, **options)


def _bindings(plan: RunPlan) -> Mapping[DataFile, Increment]:
    """Return the files of bindings, each with an increment of the epoch that made them."""
    return {
        file: increment
        for increments in plan.inputs.values()
        for increment in increments
        for file in increment.bindings
    }


def _below(table: str, queued: Callable[[], Collection[str]]) -> set[str]:
    prefix = f"{table}/"
    return {path.removeprefix(prefix) for path in queued() if path.startswith(prefix)}
