"""The controller: the operations that an operator can ask for, and the tick that runs dataflows.

A facade over its parts, which `assembly` makes. After a crash nothing from memory is needed: the
store and the folders hold everything.

Guaranteed: when a method returns, its effect is durable
(tests/controller/loop/operations/test_operating.py).
Absent on purpose: the scheduler, threads of its own, HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import structlog

from cbp.engine.interface.runs import ProcessStack, needs_spark
from cbp.errors import CbpError, DataflowInvalidError, EngineStartingError
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.flow.connector import Connector
from cbp.model.flow.punctuation import Punctuation, Reason
from cbp.model.run.compactions import Compaction
from cbp.model.run.intention import Intention, RunStatus
from cbp.model.schedule.priority import Priority
from cbp.model.schedule.scheduler import Schedule
from cbp.model.schedule.waiting import Wait
from cbp.model.version.version_change import NO_CHOICE, Choice
from controller.loop.assembly import Parts
from controller.loop.operations.version_switch import Changed
from controller.loop.reading.rebuild_backlog import Rebuild
from controller.loop.reading.recovery_preview import (
    OpenIntention,
    RecoveryPreview,
    open_intentions,
    preview_recovery,
)
from controller.loop.records.dataflow_folder import left_aside, remove_purged
from controller.loop.recovery.redo import ignore
from controller.loop.runs.in_flight import StageId
from controller.loop.runs.isolation import RECOVERED, Trouble
from controller.loop.runs.run_commit import PUBLISHED
from controller.loop.runs.run_counts import Counts
from controller.loop.runs.threads import Here
from controller.loop.tick.announcements import Announcements
from controller.registry.translator_files import code_files
from controller.store.base import PAUSED_BY_HAND, DataflowRecord, RunRecord

DRAIN_CANCEL_SECONDS = 5.0

_log = structlog.get_logger(__name__)


class Controller:
    """Controls all dataflows of one service by its parts; safe to use from several threads."""

    def __init__(self, parts: Parts) -> None:
        given = parts.given
        self._parts, self.registry = parts.complete(), given.registry
        self._store, self._files = given.store, given.files
        self._control, self._root = given.engine.control, given.tables_root
        self._announcements = Announcements(given.store.announce)
        self.isolation, self.reading = parts.isolation, parts.reading
        self.recovery_notes = parts.recovery_notes
        self.amendments, self.housekeeping = parts.amendments, parts.housekeeping
        self.rollback_jobs, self.give_back_jobs = parts.rollback_jobs, parts.give_back_jobs
        self.set_aside_counts, self.rebuild_jobs = parts.set_aside_counts, parts.rebuild_jobs
        self.explaining, self.snapshots = parts.explaining, parts.snapshots
        self.stage_facts, self.lineages = parts.stage_facts, parts.lineages
        self.verifications, self.scrubs = parts.verifications, parts.scrubs
        self.disk_uses, self.retained = parts.disk_uses, parts.retained

    # what exists

    def validate(self, document: Any, duplicates: Iterable[str] = ()) -> Dataflow:
        """Check a document like `register`, and change nothing; raises `DataflowInvalidError`."""
        dataflow = self._usable(self.registry.compile(document, duplicates))
        if refused := list(self._parts.given.refused(dataflow)):
            raise DataflowInvalidError(dataflow.name, refused)
        return dataflow

    def _usable(self, dataflow: Dataflow) -> Dataflow:
        self.registry.require_loaded(dataflow)
        if (waits_for := self._control.waits_for()) and needs_spark(dataflow.stages.values()):
            raise EngineStartingError(waits_for)
        self._control.refuse(dataflow.name, tuple(dataflow.stages.values()))
        return dataflow

    def register(self, document: Any, duplicates: Iterable[str] = ()) -> DataflowRecord:
        """Register a dataflow; durable once this returns.

        A folder that describes exactly this dataflow is taken over with its contents: the state
        in its logs is restored.

        Raises:
            DataflowInvalidError: Listing every mistake with its place.
            AlreadyExistsError: If the name is taken.
            DataflowsTooManyError: If the service has reached its limit of dataflows.
            TableForeignError: If the dataflow's folder holds anything else.
        """
        return self._register(self.validate(document, duplicates), document)

    def _bring_back(self, document: Any, on_redo: Callable[[Intention], object]) -> DataflowRecord:
        dataflow = self._usable(self.registry.compile_registered(document))
        return self._register(dataflow, document, on_redo)

    def _register(
        self, dataflow: Dataflow, document: Any, on_redo: Callable[[Intention], object] = ignore
    ) -> DataflowRecord:
        record = DataflowRecord(
            dataflow.name,
            1,
            document,
            f"{self._root}/{dataflow.name}",
            "running",
            self._parts.given.clock(),
        )
        record = self._parts.versions.register(record, dataflow, on_redo=on_redo)
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
        """Replace a registered dataflow by a new version; durable once this returns.

        Waits for the dataflow's runs under way, and publishes recorded runs. Other dataflows
        continue. Raises `DataflowInvalidError` with every mistake, or as `Versions.change`.
        """
        dataflow = self.validate(document, duplicates)
        try:
            return self._parts.versions.change(
                document, dataflow, choice, expected_version=expected_version, dry_run=dry_run
            )
        finally:
            self.wake()

    def outlook(self) -> list[RecoveryPreview]:
        """Return the open work of every dataflow, and the actions of a recovery; reads only."""
        return preview_recovery(self._store, self._files, self._root)

    def rebuild(
        self,
        only: Collection[str] = (),
        *,
        on_dataflow: Callable[[str], None] = lambda name: None,
        on_record: Callable[[Intention], object] = ignore,
    ) -> list[str]:
        """Register dataflows that only their folders describe; see `Versions.rebuild_missing`."""
        register = partial(self._bring_back, on_redo=on_record)
        return self._parts.versions.rebuild_missing(register, only=only, on_dataflow=on_dataflow)

    def dataflow(self, name: str) -> Dataflow:
        """Return a registered dataflow, compiled; raises `NotFoundError`."""
        return self._parts.catalog.find(name)[1]

    def compiled(self, record: DataflowRecord) -> Dataflow:
        """Return the dataflow of a record that was read already; raises `DataflowInvalidError`."""
        return self._parts.catalog.compiled(record)

    def with_older_code(self, but: str) -> tuple[str, ...]:
        """See `Catalog.with_older_code`."""
        return self._parts.catalog.with_older_code(but)

    def pause(self, name: str) -> None:
        """Start no more runs of a dataflow; publish its results when the runs under way have ended.

        The pause is persistent. Idempotent.
        """
        self._store.set_desired(name, "paused")
        self.wake()

    def drain_dataflow(self, name: str) -> None:
        """Take in no more files, process queued input, then start no more runs.

        Persistent and idempotent; `resume` ends it, at any time. A paused dataflow runs again until
        it is drained; a stopped stage stays stopped, and the drain waits for it.
        """
        if self._store.dataflow(name).desired != "drained":
            self._store.set_desired(name, "draining")
        self.wake()

    def resume(self, name: str) -> None:
        """Let a dataflow run again and clear the failures of its stages; idempotent.

        An unfinished roll-back is finished first.
        """
        self.isolation.forget(name)
        self.amendments.finish(name)
        self._store.set_desired(name, "running")
        self.wake()

    def pause_stage(self, dataflow: str, stage: str) -> None:
        """Start no more runs of one stage, for example of a cycle that does not drain; idempotent.

        `resume` of the stage, or of the dataflow, lets it run again. Raises `NotFoundError`.
        """
        self._store.pause_stage(
            dataflow, self._parts.catalog.leader(dataflow, stage), PAUSED_BY_HAND
        )
        self.wake()

    def resume_stage(self, dataflow: str, stage: str) -> None:
        """Resume a stage and reset its failures; idempotent; raises `NotFoundError`."""
        self._store.resume_stage(dataflow, self._parts.catalog.leader(dataflow, stage))
        self.wake()

    def retry(self, dataflow: str, stage: str) -> None:
        """Retry a stage that stopped after failures; the next failure stops it again.

        A stage that pauses after a failed attempt is retried at once.
        """
        self._store.retry_stage(dataflow, self._parts.catalog.leader(dataflow, stage))
        self.wake()

    def set_priority(self, dataflow: str, stage: str, priority: Priority) -> None:
        """Let the waiting time of a stage count for more or less; durable, idempotent.

        It orders the starts only, so nothing starves. Stages that run together have one priority.
        Raises `NotFoundError`.
        """
        self._parts.priorities.set_priority(dataflow, stage, priority)
        self.wake()

    def cancel(self, run: str) -> None:
        """Ask a run to stop; its stage is then paused. Returns at once. Raises `NotFoundError`.

        A run that is already recorded, or has ended, is not affected.
        """
        run_record = self._store.run(run)
        if self._parts.in_flight.busy().get((run_record.dataflow, run_record.stage)) == run:
            self._parts.in_flight.cancel(run)

    def phases(self, run: str) -> dict[str, float]:
        """Return when the phases of a run under way began; see `cbp.model.run.timeline`.

        Only the instance that executes the run knows them; other instances return none.
        """
        return self._parts.run_phases.figures(run)

    def stacks(self, run: RunRecord) -> Sequence[ProcessStack]:
        """Return the stacks of the processes that execute a run; none if no process does.

        Only the instance that executes the run knows them.

        Raises:
            RunStackUnseenError: The run is in processes that cannot be asked.
        """
        return self._control.stacks(run.id) if run.status is RunStatus.INTENDED else ()

    def code_files(self, run: RunRecord) -> frozenset[str]:
        """Return the files with the code of a run's stages; none if they cannot be loaded."""
        try:
            dataflow = self.dataflow(run.dataflow)
            names = self.members(run.dataflow).get(run.stage, ())
        except CbpError:
            return frozenset()
        stages = [dataflow.stages[name] for name in names if name in dataflow.stages]
        return frozenset(
            file for stage in stages for file in code_files(stage.translator.translate)
        )

    def every_phase(self) -> dict[str, dict[str, float]]:
        """Return the phases of all runs under way, by run."""
        return {
            run: self._parts.run_phases.figures(run)
            for run in self._parts.in_flight.busy().values()
        }

    def delete(self, name: str, purge: bool = False) -> None:
        """Delete a dataflow; its runs under way are cancelled and waited for.

        Finished runs are published first, unless the folder is removed. If that fails, the
        records stay, and the next registration that takes over the folder publishes them.

        Args:
            purge: Also remove the dataflow's folder. Otherwise the tables stay, and registering
                the same document takes them over.

        Raises:
            NotFoundError: If there is no such dataflow.
            OperatingError: If a run does not end, or the folder cannot be removed.
        """
        self._parts.deletion.delete(name, purge=purge)
        self.wake()

    def close(
        self, dataflow: str, flow: str, *, key: str | None = None, reason: Reason = "request"
    ) -> Punctuation:
        """Close the open frames of a flow, at every input that frames it; durable.

        Records that wait before the punctuation are framed first; later records begin new frames.

        Args:
            flow: `source` or `stage.output`.
            key: Idempotency key: a second call with it makes no second punctuation; `None` means a
                new one.

        Raises `NotFoundError` or `FlowUnframedError`.
        """
        record = self._store.dataflow(dataflow)
        asked = f"{reason}/{key or self._parts.given.random_hex(16)}"
        with self._parts.term.deposing():
            made = self._parts.punctuations.close(record, flow, key=asked, reason=reason)
        self.wake()
        return made

    def framed_inputs(self, dataflow: str, flow: str) -> list[str]:
        """Return the inputs that frame a flow, as `stage.input`; raises `NotFoundError`."""
        return self._parts.punctuations.inputs(self._store.dataflow(dataflow), flow)

    def exclusive(self, name: str, purpose: str) -> AbstractContextManager[object]:
        """Return a lock under which a dataflow is neither registered nor deleted."""
        return self._parts.exclusion.hold(name, purpose)

    # what is going on

    @property
    def problem(self) -> str:
        """Why this controller no longer starts anything; `""` while it leads."""
        return self._parts.term.deposed

    @property
    def waits_for(self) -> str:
        """What the engine waits for before it runs anything, in words; `""` if nothing."""
        return self._control.waits_for()

    @property
    def run_counts(self) -> Counts:
        """Counts of runs and ticks since this controller started."""
        return self._parts.run_counts.all()

    def every_wait(self) -> Mapping[StageId, Wait]:
        """Return the waits of all dataflows: (dataflow, stage) -> wait."""
        return self._parts.ticker.waits

    def stop_leading(self, reason: str) -> None:
        """Start nothing from now on: another controller has taken over."""
        self._parts.term.depose(reason)

    def follow(self, reason: str) -> None:
        """Start nothing because another controller leads; `reason` is shown."""
        self._parts.term.follow(reason)

    def lead(self, epoch: int) -> None:
        """Begin a term as leader: drop caches that another leader may have outdated, then recover.

        Raises:
            LeaseLostError: If another controller has taken the lease meanwhile.
            OperatingError: If late writes of earlier leaders cannot be prevented.
        """
        with self._parts.holds.lock:
            self._parts.terms.begin(epoch)
            self._parts.ticker.begin()
            self.isolation.begin()
            for record in self._store.dataflows():
                forget = partial(self._forget, record)
                self.isolation.attempt(record.name, "prepared for its first tick", forget)
            self._parts.run_commit.begin()
            self._parts.failures.begin()
            self._parts.term.begin(epoch)
            self._parts.framer.begin()
            self._parts.answers.begin()
        self.recover()

    def _forget(self, record: DataflowRecord) -> None:
        self._parts.given.engine.tables.forget(record.folder)
        self._parts.punctuations.forget(record.name)

    def retire(self, timeout: float) -> bool:
        """Cancel all work after `stop_leading`; return whether all of it has ended."""
        self._parts.framer.stop()
        self._parts.answers.stop()
        self.verifications.stop()
        self.rebuild_jobs.stop()
        self._parts.failures.stop()
        self.amendments.cancel_all(None)
        return self._parts.in_flight.wait(timeout=timeout) and not self._parts.in_flight.busy()

    def members(self, name: str) -> dict[str, tuple[str, ...]]:
        """Return the stages that run together: leading stage -> all members, the leader first."""
        units = self._parts.catalog.units(self._store.dataflow(name))
        return {leader: unit.names for leader, unit in units.items()}

    def rebuilding(
        self, name: str, connectors: Mapping[str, Mapping[str, Connector]]
    ) -> dict[str, Rebuild]:
        """Return the rebuilds that are under way, by stage; raises as `members`."""
        return self._parts.rebuilding.of(self._store.dataflow(name), connectors)

    def troubles(self, name: str | None = None) -> list[Trouble]:
        """Return the unexpected failures of one or all dataflows, and damaged data."""
        names = [r.name for r in self._store.dataflows()] if name is None else [name]
        damages = map(self.housekeeping.scrubbing.trouble, names)
        return [*self.isolation.troubles(name), *(one for one in damages if one is not None)]

    @property
    def held(self) -> Mapping[str, str]:
        """Dataflows that start nothing now, with the reason."""
        return dict(self._parts.holds.held)

    def open_intentions(self, name: str) -> Sequence[OpenIntention]:
        """Return runs that are committed, but not published yet; raises `NotFoundError`."""
        self._store.dataflow(name)
        return open_intentions(name, self._parts.publisher, self._parts.parked)

    def compactions(self, name: str) -> list[Compaction]:
        """Return the newest compaction of each table, by table; raises `NotFoundError`."""
        return self.stage_facts.compactions(name)

    def waiting(self, name: str) -> dict[str, str]:
        """Return stage -> why it did not start at the last tick, in words; see `waits`."""
        return {stage: wait.words for stage, wait in self.waits(name).items()}

    def waits(self, name: str) -> dict[str, Wait]:
        """Return stage -> why it did not start at the last tick.

        It holds leading stages only; fused stages run with their leader.
        """
        return {stage: wait for (_, stage), wait in self._parts.ticker.waits.of(name).items()}

    # the loop

    def wake(self) -> None:
        """Let the next tick start at once."""
        self._parts.woken.set()

    def wait(self, timeout: float) -> None:
        """Block until woken, or for `timeout` seconds."""
        self._parts.woken.wait(timeout)
        self._parts.woken.clear()

    def recover(self) -> None:
        """Redo and settle work that a crash interrupted; called before the first tick of a term."""
        with self._parts.holds.lock:
            notes, terms = self.recovery_notes, self._parts.terms
            notes.begin(term=terms.epoch, instance=terms.address)
            left = left_aside(self._files, self._root)
            self._parts.versions.recover_all()
            self._parts.recovery.settle()
            self.amendments.hold_unfinished()
            taken = self.rebuild_jobs.begin()
            left = [path for path in left if path not in taken]
            troubles = self.isolation.troubles()
            notes.end(left, {t.dataflow: t.words for t in troubles if t.doing == RECOVERED})
        # Last, and in a thread of its own: a folder may be large.
        (self._parts.given.removers or Here()).submit(_remove, left)
        self.wake()

    def stop_starting(self) -> None:
        """Start no more runs; runs under way continue. Returns at once."""
        self._parts.ticker.stopping = True
        self.verifications.stop()
        self.rebuild_jobs.stop()

    def drain(self, timeout: float) -> bool:
        """Start no more runs and wait for those under way; cancel runs that take longer.

        Finally publishes finished runs.

        Returns:
            Whether every run ended without a cancellation. Cancelled runs run again after a
            restart.
        """
        self.stop_starting()
        self._parts.framer.stop()
        self._parts.answers.stop()
        ended = self._parts.in_flight.wait(timeout=timeout)
        if not ended:
            self.retire(DRAIN_CANCEL_SECONDS)
        for record in self._store.dataflows():
            publish = partial(self._parts.run_commit.publish, record)
            self.isolation.attempt(record.name, PUBLISHED, publish)
        return ended

    def tick(self) -> Schedule:
        """Check all queues, start runs that can start, and remember why the others wait.

        From time to time, preferably when no run starts, also collect garbage.
        """
        self._parts.versions.finish_late()
        ticker = self._parts.ticker
        schedule = self._parts.run_counts.tick(ticker.tick, lambda: ticker.looked.values())
        if not (self.problem or ticker.stopping):
            troubled = {trouble.dataflow for trouble in self.isolation.troubles()}
            self._announcements.see(ticker.looked, troubled)
            self.rebuild_jobs.go_on()
            self.housekeeping.keep(calm=not schedule.starts)
        return schedule


def _remove(left: Iterable[str]) -> None:
    """Remove folders that were set aside before a crash; a failure is left to the next start."""
    for path in left:
        try:
            remove_purged(path)
        except CbpError as error:
            _log.warning("purge.not_finished", path=path, error=error.as_dict())
