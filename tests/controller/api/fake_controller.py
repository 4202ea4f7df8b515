"""A controller without an engine: it compiles documents with the real registry and SDK."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cbp.engine.commit.intention_log import IntentionLog
from cbp.engine.interface.runs import ProcessStack
from cbp.engine.storage.files import LocalFiles
from cbp.errors import AlreadyExistsError, NotFoundError
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.flow.connector import Connector
from cbp.model.flow.position import Position
from cbp.model.flow.punctuation import Punctuation
from cbp.model.run.compactions import Compaction
from cbp.model.schedule.priority import Priority
from cbp.model.schedule.waiting import Wait
from cbp.model.version.dataflow_shape import shape_of
from cbp.model.version.succession import Succession
from cbp.model.version.version_change import NO_CHOICE, Choice, compare_versions
from controller.loop.housekeeping.disk_use import DiskUses
from controller.loop.operations.jobs import GiveBackJobs, RollbackJobs
from controller.loop.operations.version_switch import Changed
from controller.loop.reading.lineage import Lineages
from controller.loop.reading.rebuild_backlog import Rebuild
from controller.loop.reading.stage_facts import SetAsideCounts, StageFacts
from controller.loop.records.compiled_dataflows import Catalog
from controller.loop.recovery.recovery_notes import RecoveryNotes
from controller.loop.runs.isolation import Trouble
from controller.loop.runs.run_counts import Counts, LaneCount
from controller.loop.runs.threads import Here
from controller.store.base import DataflowRecord, RunRecord, StageRecord
from tests.controller.api.clicks import NOON, registry
from tests.controller.api.fake_amendments import FakeAmendments
from tests.controller.api.fake_reading import (
    EmptyTables,
    FakeReading,
    NoExplaining,
    NoSnapshots,
    NoVerifications,
    Unrecorded,
)
from tests.controller.api.fake_rebuild_jobs import FakeRebuildJobs
from tests.controller.api.fake_store import FakeStore
from tests.controller.api.fake_upkeep import FakeHousekeeping, FakeScrubs

__all__ = ["FakeController"]


class FakeRetained:
    """Lets every stage follow."""

    def __init__(self, store: FakeStore) -> None:
        self._store = store

    def check(self, name: str, source: str) -> DataflowRecord:
        return self._store.dataflow(name)


class FakeController:
    """Registers into the store.

    Real parts are those that need no more than the store: lineages, facts of stages, notes
    of recoveries.
    """

    def __init__(self, store: FakeStore, root: Path) -> None:
        self.registry, self.verifications = registry(), NoVerifications()
        self.explaining, self.snapshots = NoExplaining(), NoSnapshots()
        catalog = Catalog(store, self.registry, Unrecorded())  # type: ignore[arg-type]
        self.lineages = Lineages(store=store, catalog=catalog)  # type: ignore[arg-type]
        self.stage_facts = StageFacts(
            store=store,  # type: ignore[arg-type]
            files=LocalFiles(),
            clock=lambda: NOON,
            catalog=catalog,
            records=EmptyTables(),  # type: ignore[arg-type]
            descriptions=Unrecorded(),  # type: ignore[arg-type]
            open_log=lambda folder: IntentionLog(folder, LocalFiles()),
        )
        self.store = store
        self.reading = FakeReading()
        self.asked: list[tuple[Any, ...]] = []
        self.amendments = FakeAmendments(store)
        jobs: dict[str, Any] = {
            "amendments": self.amendments,
            "executor": Here(),
            "random_hex": secrets.token_hex,
            "clock": lambda: NOON,
        }
        self.set_aside_counts = SetAsideCounts(store)  # type: ignore[arg-type]
        self.rollback_jobs, self.give_back_jobs = RollbackJobs(**jobs), GiveBackJobs(**jobs)
        self.rebuild_jobs = FakeRebuildJobs(store, self.change)
        self.housekeeping, self.scrubs = FakeHousekeeping(store), FakeScrubs(store)
        self.problem, files = "", LocalFiles()
        self.waits_for = ""
        self.retained = FakeRetained(store)
        self.recovery_notes = RecoveryNotes(files=files, root=str(root), clock=lambda: NOON)
        self.disk_uses = DiskUses(files=files, clock=lambda: NOON)
        lanes = (
            LaneCount("clicks", "resident", runs=3, seconds=0.5),
            LaneCount("deleted", "spark", runs=1, seconds=2.0),
        )
        self.run_counts = Counts(lanes={(one.dataflow, one.lane): one for one in lanes})
        self.fails_with: Exception | None = None
        self.under_way: dict[str, dict[str, float]] = {}
        self.now_in: list[ProcessStack] = []
        self.stack_fails_with: Exception | None = None
        self.beside: tuple[str, ...] = ()
        self.in_trouble: list[Trouble] = []
        self.reasons: dict[str, str] = {"count": "waits for an increment on urls"}
        self.rebuilds: dict[str, Rebuild] = {}

    def every_wait(self) -> dict[tuple[str, str], Wait]:
        return {
            (name, stage): wait
            for name in self.store.records
            for stage, wait in self.waits(name).items()
        }

    def register(
        self, document: Mapping[str, Any], duplicates: Iterable[str] = ()
    ) -> DataflowRecord:
        if self.fails_with is not None:
            raise self.fails_with
        dataflow = self.validate(document, duplicates)
        if dataflow.name in self.store.records:
            raise AlreadyExistsError(kind="dataflow", name=dataflow.name)
        record = DataflowRecord(dataflow.name, 1, document, "/tables/clicks", "running", NOON)
        self.store.records[record.name] = record
        for stage in dataflow.stages.values():
            self.store.stage_records.append(StageRecord(record.name, stage.name, 0, NOON))
            self.store.queues[stage.name] = {name: Connector(name) for name in stage.wiring}
        return record

    def change(
        self,
        document: Mapping[str, Any],
        duplicates: Iterable[str] = (),
        *,
        choice: Choice = NO_CHOICE,
        expected_version: int | None = None,
        dry_run: bool = False,
    ) -> Changed:
        dataflow = self.validate(document, duplicates)
        record = self.store.dataflow(dataflow.name)
        self.asked.append(("change", choice, expected_version, dry_run))
        before = shape_of(self.dataflow(record.name))
        plan = compare_versions(before, shape_of(dataflow), choice)
        position = Position(record.name, {}, ())
        return Changed(
            record.name, 2, plan, Succession(position, (), (), ()), plan.changed, {}, not dry_run
        )

    def validate(self, document: Mapping[str, Any], duplicates: Iterable[str] = ()) -> Dataflow:
        return self.registry.compile(document, duplicates)

    def dataflow(self, name: str) -> Dataflow:
        return self.registry.compile(self.store.dataflow(name).document)

    def compiled(self, record: DataflowRecord) -> Dataflow:
        return self.dataflow(record.name)

    def troubles(self, name: str | None = None) -> list[Trouble]:
        return [trouble for trouble in self.in_trouble if name in (None, trouble.dataflow)]

    def pause(self, name: str) -> None:
        self.store.records[name] = replace(self.store.dataflow(name), desired="paused")

    def drain_dataflow(self, name: str) -> None:
        self.store.records[name] = replace(self.store.dataflow(name), desired="draining")

    def resume(self, name: str) -> None:
        self.store.records[name] = replace(self.store.dataflow(name), desired="running")

    def pause_stage(self, dataflow: str, stage: str) -> None:
        if all(record.stage != stage for record in self.store.stages(dataflow)):
            raise NotFoundError(kind="stage", name=f"{dataflow}.{stage}")
        self.asked.append(("pause", dataflow, stage))

    def resume_stage(self, dataflow: str, stage: str) -> None:
        if all(record.stage != stage for record in self.store.stages(dataflow)):
            raise NotFoundError(kind="stage", name=f"{dataflow}.{stage}")
        self.asked.append(("resume", dataflow, stage))

    def compactions(self, name: str) -> list[Compaction]:
        self.store.dataflow(name)
        return [Compaction("state/count.counts", "count", 7, 1_700_000_000_000, 8, 1, 900, 800)]

    def set_priority(self, dataflow: str, stage: str, priority: Priority) -> None:
        if all(record.stage != stage for record in self.store.stages(dataflow)):
            raise NotFoundError(kind="stage", name=f"{dataflow}.{stage}")
        self.store.stage_records[:] = [
            replace(record, priority=priority) if record.stage == stage else record
            for record in self.store.stage_records
        ]

    def retry(self, dataflow: str, stage: str) -> None:
        if all(record.stage != stage for record in self.store.stages(dataflow)):
            raise NotFoundError(kind="stage", name=f"{dataflow}.{stage}")
        self.asked.append(("retry", dataflow, stage))

    def delete(self, name: str, purge: bool = False) -> None:
        self.asked.append(("delete", name, purge))
        del self.store.records[name]

    def members(self, name: str) -> Mapping[str, tuple[str, ...]]:
        return {stage: (stage, *self.beside) for stage in self.dataflow(name).stages}

    def with_older_code(self, but: str) -> tuple[str, ...]:
        del but
        return ()

    def rebuilding(self, name: str, connectors: object) -> Mapping[str, Rebuild]:
        return self.rebuilds

    def waiting(self, name: str) -> Mapping[str, str]:
        return self.reasons

    def waits(self, name: str) -> Mapping[str, Wait]:
        return {stage: Wait("input", words, NOON) for stage, words in self.reasons.items()}

    def open_intentions(self, name: str) -> Sequence[Any]:
        self.store.dataflow(name)
        return []

    def cancel(self, run: str) -> None:
        self.asked.append(("cancel", run))

    def stacks(self, run: RunRecord) -> list[ProcessStack]:
        if self.stack_fails_with is not None:
            raise self.stack_fails_with
        return self.now_in

    def code_files(self, run: RunRecord) -> frozenset[str]:
        return frozenset({"/srv/count.py"})

    def phases(self, run: str) -> Mapping[str, float]:
        return self.under_way.get(run, {})

    def close(self, dataflow: str, flow: str, *, key: str | None = None) -> Punctuation:
        if self.fails_with is not None:
            raise self.fails_with
        number = len(self.store.punctuation_records)
        made = Punctuation(number, flow, 2, "request", f"request/{key or number}", 0)
        for known in self.store.punctuation_records:
            if known.key == made.key:
                return known
        self.store.punctuation_records.insert(0, made)
        return made

    def framed_inputs(self, dataflow: str, flow: str) -> list[str]:
        return [f"count.{flow}"]
