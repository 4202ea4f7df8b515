"""The controller: what an operator can ask for, and the tick that brings it about.

A facade over its parts: which there are, and what each one needs, is in `parts`. Nothing in
memory is needed after a crash; the store and the folders say everything.

Guaranteed: a method that returned has made its effect durable
(tests/controller/test_operating.py).
Absent on purpose: the scheduler, threads of its own, HTTP.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import structlog

from cbp.errors import CbpError
from cbp.model.change import NO_CHOICE, Choice
from cbp.model.dataflow import Dataflow
from cbp.model.intention import Intention
from cbp.model.punctuation import Punctuation, Reason
from cbp.model.schedule import Schedule
from cbp.model.waiting import Wait
from controller.loop.change import Changed
from controller.loop.exclusion import Exclusion
from controller.loop.folder import left_aside, remove_purged
from controller.loop.outlook import Outlook, look_out
from controller.loop.parts import Environment, assemble
from controller.loop.rebuild import bring_back
from controller.loop.threads import Here
from controller.loop.tick import PAUSED_BY_HAND
from controller.loop.versions import Arrivals
from controller.store.base import DataflowRecord

__all__ = ["Arrivals", "Controller"]

DRAIN_CANCEL_SECONDS = 10.0

_log = structlog.get_logger(__name__)


class Controller:
    """Steers all dataflows of one service; safe to use from several threads.

    Args:
        given: What it works with, and its limits.

    Attributes:
        registry: The translators that a document may name.
        arrivals: Set once by whoever constructs both; `None`: nothing arrives.
        amendments: What an operator changes about the past.
        housekeeping: Removes what nobody needs.
        explaining: Tells plans and accounts of runs.
        snapshots: Finds versions of all tables that belong together.
        verifications: Starts them, and tells what came of them.
    """

    def __init__(self, given: Environment) -> None:
        self.registry = given.registry
        self.arrivals: Arrivals | None = None
        self._store, self._engine, self._files = given.store, given.engine, given.files
        self._root, self._clock = given.tables_root, given.clock
        self._random_hex = given.random_hex
        self._removers = given.removers or Here()
        self._exclusion = Exclusion()
        self._woken = threading.Event()
        parts = assemble(
            given, wake=self.wake, exclusion=self._exclusion, arrivals=lambda: self.arrivals
        )
        self._catalog, self._versions = parts.catalog, parts.versions
        self._runs, self._ticker, self._recovery = parts.runs, parts.ticker, parts.recovery
        self._framer, self._punctuations = parts.framer, parts.punctuations
        self._answers, self._terms = parts.answers, parts.terms
        self.reading, self._deletion = parts.reading, parts.deletion
        self.amendments, self.housekeeping = parts.amendments, parts.housekeeping
        self.explaining, self.snapshots = parts.explaining, parts.snapshots
        self.verifications = parts.verifications

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
        self._deletion.delete(name, purge=purge)
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
        asked = f"{reason}/{key or self._random_hex(16)}"
        with self._runs.deposing():
            made = self._punctuations.close(record, flow, key=asked, reason=reason)
        self.wake()
        return made

    def framed_inputs(self, dataflow: str, flow: str) -> list[str]:
        """Return the inputs that frame a flow, as `stage.input`; raises `NotFoundError`."""
        return self._punctuations.inputs(self._store.dataflow(dataflow), flow)

    def exclusive(self, name: str, purpose: str) -> AbstractContextManager[object]:
        """Return a lock under which a dataflow is neither registered nor deleted.

        Args:
            name: The dataflow.
            purpose: What is done under it, in words that follow the name.
        """
        return self._exclusion.hold(name, purpose)

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

        Raises:
            LeaseLostError: If another one has taken it meanwhile.
            OperatingError: If what others may still put cannot be cut off.
        """
        with self._ticker.lock:
            self._terms.begin(epoch)
            for record in self._store.dataflows():
                self._engine.forget(record.folder)
                self._punctuations.forget(record.name)
            self._runs.begin(epoch)
            self._framer.begin()
            self._answers.begin()
        self.recover()

    def retire(self, timeout: float) -> bool:
        """Cancel what is under way after `stop_leading`; tell whether nothing is any more."""
        self._framer.stop()
        self._answers.stop()
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
            left = left_aside(self._files, self._root)
            for record in self._store.dataflows():
                self._versions.recover(record)
            self._recovery.recover(without=self._ticker.held)
            self.amendments.hold_unfinished()
        # Behind everything else, and beside it: a folder may be large.
        self._removers.submit(_remove, left)
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
        self._answers.stop()
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


def _remove(left: Iterable[str]) -> None:
    """Remove folders that were set aside before a crash; what resists is left to the next start."""
    for path in left:
        try:
            remove_purged(path)
        except CbpError as error:
            _log.warning("purge.not_finished", path=path, error=error.as_dict())
