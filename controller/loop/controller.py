"""The controller: what an operator can ask for, and the tick that brings it about.

A facade: registration and deletion are here, the rest is in `tick`, `runs`,
`recovery` and `reading`. Nothing in memory is needed after a crash; the store and
the folders say everything.

Guaranteed: a method that returned has made its effect durable
(tests/controller/test_operating.py).
Absent on purpose: the scheduler, threads of its own, HTTP.
"""

from __future__ import annotations

import secrets
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any

import structlog

from cbp.engine.base import Engine
from cbp.engine.collect import ONE_DAY, Retention
from cbp.engine.faults import NO_FAULTS, Faults
from cbp.engine.files import Files
from cbp.errors import (
    LogConflictError,
    OperatingError,
)
from cbp.model.change import NO_CHOICE, Choice
from cbp.model.dataflow import Dataflow
from cbp.model.intention import Intention
from cbp.model.punctuation import Punctuation, Reason
from cbp.model.schedule import Schedule
from cbp.model.waiting import Wait
from controller.loop.amendments import CANCEL_SECONDS, Amendments
from controller.loop.catalog import Catalog
from controller.loop.change import Changed, Changes
from controller.loop.corrections import Corrections
from controller.loop.description import Descriptions
from controller.loop.explaining import Explaining
from controller.loop.folder import purge_folder, remove_purged
from controller.loop.frames import Framer
from controller.loop.housekeeping import Housekeeping
from controller.loop.outlook import Outlook, look_out
from controller.loop.punctuations import Punctuations
from controller.loop.reading import Reading
from controller.loop.rebuild import bring_back
from controller.loop.recovery import Recovery
from controller.loop.retention import SEVEN_DAYS, Inputs, Keep
from controller.loop.rollback import Rollbacks
from controller.loop.runs import RetryPolicy, Runs
from controller.loop.snapshots import Snapshots
from controller.loop.tick import PAUSED_BY_HAND, Ticker
from controller.loop.verification import Verifications
from controller.loop.versions import Arrivals, Versions
from controller.registry import Registry
from controller.store.base import DataflowRecord, Store

__all__ = ["Arrivals", "Controller"]

DRAIN_CANCEL_SECONDS = 10.0
COLLECT_EVERY = 100

_log = structlog.get_logger(__name__)


class Controller:
    """Steers all dataflows of one service; safe to use from several threads.

    Attributes:
        registry: The translators that a document may name.
        arrivals: Set once by whoever constructs both; `None`: nothing arrives.
        amendments: What an operator changes about the past.
        housekeeping: Removes what nobody needs.
        explaining: Tells plans and accounts of runs.
        snapshots: Finds versions of all tables that belong together.
        verifications: Starts them, and tells what came of them.
    """

    def __init__(
        self,
        *,
        store: Store,
        engine: Engine,
        registry: Registry,
        files: Files,
        clock: Callable[[], datetime],
        tables_root: str,
        parallel_max: int,
        retry: RetryPolicy,
        executor: Executor,
        faults: Faults = NO_FAULTS,
        random_hex: Callable[[int], str] = secrets.token_hex,
        retention: Retention = ONE_DAY,
        keep: Keep = SEVEN_DAYS,
        collect_every: int = COLLECT_EVERY,
        framers: Executor | None = None,
        verifier: Executor | None = None,
        run_seconds_max: float = 0.0,
    ) -> None:
        self.registry, self.arrivals = registry, None  # type: Registry, Arrivals | None
        self._store, self._files, self._clock = store, files, clock
        self._engine, self._root, self._fault = engine, tables_root, faults
        self._random_hex = random_hex
        self._catalog = Catalog(store, registry, Descriptions(files))
        self._runs = Runs(
            store=store,
            engine=engine,
            files=files,
            clock=clock,
            retry=retry,
            executor=executor,
            catalog=self._catalog,
            wake=self.wake,
            faults=faults,
            seconds_max=run_seconds_max,
        )
        self._punctuations = Punctuations(
            store=store, files=files, clock=clock, catalog=self._catalog
        )
        rollbacks = Rollbacks(store, engine, files, self._catalog, self._runs, clock)
        self._framer = Framer(
            store=store,
            engine=engine,
            punctuations=self._punctuations,
            clock=clock,
            threads=framers or executor,
            wake=self.wake,
            seconds_max=run_seconds_max,
        )
        self._recovery = Recovery(
            store=store,
            engine=engine,
            catalog=self._catalog,
            runs=self._runs,
            framer=self._framer,
            punctuations=self._punctuations,
            rollbacks=rollbacks,
            clock=clock,
        )
        self._reading = Reading(store=store, engine=engine, catalog=self._catalog)
        self.explaining = Explaining(
            store=store, engine=engine, catalog=self._catalog, runs=self._runs
        )
        self.snapshots = Snapshots(
            engine=engine, catalog=self._catalog, runs=self._runs, retention=retention, clock=clock
        )
        self.verifications = Verifications(
            store=store,
            engine=engine,
            catalog=self._catalog,
            runs=self._runs,
            snapshots=self.snapshots,
            files=files,
            tables_root=tables_root,
            random_hex=random_hex,
            faults=faults,
            executor=verifier or executor,
        )
        self._ticker = Ticker(
            store=store,
            clock=clock,
            catalog=self._catalog,
            runs=self._runs,
            recovery=self._recovery,
            framer=self._framer,
            parallel_max=parallel_max,
            random_hex=random_hex,
        )
        self._names_lock = threading.Lock()
        self._exclusive: defaultdict[str, threading.RLock] = defaultdict(threading.RLock)
        self._woken = threading.Event()
        changes = Changes(
            store=store,
            engine=engine,
            files=files,
            catalog=self._catalog,
            runs=self._runs,
            clock=clock,
            compile_=registry.compile,
            prepare=lambda record, dataflow: self._versions.prepare(record, dataflow),
            new_id=self._ticker.new_id,
        )
        self._versions = Versions(
            store=store,
            files=files,
            catalog=self._catalog,
            changes=changes,
            runs=self._runs,
            ticker=self._ticker,
            framer=self._framer,
            punctuations=self._punctuations,
            recovery=self._recovery,
            exclusive=self.exclusive,
            arrivals=lambda: self.arrivals,
        )
        corrections = Corrections(
            store, engine, files, self._catalog, self._runs, clock, self._ticker.new_id
        )
        self.amendments = Amendments(
            store=store,
            runs=self._runs,
            ticker=self._ticker,
            rollbacks=rollbacks,
            corrections=corrections,
            exclusive=self.exclusive,
            wake=self.wake,
        )
        self.housekeeping = Housekeeping(
            store=store,
            engine=engine,
            catalog=self._catalog,
            runs=self._runs,
            punctuations=self._punctuations,
            exclusive=self.exclusive,
            held=lambda: self._ticker.held,
            retention=retention,
            inputs=Inputs(store, files, self._catalog, self._runs, clock, keep),
            every=collect_every,
        )

    # what exists

    def validate(self, document: Any, duplicates: Iterable[str] = ()) -> Dataflow:
        """Check a document as `register` does, and change nothing.

        Raises:
            DataflowInvalidError: Listing every mistake with its place.
        """
        dataflow = self.registry.compile(document, duplicates)
        self._engine.check(dataflow.name, tuple(dataflow.stages.values()))
        return dataflow

    def register(self, document: Any, duplicates: Iterable[str] = ()) -> DataflowRecord:
        """Register a dataflow; durable once this returns.

        A folder that describes exactly this dataflow is taken over with everything
        in it: what its logs hold is brought back.

        Raises:
            DataflowInvalidError: Listing every mistake with its place.
            AlreadyExistsError: If the name is taken.
            TableForeignError: If its folder holds anything else.
        """
        dataflow = self.validate(document, duplicates)
        record = DataflowRecord(
            dataflow.name, 1, document, f"{self._root}/{dataflow.name}", "running", self._clock()
        )
        record = self._versions.register(record, dataflow)
        self.wake()
        return record

    def change(
        self,
        document: Any,
        duplicates: Iterable[str] = (),
        *,
        choice: Choice = NO_CHOICE,
        expected_version: int | None = None,
        dry_run: bool = False,
    ) -> Changed:
        """Let a new version of a registered dataflow take over; durable once this returns.

        Runs under way are waited for; what is recorded is published. Other dataflows go on.

        Args:
            document: The new version.
            duplicates: As of `register`.
            choice: What the author says about stages that are replaced.
            expected_version: Refuse unless this is the version that is there now.
            dry_run: Change nothing, only tell.

        Raises:
            DataflowInvalidError: Listing every mistake with its place.
            CbpError: See `Versions.change`.
        """
        dataflow = self.validate(document, duplicates)
        try:
            return self._versions.change(
                document, dataflow, choice, expected_version=expected_version, dry_run=dry_run
            )
        finally:
            self.wake()

    def outlook(self) -> list[Outlook]:
        """Return what is open in every dataflow, and what recovery would do; reads only."""
        return look_out(self._store, self._files, self._root)

    def rebuild(
        self,
        only: Collection[str] = (),
        *,
        on_dataflow: Callable[[str], None] = lambda name: None,
        on_record: Callable[[Intention], None] = lambda intention: None,
    ) -> list[str]:
        """Register what folders describe and the store does not know; see `bring_back`.

        Args:
            only: Bring back these and no others; by default all.
            on_dataflow: Told each name before its dataflow is brought back.
            on_record: Told each record before it is redone.

        Returns:
            The names, sorted.
        """
        self._recovery.on_redo = on_record
        try:
            return bring_back(
                self._store,
                self._files,
                self._root,
                self.register,
                only=only,
                on_dataflow=on_dataflow,
            )
        finally:
            self._recovery.on_redo = lambda intention: None

    def dataflow(self, name: str) -> Dataflow:
        """Return a registered dataflow, compiled; raises `NotFoundError`."""
        return self._catalog.find(name)[1]

    def pause(self, name: str) -> None:
        """Start no more runs of a dataflow; those under way end, then it is published.

        Persistent, idempotent.
        """
        self._store.set_desired(name, "paused")
        self.wake()

    def resume(self, name: str) -> None:
        """Run a dataflow again and clear the failures of its stages; idempotent.

        A roll-back that could not be finished is finished first.
        """
        self.amendments.finish(name)
        self._store.set_desired(name, "running")
        self.wake()

    def pause_stage(self, dataflow: str, stage: str) -> None:
        """Start no more runs of one stage, of a cycle that does not drain say; idempotent.

        `retry` of the stage, or `resume` of the dataflow, lets it run again.

        Raises:
            NotFoundError: If there is no such stage.
        """
        self._store.pause_stage(dataflow, self._catalog.leader(dataflow, stage), PAUSED_BY_HAND)
        self.wake()

    def retry(self, dataflow: str, stage: str) -> None:
        """Give a stage that paused itself one more try; the next failure pauses it again.

        Raises:
            NotFoundError: If there is no such stage.
        """
        self._store.pause_stage(dataflow, self._catalog.leader(dataflow, stage), "")
        self.wake()

    def cancel(self, run: str) -> None:
        """Ask a run to stop; its stage is then paused. Returns at once.

        A run that is recorded already, or has ended, is left alone.

        Raises:
            NotFoundError: If there is no such run.
        """
        found = self._store.run(run)
        if self._runs.busy().get((found.dataflow, found.stage)) == run:
            self._runs.cancel(run)

    def delete(self, name: str, purge: bool = False) -> None:
        """Forget a dataflow; its runs under way are cancelled and waited for.

        What is finished is published first, unless the folder goes. Where that fails, the
        records stay, and whoever takes the folder over publishes them.

        Args:
            name: The dataflow.
            purge: Remove its folder too; otherwise the tables stay, and registering
                the same document takes them over.

        Raises:
            NotFoundError: If there is no such dataflow.
            OperatingError: If a run does not end, or the folder cannot be removed.
        """
        folder = self._store.dataflow(name).folder
        with self._ticker.lock:
            self._ticker.deleting.add(name)
        try:
            self.amendments.cancel_all(name)
            if not self._runs.wait(name, timeout=CANCEL_SECONDS):
                message = f"a run of {name!r} has not ended after {CANCEL_SECONDS:.0f} s; try again"
                raise OperatingError(message, dataflow=name)
            with self.exclusive(name), self._ticker.lock:
                if not purge:
                    self._runs.publish(self._store.dataflow(name))
                self._store.delete(name)
                self._runs.forget(name)
                self._framer.forget(name)
                self._punctuations.forget(name)
                self._catalog.forget(name)
                self._engine.forget(folder)
                if purge:
                    run = self._ticker.new_id()
                    purge_folder(self._files, folder, run=run, faults=self._fault)
        finally:
            self._ticker.deleting.discard(name)
        _log.info("dataflow.deleted", dataflow=name, purged=purge)
        self.wake()

    def close(
        self, dataflow: str, flow: str, *, key: str | None = None, reason: Reason = "request"
    ) -> Punctuation:
        """Close the open frames of a flow, at every input that frames it; durable.

        What waits before it is framed first; records that come later begin new frames.

        Args:
            dataflow: Its name.
            flow: `source` or `stage.output`.
            key: Asking again with it makes no second punctuation; `None`: a new one.
            reason: What asks for it.

        Raises:
            NotFoundError: If there is no such dataflow or flow.
            FlowUnframedError: If no stage frames it.
        """
        record = self._store.dataflow(dataflow)
        try:
            made = self._punctuations.close(
                record, flow, key=f"{reason}/{key or self._random_hex(16)}", reason=reason
            )
        except LogConflictError as error:
            self._runs.depose(error.message)
            raise
        self.wake()
        return made

    def framed_inputs(self, dataflow: str, flow: str) -> list[str]:
        """Return the inputs that frame a flow, as `stage.input`; raises `NotFoundError`."""
        return self._punctuations.inputs(self._store.dataflow(dataflow), flow)

    def exclusive(self, name: str) -> AbstractContextManager[object]:
        """Return a lock under which a dataflow is neither registered nor deleted."""
        with self._names_lock:
            return self._exclusive[name]

    # what is going on

    @property
    def problem(self) -> str:
        """Why this controller starts nothing any more; `""` while it leads."""
        return self._runs.deposed

    def stop_leading(self, reason: str) -> None:
        """Start nothing any more: another controller has taken over."""
        self._runs.depose(reason)

    def follow(self, reason: str) -> None:
        """Start nothing, for a reason that is shown: another controller leads."""
        self._runs.follow(reason)

    def lead(self, epoch: int) -> None:
        """Begin to lead: forget what another controller may have changed, then recover.

        Args:
            epoch: Of the lease; stands in every record.
        """
        with self._ticker.lock:
            for record in self._store.dataflows():
                self._engine.forget(record.folder)
            self._runs.begin(epoch)
            self._framer.begin()
        self.recover()

    def retire(self, timeout: float) -> bool:
        """Cancel what is under way after `stop_leading`; tell whether nothing is any more."""
        self._framer.stop()
        self.verifications.stop()
        self._runs.stop()
        self.amendments.cancel_all(None)
        return self._runs.wait(timeout=timeout) and not self._runs.busy()

    def members(self, name: str) -> dict[str, tuple[str, ...]]:
        """Return the stages that run together: the leader -> all of them, itself first.

        Raises:
            NotFoundError: If there is no such dataflow.
            DataflowInvalidError: If the document names what is no longer installed.
        """
        units = self._catalog.units(self._store.dataflow(name))
        return {leader: unit.names for leader, unit in units.items()}

    @property
    def held(self) -> Mapping[str, str]:
        """Dataflows that start nothing for now, to the reason; leave them alone too."""
        return dict(self._ticker.held)

    def unpublished(self, name: str) -> Mapping[str, int]:
        """Return how many epochs of each stage readers of its tables do not see yet."""
        return self._runs.publisher.unpublished(name)

    def waiting(self, name: str) -> dict[str, str]:
        """Return stage -> why it did not start at the last decision, in words; see `waits`."""
        return {stage: wait.words for stage, wait in self.waits(name).items()}

    def waits(self, name: str) -> dict[str, Wait]:
        """Return stage -> why it did not start at the last decision.

        Only stages that lead are in it; the others run with them.
        """
        return {
            stage: wait
            for (dataflow, stage), wait in self._ticker.waits.items()
            if dataflow == name
        }

    def read_flow(
        self, dataflow: str, flow: str, cursor: str | None, limit: int
    ) -> tuple[Sequence[Mapping[str, Any]], str | None]:
        """Return a page of a flow; see `Reading.read_flow`."""
        return self._reading.read_flow(dataflow, flow, cursor, limit)

    def look_up(
        self, dataflow: str, stage: str, state: str, key: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        """Return the state records of one key; see `Reading.look_up`."""
        return self._reading.look_up(dataflow, stage, state, key)

    def read_state(self, dataflow: str, stage: str, state: str) -> Iterator[dict[str, Any]]:
        """Yield every state record; see `Reading.read_state`."""
        return self._reading.read_state(dataflow, stage, state)

    # the loop

    def wake(self) -> None:
        """Let the next tick come at once."""
        self._woken.set()

    def wait(self, timeout: float) -> None:
        """Block until woken, or for `timeout` seconds."""
        self._woken.wait(timeout)
        self._woken.clear()

    def recover(self) -> None:
        """Redo and settle what a crash left; before the first tick of a term."""
        with self._ticker.lock:
            remove_purged(self._files, self._root)
            for record in self._store.dataflows():
                self._versions.recover(record)
            self._recovery.recover(without=self._ticker.held)
            self.amendments.hold_unfinished()
        self.wake()

    def stop_starting(self) -> None:
        """Start no more runs; those under way go on. Returns at once."""
        self._ticker.stopping = True
        self.verifications.stop()

    def drain(self, timeout: float, *, cancel_seconds: float = DRAIN_CANCEL_SECONDS) -> bool:
        """Start no more runs and wait for those under way; cancel what takes longer.

        What is finished is published in the end.

        Args:
            timeout: For how long to wait before cancelling, in seconds.
            cancel_seconds: For how long to wait afterwards.

        Returns:
            Whether every run ended by itself. The others are run again after a restart.
        """
        self.stop_starting()
        self._framer.stop()
        ended = self._runs.wait(timeout=timeout)
        if not ended:
            self.retire(cancel_seconds)
        for record in self._store.dataflows():
            self._runs.publish(record)
        return ended

    def tick(self) -> Schedule:
        """Look at all queues, start what can run, and remember why the rest waits.

        Now and then, best when there is nothing to start, remove what nobody needs.
        """
        self._versions.finish_late()
        schedule = self._ticker.tick()
        if not (self.problem or self._ticker.stopping):
            self.housekeeping.keep(calm=not schedule.starts)
        return schedule
