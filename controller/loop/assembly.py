"""Constructs the parts of a controller and connects them.

Each part is an attribute of `Parts`, made on first use. Its constructor names what it needs. An
argument is found by its name among the parts, the environment, the limits and the parts of the
engine; arguments with other names are listed here. All parts share one catalog, one table of the
work in flight and one lock of the tick. Where two parts need each other, one of them gets a
function.

Guaranteed: constructing a part reads and writes nothing; a part gets what its constructor declares
(tests/controller/loop/test_assembly.py).
Absent on purpose: the work of the parts; threads, which the environment supplies.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterable
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
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.schedule.parallel_runs import Places
from cbp.model.schedule.scheduler import TURNS_MAX
from controller.allowed_folders import AllowedFolders
from controller.loop.author.framing import Framer
from controller.loop.author.punctuations import Punctuations
from controller.loop.author.runnables import RunnableAnswers
from controller.loop.housekeeping.collector import Collector
from controller.loop.housekeeping.disk_use import DiskUses
from controller.loop.housekeeping.input_retention import SEVEN_DAYS, Inputs, Keep
from controller.loop.housekeeping.scrubbing import Scrubbing, Scrubs
from controller.loop.leadership.terms import CurrentTerm, Terms
from controller.loop.operations.amendments import Amendments
from controller.loop.operations.deletion import Deletion
from controller.loop.operations.jobs import GiveBackJobs, RollbackJobs
from controller.loop.operations.priorities import Priorities
from controller.loop.operations.version_switch import VersionSwitch
from controller.loop.operations.versions import Arrivals, Versions
from controller.loop.reading.explain import Explaining
from controller.loop.reading.lineage import Lineages
from controller.loop.reading.reader import Reader
from controller.loop.reading.rebuild_backlog import Rebuilding
from controller.loop.reading.snapshots import Snapshots
from controller.loop.reading.stage_facts import SetAsideCounts, StageFacts
from controller.loop.rebuild.build_beside import UNIT_BYTES
from controller.loop.rebuild.build_plans import BuildPlans
from controller.loop.rebuild.build_work import BuildWork
from controller.loop.rebuild.rebuild_jobs import RebuildJobs
from controller.loop.rebuild.swap import Swaps
from controller.loop.records.compiled_dataflows import Catalog
from controller.loop.records.version_log import Descriptions
from controller.loop.recovery.corrections import Corrections
from controller.loop.recovery.past_position import Past
from controller.loop.recovery.recovery_notes import RecoveryNotes
from controller.loop.recovery.redo import Recovery
from controller.loop.recovery.rollback import Rollbacks
from controller.loop.runs.dataflow_locks import DataflowLocks
from controller.loop.runs.dropped_files import DroppedFiles
from controller.loop.runs.in_flight import InFlight, RunPhases, Starving
from controller.loop.runs.isolation import Isolation
from controller.loop.runs.output_retention import OutputRetention, SinkReads
from controller.loop.runs.publisher import Publisher
from controller.loop.runs.retained_inputs import RetainedInputs
from controller.loop.runs.retry_policy import Failures, RetryPolicy
from controller.loop.runs.run_commit import ParkedRuns, RunCommit
from controller.loop.runs.run_counts import RunCounts
from controller.loop.runs.runner import Runner
from controller.loop.runs.threads import Here
from controller.loop.runs.time_limit import TimeLimit
from controller.loop.tick.holds import Holds
from controller.loop.tick.kept_dataflows import KeptDataflows
from controller.loop.tick.run_starts import RunIds, RunStarts
from controller.loop.tick.stage_views import StageViews
from controller.loop.tick.ticker import Decisions, Drains, InputFraming, Ticker, UnfinishedRuns
from controller.loop.verification.verifications import Verifications
from controller.registry import Registry
from controller.store.base import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopLimits:
    """Limits of waiting, keeping and warning; each part gets those that it needs.

    They are not settings, since no user has to choose them. Tests set small limits, to reach
    them.

    Attributes:
        records_kept: Number of records of a stage that are kept for people to read, although a
            position replaces them.
        positions_kept: Maximum number of kept positions; a dataflow can be rolled back to
            epochs after a position.
        cancel_seconds: How long a deletion or an amendment waits for runs that it cancelled.
        change_seconds: How long a change of version waits for the runs under way.
        reference_records_max: Largest number of input records that the reference engine
            verifies, since it holds all of them in memory.
        settle_seconds: How long a verification, or a build beside, waits before it checks again
            whether the dataflow is idle.
        checkpoint_seconds: Longest time between two checkpoints of a build beside.
        unit_bytes: Up to this many bytes, a run of a build beside reads several increments.
        turns_max: Epochs without new input after which a cycle is reported as not draining.
    """

    records_kept: int = RECORDS_KEPT
    positions_kept: int = POSITIONS_KEPT
    cancel_seconds: float = 60.0
    change_seconds: float = 60.0
    reference_records_max: int = 200_000
    settle_seconds: float = 0.2
    checkpoint_seconds: float = 10.0
    unit_bytes: int = UNIT_BYTES
    turns_max: int = TURNS_MAX


DEFAULT_LOOP_LIMITS = LoopLimits()
"""The limits of a loop that is assembled without explicit limits."""


T = TypeVar("T")

NO_SEEDS = AllowedFolders("CBP_SOURCE_ROOTS")


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The environment of a controller, and its limits.

    Attributes:
        tables_root: Folder or URI of all tables, without a slash at the end.
        places: Number of concurrent runs over all dataflows; framing has as many slots of its own.
        draw: Returns a random number from 0 to 1 that shortens pauses; by default no pause is
            shortened.
        retention: How long old versions of a table stay readable.
        collect_every: Epochs of a dataflow between two garbage collections.
        scrub_seconds: Period in which everything on disk is read once; 0 means never.
        framers: Carries out framing; `None` means that `executor` does.
        answerers: Carries out calls of authors' Runnables; `None` means that the tick's thread
            does.
        verifier: Carries out verifications; `None` means that `executor` does.
        removers: Removes purged folders left by a crash; `None` means that the recovering
            thread does.
        run_seconds_max: Time limit of a run, and of framing one increment; 0 means no limit.
        runnable_seconds_max: Time limit of one call of an author's Runnable; 0 means no limit.
        refused: Returns the parts of a new version that the settings do not allow.
        seed_folders: Folders of files that a rebuild may read instead of removed input.
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


class Part(cached_property[T]):
    """A part of a controller, made on first use.

    Args:
        given: Maps constructor arguments that `Parts.make` would not find by their names to
            functions that return them.
    """

    def __init__(self, kind: type[T], **given: Callable[[Parts], Any]) -> None:
        self.kind, self.given = kind, given
        super().__init__(
            lambda parts: parts.make(kind, {name: find(parts) for name, find in given.items()})
        )


class Parts:
    """The parts of a controller; each part's module describes it.

    Attributes:
        woken: Set by `wake`, so that the next tick starts at once.
        building: Dataflows whose tables are built beside.
    """

    def __init__(self, given: Environment) -> None:
        self.given = given
        self.woken, self.exclusion, self.term = threading.Event(), DataflowLocks(), CurrentTerm()
        self.parked, self.holds, self.building = ParkedRuns(), Holds(), set[str]()
        self.run_counts, self.wake = RunCounts(), self.woken.set

    def make(self, kind: type[T], more: dict[str, Any]) -> T:
        """Construct a part; arguments that `more` lacks are found by the parameters' names."""
        places = (self.given, self.given.limits, self.given.engine)
        for name in signature(kind).parameters.keys() - more.keys():
            if hasattr(type(self), name) or name in vars(self):
                more[name] = getattr(self, name)
            elif place := next((one for one in places if hasattr(one, name)), None):
                more[name] = getattr(place, name)
        return kind(**more)

    def complete(self) -> Parts:
        """Make all parts; until this has returned, only one thread may use them."""
        for name, one in vars(type(self)).items():
            if isinstance(one, Part):
                getattr(self, name)
        return self

    def open_log(self, folder: str) -> IntentionLog:
        """Return the intention log of a folder."""
        given = self.given
        kept = given.limits.positions_kept
        return IntentionLog(folder, given.files, given.faults, positions_kept=kept)

    def new_id(self) -> str:
        """Return the id of a run."""
        return self.ids.new_id()

    # what the parts share
    descriptions = Part(Descriptions)
    catalog = Part(Catalog)
    isolation = Part(Isolation, on_conflict=lambda parts: parts.term.depose)
    in_flight = Part(InFlight)
    time_limit = Part(TimeLimit)
    ids = Part(RunIds)
    terms = Part(Terms, root=lambda parts: parts.given.tables_root)

    # author
    dropped_files = Part(DroppedFiles)
    punctuations = Part(Punctuations)
    framer = Part(
        Framer,
        find_frames=lambda parts: parts.given.engine.increments.frame,
        threads=lambda parts: parts.given.framers or parts.given.executor,
        origin=lambda parts: parts.dropped_files.words_of,
    )
    answers = Part(RunnableAnswers, threads=lambda parts: parts.given.answerers or Here())

    # runs
    run_phases = Part(RunPhases)
    failures = Part(Failures)
    publisher = Part(Publisher, tables=lambda parts: parts.given.engine.publisher)
    sinks = Part(SinkReads)
    keeping = Part(OutputRetention)
    run_commit = Part(RunCommit)
    retained = Part(RetainedInputs)
    runner = Part(Runner)

    # reading
    snapshots = Part(Snapshots)
    rebuilding = Part(Rebuilding)
    reading = Part(Reader)
    explaining = Part(Explaining)
    set_aside_counts = Part(SetAsideCounts)
    lineages = Part(Lineages)
    stage_facts = Part(StageFacts)

    # recovery
    recovery_notes = Part(RecoveryNotes, root=lambda parts: parts.given.tables_root)
    past = Part(Past)
    rollback = Part(Rollbacks, tables=lambda parts: parts.given.engine.publisher)
    correction = Part(Corrections)
    recovery = Part(Recovery)

    # the tick
    unfinished = Part(UnfinishedRuns)
    starving = Part(Starving)
    kept = Part(KeptDataflows)
    framing = Part(InputFraming)
    views = Part(StageViews)
    decisions = Part(Decisions)
    starts = Part(RunStarts)
    drains = Part(Drains)
    ticker = Part(Ticker)

    # operations
    changes = Part(VersionSwitch, prepare=lambda parts: parts.given.arrivals.prepare)
    priorities = Part(Priorities)
    versions = Part(Versions, most=lambda parts: parts.given.dataflows_max)
    amendments = Part(Amendments)
    rollback_jobs = Part(RollbackJobs)
    give_back_jobs = Part(GiveBackJobs)
    build_plans = Part(BuildPlans)
    build_work = Part(BuildWork)
    swaps = Part(Swaps)
    rebuild_jobs = Part(
        RebuildJobs, executor=lambda parts: parts.given.verifier or parts.given.executor
    )
    deletion = Part(Deletion, end_builds=lambda parts: parts.rebuild_jobs.end_all)

    # housekeeping
    inputs = Part(Inputs)
    housekeeping = Part(
        Collector,
        held=lambda parts: lambda: parts.holds.held,
        epochs=lambda parts: parts.ticker.epochs,
        every=lambda parts: parts.given.collect_every,
    )
    scrubbing = Part(
        Scrubbing,
        dataflows=lambda parts: parts.given.store.dataflows,
        needed=lambda parts: lambda record: parts.housekeeping.needed(record),
        executor=lambda parts: parts.given.removers or Here(),
    )
    scrubs = Part(Scrubs, executor=lambda parts: parts.given.removers or Here())
    disk_uses = Part(DiskUses)
    verifications = Part(
        Verifications,
        executor=lambda parts: parts.given.verifier or parts.given.executor,
        retained=lambda parts: parts.changes.retained,
    )
