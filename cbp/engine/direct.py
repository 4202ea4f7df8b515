"""The direct engine: state is never shuffled, and a run costs what its increment touches.

`DirectEngine` is the engine that a service uses, over tables whose records are placed by bucket.
`cbp.engine.run.preparer` prepares a run, and an executor carries out its tasks:
`cbp.engine.spark` as one Spark job, `LocalExecutor` in this process (tests, and simulations
that need no cluster). Both run the same task code on the same files.

Guaranteed: `prepare` publishes nothing; `publish` is redo and may be repeated.
Not guaranteed: that files of failed attempts are gone; they stay until `collect` finds them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from cbp.engine.commit.garbage_collection import NamedFiles, collect_table, plan_table
from cbp.engine.commit.publication import (
    CHANGE,
    app_id,
    begun_ms,
    horizon,
    live_files,
    plan_entries,
)
from cbp.engine.commit.rollback import plan_rewind, rewind_table
from cbp.engine.commit.table_versions import version_at, version_showing
from cbp.engine.delta.tables import create_table
from cbp.engine.interface.engine import PreparedRun, RunPlan
from cbp.engine.interface.tables import Retention, TablePlan, TableRewind, Target
from cbp.engine.outputs.locate import located
from cbp.engine.outputs.retention import expired
from cbp.engine.outputs.table_migration import Rewriter, alter
from cbp.engine.outputs.table_specs import declared_tables
from cbp.engine.read.contents import OutputContents, StateContents
from cbp.engine.read.lookup import look_up, read_records, read_state_rows, recalled
from cbp.engine.read.pages import VersionReader
from cbp.engine.read.state_copy import take_over
from cbp.engine.run.executor import Executor, LocalExecutor
from cbp.engine.run.framing import frame_increment
from cbp.engine.run.planner import Planner
from cbp.engine.run.preparer import Preparer
from cbp.engine.run.table_cache import OpenTables
from cbp.engine.state.bucket_state import StateTable
from cbp.engine.state.index_cache import index_cache
from cbp.engine.storage.failpoints import NO_FAULTS, Faults
from cbp.engine.storage.files import Files, LocalFiles
from cbp.engine.storage.table_names import stage_tables
from cbp.model.dataflow.dataflow import StageNode
from cbp.model.dataflow.explain import PhysicalLimits
from cbp.model.dataflow.stage import InputSpec
from cbp.model.flow.framing import Segment
from cbp.model.flow.increment import Increment
from cbp.model.flow.retention import Expiry, KeptFlow
from cbp.model.flow.snapshot import TableVersion
from cbp.model.run.correction import Correction
from cbp.model.run.intention import Intention, TableChange
from cbp.model.verification import Comparison

__all__ = ["DirectEngine", "LocalEngine"]

_HASH_ALL_BITS = -1


class DirectEngine:
    """The direct engine; implements `cbp.engine.interface.engine.Engine`.

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
        self._tables = OpenTables(self._files)
        self._named: dict[str, NamedFiles] = {}
        self._planner = Planner(executor, self._tables, cache, hash_mask)
        self._runs = Preparer(executor, self._planner, self._tables, self._files, clock_ms, faults)

    def check(self, dataflow: str, nodes: Sequence[StageNode]) -> None:
        """Refuse what the executor cannot do; see `Engine.check`."""
        self._executor.refuse(dataflow, nodes)

    def limits(self) -> PhysicalLimits:
        """Return the limits that decide how a run is executed."""
        return self._planner.limits()

    def frame(
        self, folder: str, stage: str, spec: InputSpec, increment: Increment, memo: Any
    ) -> tuple[list[Segment], Any]:
        """Find the frames of an output increment; see `Engine.frame`."""
        return frame_increment(folder, increment, spec, memo, stage=stage)

    def create_tables(
        self,
        folder: str,
        dataflow: str,
        nodes: Sequence[StageNode],
        *,
        timestamp_ms: int | None = None,
    ) -> None:
        """Create the state and output tables of these stages that do not exist yet."""
        self.check(dataflow, nodes)
        now_ms = self._now_ms() if timestamp_ms is None else timestamp_ms
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
                    now_ms=now_ms,
                )

    def rewrite(
        self, folder: str, dataflow: str, node: StageNode, *, epoch: int, run: str, anew: bool
    ) -> Sequence[TableChange]:
        """Write the new files that the tables of a changed stage need; see `Engine.rewrite`."""
        rewriter = Rewriter(epoch, run, self._now_ms(), index_cache(self._cache), self._fault)
        changes = []
        for declared in declared_tables(dataflow, node):
            if not self._files.exists(f"{folder}/{declared.name}/_delta_log"):
                continue
            table = self._tables.table(f"{folder}/{declared.name}")
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
                self._tables.table(f"{folder}/{change.table}"),
                declared[change.table],
                change,
                app_id=app_id(dataflow, change.table, f"{CHANGE}{version}"),
                epoch=epoch,
                cause=f"{dataflow}/{node.name}/version {version}",
                timestamp_ms=timestamp_ms,
            )

    def prepare(self, plan: RunPlan) -> PreparedRun:
        """Run stages over their increments; see `Engine.prepare`."""
        return self._runs.prepare(plan)

    def correct(
        self, plan: RunPlan, stage: str, state: str, corrections: Sequence[Correction]
    ) -> tuple[PreparedRun, str]:
        """Correct records of a state; see `Engine.correct`."""
        return self._runs.correct(plan, stage, state, corrections)

    def publish(
        self, folder: str, intentions: Sequence[Intention], *, timestamp_ms: int
    ) -> Mapping[str, int]:
        """Write the log entries of recorded intentions; idempotent, see `Engine.publish`.

        All vectors of all tables are durable before the first entry is written.
        """
        names = [change.table for intention in intentions for change in intention.changes]
        tables = {name: self._tables.table(f"{folder}/{name}") for name in dict.fromkeys(names)}
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
                vectors=index_cache(self._cache).vectors,
            )
        ]
        entries = [entry for _, _, entry in planned]
        return {
            name: entry.put_into(table, timestamp_ms, together=entries)
            for name, table, entry in planned
        }

    def shown(
        self, folder: str, dataflow: str, node: StageNode, *, at_ms: int | None = None
    ) -> dict[str, TableVersion]:
        """Return the newest versions of a stage's tables as of a time; see `Engine.shown`."""
        return {
            name: version_at(self._tables.table(f"{folder}/{name}"), name, dataflow, at_ms)
            for name in stage_tables(node)
        }

    def first_shown(
        self, folder: str, dataflow: str, node: StageNode, epoch: int, generation: int
    ) -> dict[str, TableVersion]:
        """Return the oldest versions that show an epoch; see `Engine.first_shown`."""
        tables = {name: self._tables.table(f"{folder}/{name}") for name in stage_tables(node)}
        found = {
            name: version_showing(table, name, dataflow, epoch, generation)
            for name, table in tables.items()
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

    def take_over(
        self, folder: str, tables: Mapping[str, int], records: Sequence[Intention], into: str
    ) -> tuple[TableChange, ...]:
        """Copy the records of versions of tables; see `Engine.take_over`."""
        return tuple(
            take_over(
                self._tables.table(f"{folder}/{name}").log.snapshot(version),
                name,
                records,
                folder=folder,
                into=into,
                files=self._files,
            )
            for name, version in tables.items()
        )

    def contents(
        self, folder: str, node: StageNode, comparison: Comparison, *, version: int | None = None
    ) -> StateContents | OutputContents:
        """Return the records of one table as of a version; see `Engine.contents`."""
        table = self._tables.table(f"{folder}/{comparison.table}")
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
        table = self._tables.state(folder, node, state)
        cache = index_cache(self._cache)
        return look_up(table, node, state, key, cache, hash_mask=self._hash_mask)

    def versions(self, folder: str, node: StageNode) -> VersionReader:
        """Return a reader of a stage's tables as of a version; see `Engine.versions`."""
        cache = index_cache(self._cache)
        return VersionReader(self._tables.table, folder, node, cache, hash_mask=self._hash_mask)

    def read(
        self, folder: str, increments: Sequence[Increment], *, offset: int, limit: int
    ) -> list[dict[str, Any]]:
        """Return records of increments, in order; old increments are read from their tables."""
        return read_records(
            folder, increments, offset=offset, limit=limit, live_of=self._tables.live_output
        )

    def recall(self, folder: str, flow: str, index: int) -> Increment:
        """Return an old increment from its table; see `Engine.recall`."""
        increment = Increment(flow, index, index)
        live = self._tables.live_output(folder, increment)
        return recalled(folder, increment, live)

    def horizon(self, folder: str, flow: str, *, version: int | None = None) -> int:
        """Return the first increment that retention kept; see `Engine.horizon`."""
        return horizon(self._tables.output(folder, flow, version=version).txns)

    def expired(self, folder: str, kept: Mapping[str, KeptFlow]) -> Mapping[str, Expiry]:
        """Return what the next runs would drop from outputs; see `Engine.expired`."""
        tables = {flow: self._tables.output(folder, flow) for flow in kept}
        now_ms = self._now_ms()
        return {
            flow: expired(snapshot.live.values(), kept[flow], now_ms=now_ms)
            for flow, snapshot in tables.items()
        }

    def locate(self, folder: str, flow: str, increments: Sequence[Increment]) -> list[Increment]:
        """Return old increments with the files that hold them now; see `Engine.locate`."""
        live = self._tables.output(folder, flow).live
        return located(folder, flow, increments, tuple(live.values()))

    def read_state(self, folder: str, node: StageNode, state: str) -> Iterator[dict[str, Any]]:
        """Yield every published record of a state."""
        return read_state_rows(
            self._tables.state(folder, node, state), node, state, index_cache(self._cache)
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
        """Collect the garbage of a stage's tables; see `Engine.collect`."""
        plans: dict[str, TablePlan] = {}
        for name in stage_tables(node):
            table = self._tables.table(f"{folder}/{name}")
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
        """Roll a stage's tables back to an earlier epoch; see `Engine.rewind`."""
        done: dict[str, TableRewind] = {}
        for name in stage_tables(node):
            table = self._tables.table(f"{folder}/{name}")
            if dry_run:
                figures, _ = plan_rewind(folder, name, table, target, records, files=self._files)
                done[name] = figures
            elif found := rewind_table(folder, name, table, target, records, files=self._files):
                done[name] = found
        return done

    def cancel(self, run: str) -> None:
        """Ask a run to stop."""
        self._executor.cancel(run)

    def starved(self, runs: Collection[str]) -> Collection[str]:
        """Return the runs whose tasks all wait for a slot."""
        return self._executor.starved(runs)

    def forget(self, folder: str) -> None:
        """Drop the snapshots of a folder's tables."""
        self._tables.forget(folder)
        for path in list(self._named):  # a copy, since another thread may add to it
            if path.startswith(f"{folder}/"):
                self._named.pop(path, None)
        self._executor.forget(folder)

    def close(self) -> None:
        """Release the executor."""
        self._executor.close()


class LocalEngine(DirectEngine):
    """The direct engine without Spark; it has the same files and tables."""

    def __init__(self, *, cache: str, **options: Any) -> None:
        super().__init__(LocalExecutor(), cache=cache, **options)


def _below(table: str, queued: Callable[[], Collection[str]]) -> set[str]:
    prefix = f"{table}/"
    return {path.removeprefix(prefix) for path in queued() if path.startswith(prefix)}
