"""Constructs the parts of a controller and connects them.

Each part is a property of `Parts`, made when it is first asked for. Its constructor names what it
needs: the parts and the things given of the same names, each of its type. What is called otherwise
is given here. All share one catalog, one table of the work in flight and one lock of the tick.
Where two parts need each other, one of them gets a function.

Guaranteed: to make a part reads and writes nothing; a part gets what its constructor declares
(tests/controller/loop/test_assembly.py).
Absent on purpose: what the parts do. Threads are absent too; the environment supplies them.
"""

# ruff: noqa: D102 - each part's module describes it

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from inspect import signature
from typing import Any, TypeVar

from cbp.engine.commit.garbage_collection import ONE_DAY
from cbp.engine.commit.intention_log import POSITIONS_KEPT, RECORDS_KEPT, IntentionLog
from cbp.engine.interface.engine import Engine
from cbp.engine.interface.garbage_collector import Retention
from cbp.engine.storage.failpoints import NO_FAULTS, Faults
from cbp.engine.storage.files import Files
from cbp.errors import Mistake
from cbp.model.dataflow.dataflow import Dataflow, StageNode
from cbp.model.schedule.places import Places
from cbp.model.schedule.scheduler import TURNS_MAX
from controller.allowed_folders import AllowedFolders
from controller.loop.author.framing import Framer
from controller.loop.author.punctuations import Punctuations
from controller.loop.author.runnables import RunnableAnswers
from controller.loop.beside.build_plans import BuildPlans
from controller.loop.beside.build_work import BuildWork
from controller.loop.beside.rebuild_jobs import RebuildJobs
from controller.loop.counts.run_counts import LaneCounts, RunCounts
from controller.loop.housekeeping.collector import Housekeeping
from controller.loop.housekeeping.disk_use import DiskUses
from controller.loop.housekeeping.input_retention import SEVEN_DAYS, Inputs, Keep
from controller.loop.housekeeping.scrubber import Scrubbing
from controller.loop.housekeeping.scrubs import Scrubs
from controller.loop.leadership.current_term import CurrentTerm
from controller.loop.leadership.terms import Terms
from controller.loop.operations.amendments import Amendments
from controller.loop.operations.deletion import Deletion
from controller.loop.operations.give_back_jobs import GiveBackJobs
from controller.loop.operations.priorities import Priorities
from controller.loop.operations.registration import Arrivals, Versions
from controller.loop.operations.rollback_jobs import RollbackJobs
from controller.loop.operations.version_change import Changes
from controller.loop.reading.explain import Explaining
from controller.loop.reading.lineage import Lineages
from controller.loop.reading.reader import Reader
from controller.loop.reading.rebuilding import Rebuilding
from controller.loop.reading.set_aside_counts import SetAsideCounts
from controller.loop.reading.snapshots import Snapshots
from controller.loop.reading.stage_facts import StageFacts
from controller.loop.records.catalog import Catalog
from controller.loop.records.description_log import Descriptions
from controller.loop.records.sink_reads import SinkReads
from controller.loop.recovery.corrections import Corrections
from controller.loop.recovery.journal import Journal
from controller.loop.recovery.redo import Recovery
from controller.loop.recovery.rollback import Rollbacks
from controller.loop.runs.dataflow_locks import DataflowLocks
from controller.loop.runs.dropped_files import DroppedFiles
from controller.loop.runs.failures import Failures
from controller.loop.runs.finisher import Finisher, ParkedRuns
from controller.loop.runs.in_flight import InFlight, RunPhases
from controller.loop.runs.isolation import Isolation
from controller.loop.runs.output_retention import OutputRetention
from controller.loop.runs.publisher import Publisher
from controller.loop.runs.retained_inputs import RetainedInputs
from controller.loop.runs.retry import RetryPolicy
from controller.loop.runs.runner import Runner
from controller.loop.runs.starvation import Starving
from controller.loop.runs.threads import Here
from controller.loop.tick.decisions import Decisions
from controller.loop.tick.drains import Drains
from controller.loop.tick.holds import Holds
from controller.loop.tick.input_framing import InputFraming
from controller.loop.tick.kept_dataflows import KeptDataflows
from controller.loop.tick.run_ids import RunIds
from controller.loop.tick.run_starts import RunStarts
from controller.loop.tick.stage_views import StageViews
from controller.loop.tick.ticker import Ticker, TickSteps
from controller.loop.tick.unfinished_runs import UnfinishedRuns
from controller.loop.verification.verifications import Verifications
from controller.registry import Registry
from controller.store.base import DataflowRecord, Store


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopLimits:
    """How long a loop waits, how much it keeps, when it warns; each part is handed its own.

    They are not settings: nobody has to choose them. Tests make them small, so that they are
    reached.

    Attributes:
        records_kept: Records of a stage that are kept for people, although a position replaces
            them.
        positions_kept: Maximum number of positions that are kept, so that a dataflow can be rolled
            back to epochs after them.
        cancel_seconds: How long a deletion or an amendment waits for runs that it cancelled.
        change_seconds: How long a change waits for the runs under way.
        reference_records_max: Records of input up to which the reference engine verifies a
            dataflow: it holds all of them in memory.
        settle_seconds: How long a verification, or a build beside, waits before it looks again
            whether the dataflow has come to rest.
        checkpoint_seconds: How long a build beside may go on until it keeps how far it has come.
        turns_max: Epochs without new input after which a cycle is reported as not draining.
    """

    records_kept: int = RECORDS_KEPT
    positions_kept: int = POSITIONS_KEPT
    cancel_seconds: float = 60.0
    change_seconds: float = 60.0
    reference_records_max: int = 200_000
    settle_seconds: float = 0.2
    checkpoint_seconds: float = 10.0
    turns_max: int = TURNS_MAX


DEFAULT_LOOP_LIMITS = LoopLimits()
"""The limits of a loop that is assembled without any."""


T = TypeVar("T")

NO_SEEDS = AllowedFolders("CBP_SOURCE_ROOTS")


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What a controller works with, and its limits.

    Attributes:
        tables_root: Folder or URI of all tables, without a slash at the end.
        places: Concurrent runs over all dataflows; framing has as many again.
        executor: Carries out runs.
        arrivals: Where increments come from.
        draw: Returns a random number from 0 to 1 that shortens pauses; by default no pause is
            shortened.
        retention: How long old versions of a table stay readable.
        keep: How long inputs and runs are kept.
        collect_every: Epochs of a dataflow between two garbage collections.
        scrub_seconds: Period in which everything on disk is read once; 0 means never.
        framers: Carries out framing; `None` means that `executor` does.
        answerers: Carries out calls of authors' Runnables; `None` means that the thread that ticks
            does.
        verifier: Carries out verifications; `None` means that `executor` does.
        removers: Removes purged folders that a crash left; `None` means that the recovering thread
            does.
        run_seconds_max: Time limit of a run, and of framing one increment; 0 means no limit.
        runnable_seconds_max: Time limit of one call of an author's Runnable; 0 means no limit.
        dataflows_max: Dataflows that may be registered.
        limits: Limits that are not settings.
        refused: Returns what the settings do not allow in a new version of a dataflow.
        seed_folders: Where files may be that a rebuild reads in place of input that is gone.
        rebuild_share: The share of the time in which a rebuild beside works.
    """

    store: Store
    engine: Engine
    registry: Registry
    files: Files
    clock: Callable[[], datetime]
    tables_root: str
    places: Places
    retry: RetryPolicy
    executor: Executor
    arrivals: Arrivals
    faults: Faults = NO_FAULTS
    random_hex: Callable[[int], str] = secrets.token_hex
    draw: Callable[[], float] = lambda: 1.0
    retention: Retention = ONE_DAY
    keep: Keep = SEVEN_DAYS
    collect_every: int = 100
    scrub_seconds: float = 0.0
    framers: Executor | None = None
    answerers: Executor | None = None
    verifier: Executor | None = None
    removers: Executor | None = None
    run_seconds_max: float = 0.0
    runnable_seconds_max: float = 0.0
    dataflows_max: int = 1_000
    limits: LoopLimits = DEFAULT_LOOP_LIMITS
    refused: Callable[[Dataflow], Iterable[Mistake]] = lambda dataflow: ()
    seed_folders: AllowedFolders = NO_SEEDS
    rebuild_share: float = 1.0


class Parts:
    """The parts of a controller; each part's module describes it.

    Args:
        given: What the parts work with.

    Attributes:
        woken: Set by `wake`: the next tick may start at once.
        exclusion: The locks of the dataflows.
    """

    def __init__(self, given: Environment) -> None:
        self.given = given
        self.woken, self.exclusion, self.term = threading.Event(), DataflowLocks(), CurrentTerm()
        self.parked, self.holds = ParkedRuns(), Holds()
        self.lane_counts, self.run_counts = LaneCounts(), RunCounts()
        self.wake = self.woken.set

    def _make(self, kind: type[T], **more: Any) -> T:
        """Construct a part: it gets `more`, and what its parameters name."""
        for name in signature(kind).parameters.keys() - more.keys():
            if hasattr(type(self), name) or name in vars(self):
                more[name] = getattr(self, name)
            elif hasattr(self.given, name):
                more[name] = getattr(self.given, name)
        return kind(**more)

    # what every part shares

    @cached_property
    def descriptions(self) -> Descriptions:
        return self._make(Descriptions)

    @cached_property
    def catalog(self) -> Catalog:
        return self._make(Catalog)

    @cached_property
    def isolation(self) -> Isolation:
        return self._make(Isolation, on_conflict=self.term.depose)

    @cached_property
    def in_flight(self) -> InFlight:
        return self._make(InFlight, stop=lambda run: self.given.engine.control.cancel(run))

    @cached_property
    def ids(self) -> RunIds:
        return self._make(RunIds)

    @cached_property
    def terms(self) -> Terms:
        return self._make(Terms, root=self.given.tables_root)

    def open_log(self, folder: str) -> IntentionLog:
        """Return the intention log of a folder."""
        given = self.given
        kept = given.limits.positions_kept
        return IntentionLog(folder, given.files, given.faults, positions_kept=kept)

    def _set_aside(self, record: DataflowRecord, node: StageNode) -> list[dict[str, Any]]:
        return self.given.engine.records.set_aside(record.folder, node)

    # author

    @cached_property
    def punctuations(self) -> Punctuations:
        return self._make(Punctuations)

    @cached_property
    def framer(self) -> Framer:
        return self._make(
            Framer,
            increments=self.given.engine.increments,
            threads=self.given.framers or self.given.executor,
            seconds_max=self.given.run_seconds_max,
            origin=self.dropped_files.words_of,
        )

    @cached_property
    def answers(self) -> RunnableAnswers:
        return self._make(
            RunnableAnswers,
            threads=self.given.answerers or Here(),
            seconds_max=self.given.runnable_seconds_max,
        )

    # runs

    @cached_property
    def run_phases(self) -> RunPhases:
        return self._make(RunPhases)

    @cached_property
    def dropped_files(self) -> DroppedFiles:
        return self._make(DroppedFiles)

    @cached_property
    def failures(self) -> Failures:
        return self._make(
            Failures,
            newer_files=lambda run: self.catalog.newer_files_of_run(run.dataflow, run.stage),
        )

    @cached_property
    def publisher(self) -> Publisher:
        return self._make(
            Publisher,
            tables=self.given.engine.publisher,
            log=self.open_log,
            begins=self.descriptions.begins,
        )

    @cached_property
    def sink_reads(self) -> SinkReads:
        return self._make(SinkReads)

    @cached_property
    def keeping(self) -> OutputRetention:
        return self._make(OutputRetention, log=self.open_log, sinks=self.sink_reads)

    @cached_property
    def finisher(self) -> Finisher:
        return self._make(Finisher)

    @cached_property
    def retained(self) -> RetainedInputs:
        return self._make(RetainedInputs)

    @cached_property
    def runner(self) -> Runner:
        return self._make(
            Runner, preparer=self.given.engine.preparer, seconds_max=self.given.run_seconds_max
        )

    # reading

    @cached_property
    def snapshots(self) -> Snapshots:
        return self._make(Snapshots, history=self.given.engine.history)

    @cached_property
    def rebuilding(self) -> Rebuilding:
        return self._make(Rebuilding)

    @cached_property
    def reading(self) -> Reader:
        return self._make(
            Reader, records=self.given.engine.records, increments=self.given.engine.increments
        )

    @cached_property
    def explaining(self) -> Explaining:
        return self._make(
            Explaining, preparer=self.given.engine.preparer, history=self.given.engine.history
        )

    @cached_property
    def set_aside_counts(self) -> SetAsideCounts:
        return self._make(SetAsideCounts)

    @cached_property
    def lineages(self) -> Lineages:
        return self._make(Lineages)

    @cached_property
    def stage_facts(self) -> StageFacts:
        return self._make(StageFacts, records=self.given.engine.records)

    # recovery

    @cached_property
    def journal(self) -> Journal:
        return self._make(Journal, root=self.given.tables_root)

    @cached_property
    def rollbacks(self) -> Rollbacks:
        return self._make(
            Rollbacks, tables=self.given.engine.publisher, increments=self.given.engine.increments
        )

    @cached_property
    def corrections(self) -> Corrections:
        return self._make(
            Corrections,
            set_aside=self._set_aside,
            preparer=self.given.engine.preparer,
            new_id=self.ids.new_id,
        )

    @cached_property
    def recovery(self) -> Recovery:
        return self._make(Recovery)

    # the tick

    @cached_property
    def ticker(self) -> Ticker:
        return self._make(Ticker, steps=self._steps())

    def _steps(self) -> TickSteps:
        engine, make = self.given.engine, self._make
        return TickSteps(
            unfinished=make(UnfinishedRuns),
            recovery=self.recovery,
            starving=make(Starving, control=engine.control),
            kept=make(KeptDataflows),
            framing=make(InputFraming),
            views=make(StageViews),
            decisions=make(Decisions, turns_max=self.given.limits.turns_max),
            starts=make(RunStarts, slots=lambda: engine.preparer.limits().slots),
            drains=make(Drains),
        )

    # operations

    @cached_property
    def changes(self) -> Changes:
        return self._make(
            Changes,
            tables=self.given.engine.tables,
            increments=self.given.engine.increments,
            compile_=self.given.registry.compile_registered,
            prepare=self.given.arrivals.prepare,
            new_id=self.ids.new_id,
            set_aside=self._set_aside,
        )

    @cached_property
    def priorities(self) -> Priorities:
        return self._make(Priorities)

    @cached_property
    def versions(self) -> Versions:
        return self._make(
            Versions, most=self.given.dataflows_max, change_seconds=self.given.limits.change_seconds
        )

    @cached_property
    def amendments(self) -> Amendments:
        return self._make(Amendments, cancel_seconds=self.given.limits.cancel_seconds)

    @cached_property
    def rollback_jobs(self) -> RollbackJobs:
        return self._make(RollbackJobs)

    @cached_property
    def give_back_jobs(self) -> GiveBackJobs:
        return self._make(GiveBackJobs)

    @cached_property
    def building(self) -> set[str]:
        return set()

    @cached_property
    def build_plans(self) -> BuildPlans:
        return self._make(BuildPlans, compile_=self.given.registry.compile_registered)

    @cached_property
    def build_work(self) -> BuildWork:
        return self._make(BuildWork, checkpoint_seconds=self.given.limits.checkpoint_seconds)

    @cached_property
    def rebuild_jobs(self) -> RebuildJobs:
        return self._make(
            RebuildJobs,
            executor=self.given.verifier or self.given.executor,
            compile_=self.given.registry.compile,
            settle_seconds=self.given.limits.settle_seconds,
        )

    @cached_property
    def deletion(self) -> Deletion:
        return self._make(
            Deletion,
            tables=self.given.engine.tables,
            cancel_seconds=self.given.limits.cancel_seconds,
        )

    # housekeeping

    @cached_property
    def inputs(self) -> Inputs:
        return self._make(Inputs, increments=self.given.engine.increments, sinks=self.sink_reads)

    @cached_property
    def housekeeping(self) -> Housekeeping:
        return self._make(
            Housekeeping,
            garbage=self.given.engine.garbage,
            held=lambda: self.holds.held,
            epochs=self.ticker.epochs,
            every=self.given.collect_every,
            records_kept=self.given.limits.records_kept,
            scrubbing=self._scrubbing,
        )

    def _scrubbing(self, needed: Callable[[DataflowRecord], Collection[str]]) -> Scrubbing:
        given = self.given
        return self._make(
            Scrubbing,
            root=given.tables_root,
            dataflows=given.store.dataflows,
            needed=needed,
            round_seconds=given.scrub_seconds,
            executor=given.removers or Here(),
        )

    @cached_property
    def scrubs(self) -> Scrubs:
        return self._make(
            Scrubs, scrubbing=self.housekeeping.scrubbing, executor=self.given.removers or Here()
        )

    @cached_property
    def disk_uses(self) -> DiskUses:
        return self._make(DiskUses)

    # verification

    @cached_property
    def verifications(self) -> Verifications:
        return self._make(
            Verifications,
            executor=self.given.verifier or self.given.executor,
            retained=self.changes.retained,
            reference_records_max=self.given.limits.reference_records_max,
            settle_seconds=self.given.limits.settle_seconds,
        )
