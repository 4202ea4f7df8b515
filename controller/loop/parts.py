"""The parts of a controller, and how they are put together.

Every part gets what it works with from here, so that all of them share one catalog, one
account of the runs under way and one ticker. Only here is known which part needs which.

Guaranteed: assembling reads and writes nothing.
Absent on purpose: what the parts do, and threads; the environment brings those.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import datetime

from cbp.engine.base import Engine
from cbp.engine.collect import ONE_DAY, Retention
from cbp.engine.faults import NO_FAULTS, Faults
from cbp.engine.files import Files
from cbp.model.dataflow import Dataflow
from cbp.model.places import Places
from controller.loop.amendments import Amendments
from controller.loop.answers import Answers
from controller.loop.catalog import Catalog
from controller.loop.change import Changes
from controller.loop.corrections import Corrections
from controller.loop.deletion import Deletion
from controller.loop.description import Descriptions
from controller.loop.exclusion import Exclusion
from controller.loop.explaining import Explaining
from controller.loop.frames import Framer
from controller.loop.housekeeping import Housekeeping
from controller.loop.punctuations import Punctuations
from controller.loop.reading import Reading
from controller.loop.recovery import Recovery
from controller.loop.retention import SEVEN_DAYS, Inputs, Keep
from controller.loop.rollback import Rollbacks
from controller.loop.runs import RetryPolicy, Runs
from controller.loop.snapshots import Snapshots
from controller.loop.starving import Starving
from controller.loop.terms import Terms
from controller.loop.threads import Here
from controller.loop.tick import Ticker
from controller.loop.verification import Verifications
from controller.loop.versions import Arrivals, Versions
from controller.registry import Registry
from controller.store.base import DataflowRecord, Store

__all__ = ["Environment", "Parts", "assemble"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What a controller works with, and its limits.

    Attributes:
        registry: The translators that a document may name.
        clock: Returns the time, aware and in UTC.
        tables_root: Folder or URI, without a slash at its end.
        places: For runs, over all dataflows, and as many for framing.
        executor: Carries out runs.
        random_hex: Returns that many random bytes, in hexadecimal.
        retention: How long a table's past stays readable.
        keep: How long inputs and runs stay.
        collect_every: Epochs of a dataflow between two collections.
        framers: Carries out framing; `None`: the executor of the runs does.
        answerers: Where authors' Runnables answer; `None`: in the thread that ticks.
        verifier: Carries out verifications; `None`: the executor of the runs does.
        removers: Removes folders that a crash left of what was purged; `None`: in the thread that
            recovers.
        run_seconds_max: Of a run, and of an increment that is framed; 0: no limit.
        runnable_seconds_max: Of an answer of an author's Runnable; 0: no limit.
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
    faults: Faults = NO_FAULTS
    random_hex: Callable[[int], str] = secrets.token_hex
    retention: Retention = ONE_DAY
    keep: Keep = SEVEN_DAYS
    collect_every: int = 100
    framers: Executor | None = None
    answerers: Executor | None = None
    verifier: Executor | None = None
    removers: Executor | None = None
    run_seconds_max: float = 0.0
    runnable_seconds_max: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a controller consists of; each part's module says what it does."""

    catalog: Catalog
    runs: Runs
    terms: Terms
    punctuations: Punctuations
    framer: Framer
    answers: Answers
    recovery: Recovery
    ticker: Ticker
    versions: Versions
    deletion: Deletion
    amendments: Amendments
    housekeeping: Housekeeping
    reading: Reading
    explaining: Explaining
    snapshots: Snapshots
    verifications: Verifications


def assemble(
    given: Environment,
    *,
    wake: Callable[[], None],
    exclusion: Exclusion,
    arrivals: Callable[[], Arrivals | None],
) -> Parts:
    """Construct the parts of one controller.

    Args:
        given: What they work with.
        wake: Lets the next tick come at once.
        exclusion: Gives the turns to work on a dataflow.
        arrivals: Returns where increments come from; `None`: nothing arrives.
    """
    store, engine, files, clock = given.store, given.engine, given.files, given.clock
    catalog = Catalog(store, given.registry, Descriptions(files))
    runs = Runs(
        store=store,
        engine=engine,
        files=files,
        clock=clock,
        retry=given.retry,
        executor=given.executor,
        catalog=catalog,
        wake=wake,
        faults=given.faults,
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
        engine=engine,
        punctuations=punctuations,
        clock=clock,
        threads=given.framers or given.executor,
        wake=wake,
        places=given.places,
        seconds_max=given.run_seconds_max,
    )
    answers = Answers(
        store=store,
        clock=clock,
        threads=given.answerers or Here(),
        wake=wake,
        seconds_max=given.runnable_seconds_max,
    )
    rollbacks = Rollbacks(store, engine, files, catalog, runs, framer, punctuations, terms, clock)
    recovery = Recovery(
        store=store,
        engine=engine,
        catalog=catalog,
        runs=runs,
        framer=framer,
        punctuations=punctuations,
        rollbacks=rollbacks,
        clock=clock,
    )
    ticker = Ticker(
        store=store,
        clock=clock,
        catalog=catalog,
        runs=runs,
        recovery=recovery,
        framer=framer,
        answers=answers,
        places=given.places,
        starving=Starving(engine=engine, clock=clock, places=given.places),
        random_hex=given.random_hex,
    )

    def prepare(record: DataflowRecord, dataflow: Dataflow) -> None:
        versions.prepare(record, dataflow)

    versions = Versions(
        store=store,
        files=files,
        catalog=catalog,
        changes=Changes(
            store=store,
            engine=engine,
            files=files,
            catalog=catalog,
            runs=runs,
            terms=terms,
            clock=clock,
            compile_=given.registry.compile,
            prepare=prepare,
            new_id=ticker.new_id,
        ),
        runs=runs,
        ticker=ticker,
        framer=framer,
        answers=answers,
        punctuations=punctuations,
        recovery=recovery,
        exclusion=exclusion,
        arrivals=arrivals,
    )
    amendments = Amendments(
        store=store,
        runs=runs,
        ticker=ticker,
        rollbacks=rollbacks,
        corrections=Corrections(store, engine, files, catalog, runs, clock, ticker.new_id),
        exclusion=exclusion,
        wake=wake,
    )
    deletion = Deletion(
        store=store,
        engine=engine,
        files=files,
        catalog=catalog,
        runs=runs,
        ticker=ticker,
        framer=framer,
        answers=answers,
        punctuations=punctuations,
        amendments=amendments,
        exclusion=exclusion,
        faults=given.faults,
    )
    housekeeping = Housekeeping(
        store=store,
        engine=engine,
        catalog=catalog,
        runs=runs,
        punctuations=punctuations,
        exclusion=exclusion,
        held=lambda: ticker.held,
        retention=given.retention,
        inputs=Inputs(store, engine, files, catalog, runs, clock, given.keep),
        every=given.collect_every,
    )
    snapshots = Snapshots(
        engine=engine, catalog=catalog, runs=runs, retention=given.retention, clock=clock
    )
    verifications = Verifications(
        store=store,
        engine=engine,
        catalog=catalog,
        runs=runs,
        snapshots=snapshots,
        files=files,
        tables_root=given.tables_root,
        random_hex=given.random_hex,
        faults=given.faults,
        executor=given.verifier or given.executor,
    )
    return Parts(
        catalog=catalog,
        runs=runs,
        terms=terms,
        punctuations=punctuations,
        framer=framer,
        answers=answers,
        recovery=recovery,
        ticker=ticker,
        versions=versions,
        deletion=deletion,
        amendments=amendments,
        housekeeping=housekeeping,
        reading=Reading(store=store, engine=engine, catalog=catalog, snapshots=snapshots),
        explaining=Explaining(
            store=store,
            engine=engine,
            catalog=catalog,
            runs=runs,
            descriptions=Descriptions(files),
        ),
        snapshots=snapshots,
        verifications=verifications,
    )
