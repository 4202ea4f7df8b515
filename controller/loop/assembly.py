"""Constructs the parts of a controller and connects them.

All parts share one catalog, one table of the work in flight and one lock of the tick. Only this
module knows which part needs which. A part gets what it needs in its constructor. Where two parts
need each other, one of them gets a function.

Guaranteed: `assemble` reads and writes nothing.
Absent on purpose: what the parts do. Threads are absent too; the environment supplies them.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import datetime

from cbp.engine.commit.garbage_collection import ONE_DAY
from cbp.engine.commit.intention_log import IntentionLog
from cbp.engine.interface.engine import Engine
from cbp.engine.interface.garbage_collector import Retention
from cbp.engine.storage.failpoints import NO_FAULTS, Faults
from cbp.engine.storage.files import Files
from cbp.errors import Mistake
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.schedule.places import Places
from controller.loop.author.framing import Framer
from controller.loop.author.punctuations import Punctuations
from controller.loop.author.runnables import Answers
from controller.loop.beside.rebuild_jobs import RebuildJobs
from controller.loop.counts.lane_counts import LaneCounts
from controller.loop.counts.run_counts import RunCounts
from controller.loop.housekeeping.collector import Housekeeping
from controller.loop.housekeeping.disk_use import DiskUses
from controller.loop.housekeeping.input_retention import SEVEN_DAYS, Inputs, Keep
from controller.loop.housekeeping.scrubber import Scrubbing
from controller.loop.housekeeping.scrubs import Scrubs
from controller.loop.leadership.current_term import CurrentTerm
from controller.loop.leadership.terms import Terms
from controller.loop.loop_limits import DEFAULT_LOOP_LIMITS, LoopLimits
from controller.loop.operations.amendments import Amendments
from controller.loop.operations.deletion import Deletion
from controller.loop.operations.priorities import Priorities
from controller.loop.operations.registration import Arrivals, Versions
from controller.loop.operations.rollback_jobs import RollbackJobs
from controller.loop.operations.version_change import Changes
from controller.loop.reading.explain import Explaining
from controller.loop.reading.lineage import Lineages
from controller.loop.reading.reader import Reading
from controller.loop.reading.rebuilding import Rebuilding
from controller.loop.reading.snapshots import Snapshots
from controller.loop.reading.stage_facts import StageFacts
from controller.loop.records.catalog import Catalog
from controller.loop.records.description_log import Descriptions
from controller.loop.records.sink_reads import SinkReads
from controller.loop.recovery.corrections import Corrections
from controller.loop.recovery.journal import Journal
from controller.loop.recovery.redo import Recovery
from controller.loop.recovery.rollback import Rollbacks
from controller.loop.runs.dataflow_locks import Exclusion
from controller.loop.runs.dropped_files import DroppedFiles
from controller.loop.runs.failures import Failures
from controller.loop.runs.finisher import Finisher
from controller.loop.runs.in_flight import InFlight
from controller.loop.runs.isolation import Isolation
from controller.loop.runs.output_retention import Keeping
from controller.loop.runs.parked import ParkedRuns
from controller.loop.runs.publisher import Publisher
from controller.loop.runs.retained_inputs import RetainedInputs
from controller.loop.runs.retry import RetryPolicy
from controller.loop.runs.run_phases import RunPhases
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
from controller.loop.verification.jobs import Verifications
from controller.registry import Registry
from controller.store.base import Store

__all__ = ["Environment", "Parts", "assemble"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What a controller works with, and its limits.

    Attributes:
        registry: The translators that a document may name.
        clock: Returns the time, aware and in UTC.
        tables_root: Folder or URI of all tables, without a slash at the end.
        places: Concurrent runs over all dataflows; framing has as many again.
        executor: Carries out runs.
        arrivals: Where increments come from.
        random_hex: Returns the given number of random bytes, in hexadecimal.
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
        limits: Limits that are no settings.
        refused: Returns what the settings do not allow in a new version of a dataflow.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of a controller; each part's module describes it.

    Attributes:
        given: What the parts work with.
        woken: Set when the next tick may start at once.
        open_log: Returns the intention log of a folder.
        exclusion: The locks of the dataflows.
    """

    given: Environment
    woken: threading.Event
    open_log: Callable[[str], IntentionLog]
    exclusion: Exclusion
    catalog: Catalog
    isolation: Isolation
    term: CurrentTerm
    in_flight: InFlight
    parked: ParkedRuns
    failures: Failures
    publisher: Publisher
    finisher: Finisher
    runner: Runner
    lane_counts: LaneCounts
    run_counts: RunCounts
    run_phases: RunPhases
    terms: Terms
    punctuations: Punctuations
    priorities: Priorities
    framer: Framer
    answers: Answers
    recovery: Recovery
    journal: Journal
    holds: Holds
    ticker: Ticker
    versions: Versions
    deletion: Deletion
    amendments: Amendments
    rollback_jobs: RollbackJobs
    rebuild_jobs: RebuildJobs
    housekeeping: Housekeeping
    retained: RetainedInputs
    reading: Reading
    explaining: Explaining
    snapshots: Snapshots
    rebuilding: Rebuilding
    stage_facts: StageFacts
    lineages: Lineages
    verifications: Verifications
    scrubs: Scrubs
    disk_uses: DiskUses


def assemble(given: Environment) -> Parts:
    """Construct the parts of one controller from what it works with."""
    store, engine, files, clock = given.store, given.engine, given.files, given.clock
    limits = given.limits
    woken, exclusion, term = threading.Event(), Exclusion(), CurrentTerm()
    catalog = Catalog(store, given.registry, Descriptions(files))
    isolation = Isolation(clock=clock, on_conflict=term.depose, draw=given.draw)

    def open_log(folder: str) -> IntentionLog:
        return IntentionLog(folder, files, given.faults, positions_kept=limits.positions_kept)

    in_flight = InFlight(
        executor=given.executor,
        clock=clock,
        wake=woken.set,
        stop=lambda run: engine.control.cancel(run),
        isolation=isolation,
    )
    parked, lane_counts, run_counts = ParkedRuns(), LaneCounts(), RunCounts()
    run_phases = RunPhases(clock)
    dropped_files = DroppedFiles(store, catalog)
    failures = Failures(
        store=store,
        clock=clock,
        retry=given.retry,
        draw=given.draw,
        run_phases=run_phases,
        run_counts=run_counts,
        newer_files=lambda run: catalog.newer_files_of_run(run.dataflow, run.stage),
        dropped_files=dropped_files,
    )
    publisher = Publisher(
        tables=engine.publisher,
        catalog=catalog,
        log=open_log,
        begins=Descriptions(files).begins,
    )
    sink_reads = SinkReads(store)
    keeping = Keeping(catalog, open_log, sink_reads)
    finisher = Finisher(
        store=store,
        files=files,
        clock=clock,
        retry=given.retry,
        draw=given.draw,
        catalog=catalog,
        open_log=open_log,
        publisher=publisher,
        in_flight=in_flight,
        parked=parked,
        term=term,
        isolation=isolation,
        lane_counts=lane_counts,
        run_counts=run_counts,
    )
    retained = RetainedInputs(store, files, catalog, Descriptions(files), open_log)
    runner = Runner(
        store=store,
        preparer=engine.preparer,
        clock=clock,
        in_flight=in_flight,
        publisher=publisher,
        finisher=finisher,
        failures=failures,
        keeping=keeping,
        retained=retained,
        term=term,
        run_phases=run_phases,
        seconds_max=given.run_seconds_max,
    )
    terms = Terms(
        store=store,
        files=files,
        root=given.tables_root,
        random_hex=given.random_hex,
        faults=given.faults,
    )
    punctuations = Punctuations(store=store, files=files, terms=terms, clock=clock, catalog=catalog)
    framer = Framer(
        store=store,
        increments=engine.increments,
        punctuations=punctuations,
        clock=clock,
        threads=given.framers or given.executor,
        wake=woken.set,
        places=given.places,
        isolation=isolation,
        seconds_max=given.run_seconds_max,
    )
    answers = Answers(
        store=store,
        clock=clock,
        threads=given.answerers or Here(),
        wake=woken.set,
        isolation=isolation,
        seconds_max=given.runnable_seconds_max,
    )
    rollbacks = Rollbacks(
        store=store,
        tables=engine.publisher,
        increments=engine.increments,
        files=files,
        catalog=catalog,
        open_log=open_log,
        publisher=publisher,
        finisher=finisher,
        framer=framer,
        punctuations=punctuations,
        terms=terms,
        clock=clock,
    )
    journal = Journal(files=files, root=given.tables_root, clock=clock)
    recovery = Recovery(
        store=store,
        files=files,
        catalog=catalog,
        open_log=open_log,
        in_flight=in_flight,
        parked=parked,
        failures=failures,
        publisher=publisher,
        finisher=finisher,
        framer=framer,
        punctuations=punctuations,
        rollbacks=rollbacks,
        isolation=isolation,
        journal=journal,
        clock=clock,
    )
    holds = Holds()
    ids = RunIds(store=store, clock=clock, random_hex=given.random_hex)
    steps = TickSteps(
        UnfinishedRuns(store, clock, in_flight, parked, finisher, runner, isolation, holds),
        recovery,
        Starving(control=engine.control, clock=clock, places=given.places),
        KeptDataflows(store, clock, isolation),
        InputFraming(catalog, framer, isolation, holds),
        StageViews(catalog, terms, parked, failures, holds),
        Decisions(store, isolation, answers, given.places, limits.turns_max),
        RunStarts(
            store,
            clock,
            catalog,
            recovery,
            publisher,
            runner,
            ids,
            slots=lambda: engine.preparer.limits().slots,
            places=given.places,
            dropped_files=dropped_files,
        ),
        Drains(store, catalog, in_flight, parked, exclusion, woken.set),
    )
    ticker = Ticker(
        clock=clock, term=term, in_flight=in_flight, isolation=isolation, holds=holds, steps=steps
    )
    changes = Changes(
        store=store,
        tables=engine.tables,
        increments=engine.increments,
        files=files,
        catalog=catalog,
        open_log=open_log,
        publisher=publisher,
        finisher=finisher,
        terms=terms,
        clock=clock,
        compile_=given.registry.compile_registered,
        prepare=given.arrivals.prepare,
        new_id=ids.new_id,
        set_aside=lambda record, node: engine.records.set_aside(record.folder, node),
    )
    priorities = Priorities(store, files, catalog, holds)
    versions = Versions(
        store=store,
        files=files,
        catalog=catalog,
        changes=changes,
        open_log=open_log,
        in_flight=in_flight,
        term=term,
        holds=holds,
        framer=framer,
        answers=answers,
        punctuations=punctuations,
        priorities=priorities,
        recovery=recovery,
        exclusion=exclusion,
        isolation=isolation,
        arrivals=given.arrivals,
        most=given.dataflows_max,
        change_seconds=limits.change_seconds,
    )
    amendments = Amendments(
        store=store,
        open_log=open_log,
        in_flight=in_flight,
        finisher=finisher,
        term=term,
        holds=holds,
        rollbacks=rollbacks,
        corrections=Corrections(
            store=store,
            set_aside=lambda record, node: engine.records.set_aside(record.folder, node),
            preparer=engine.preparer,
            files=files,
            catalog=catalog,
            open_log=open_log,
            parked=parked,
            publisher=publisher,
            finisher=finisher,
            term=term,
            clock=clock,
            new_id=ids.new_id,
        ),
        exclusion=exclusion,
        isolation=isolation,
        wake=woken.set,
        cancel_seconds=limits.cancel_seconds,
    )
    deletion = Deletion(
        store=store,
        tables=engine.tables,
        files=files,
        catalog=catalog,
        in_flight=in_flight,
        finisher=finisher,
        holds=holds,
        ids=ids,
        framer=framer,
        answers=answers,
        punctuations=punctuations,
        amendments=amendments,
        exclusion=exclusion,
        isolation=isolation,
        faults=given.faults,
        cancel_seconds=limits.cancel_seconds,
    )
    snapshots = Snapshots(
        history=engine.history,
        catalog=catalog,
        open_log=open_log,
        retention=given.retention,
        clock=clock,
    )
    rebuilding, building = Rebuilding(catalog, Descriptions(files), snapshots), set[str]()
    housekeeping = Housekeeping(
        store=store,
        garbage=engine.garbage,
        catalog=catalog,
        open_log=open_log,
        publisher=publisher,
        parked=parked,
        keeping=keeping,
        punctuations=punctuations,
        exclusion=exclusion,
        isolation=isolation,
        held=lambda: holds.held,
        epochs=ticker.epochs,
        retention=given.retention,
        rebuilding=rebuilding,
        inputs=Inputs(
            store=store,
            increments=engine.increments,
            files=files,
            catalog=catalog,
            open_log=open_log,
            clock=clock,
            keep=given.keep,
            sinks=sink_reads,
            building=building,
        ),
        every=given.collect_every,
        records_kept=limits.records_kept,
        clock=clock,
        scrubbing=lambda needed: Scrubbing(
            files=files,
            root=given.tables_root,
            clock=clock,
            dataflows=store.dataflows,
            needed=needed,
            round_seconds=given.scrub_seconds,
            executor=given.removers or Here(),
        ),
    )
    verifications = Verifications(
        store=store,
        engine=engine,
        catalog=catalog,
        open_log=open_log,
        in_flight=in_flight,
        snapshots=snapshots,
        files=files,
        tables_root=given.tables_root,
        random_hex=given.random_hex,
        faults=given.faults,
        executor=given.verifier or given.executor,
        retained=changes.retained,
        reference_records_max=limits.reference_records_max,
        clock=clock,
    )
    return Parts(
        given=given,
        woken=woken,
        open_log=open_log,
        exclusion=exclusion,
        catalog=catalog,
        isolation=isolation,
        term=term,
        in_flight=in_flight,
        parked=parked,
        failures=failures,
        publisher=publisher,
        finisher=finisher,
        runner=runner,
        lane_counts=lane_counts,
        run_counts=run_counts,
        run_phases=run_phases,
        terms=terms,
        punctuations=punctuations,
        priorities=priorities,
        framer=framer,
        answers=answers,
        recovery=recovery,
        journal=journal,
        holds=holds,
        ticker=ticker,
        versions=versions,
        deletion=deletion,
        amendments=amendments,
        rollback_jobs=RollbackJobs(
            amendments=amendments,
            executor=given.executor,
            random_hex=given.random_hex,
            clock=clock,
        ),
        rebuild_jobs=RebuildJobs(
            store=store,
            engine=engine,
            catalog=catalog,
            versions=versions,
            snapshots=snapshots,
            open_log=open_log,
            files=files,
            tables_root=given.tables_root,
            random_hex=given.random_hex,
            faults=given.faults,
            executor=given.verifier or given.executor,
            building=building,
            retention=given.retention,
            compile_=given.registry.compile_registered,
            clock=clock,
        ),
        housekeeping=housekeeping,
        retained=retained,
        reading=Reading(
            store=store,
            records=engine.records,
            increments=engine.increments,
            catalog=catalog,
            snapshots=snapshots,
        ),
        explaining=Explaining(
            store=store,
            preparer=engine.preparer,
            history=engine.history,
            catalog=catalog,
            open_log=open_log,
            in_flight=in_flight,
            descriptions=Descriptions(files),
        ),
        snapshots=snapshots,
        lineages=Lineages(store=store, catalog=catalog),
        stage_facts=StageFacts(
            catalog=catalog,
            records=engine.records,
            descriptions=Descriptions(files),
            open_log=open_log,
        ),
        verifications=verifications,
        rebuilding=rebuilding,
        disk_uses=DiskUses(files=files, clock=clock),
        scrubs=Scrubs(
            store=store,
            scrubbing=housekeeping.scrubbing,
            clock=clock,
            executor=given.removers or Here(),
        ),
    )
