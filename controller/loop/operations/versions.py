"""Registration, version changes and recovery of dataflows, while other dataflows continue.

`version_switch`, `dataflow_folder` and `redo` decide what is written, and in which order. This
module decides what must wait meanwhile. A dataflow that changes is *held*: it starts no
runs, frames nothing and takes in no files. It stays held until the store shows its newest version.
No other dataflow delays it.

`rebuild_missing` registers dataflows again that folders describe and a lost store does not know;
those that were deleted without `purge` come back too.

Invariant: every dataflow in `held` is finished later, or its stages show that they wait for that
(tests/controller/loop/operations/test_change.py, test_change_crashes.py).
"""

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import structlog

from cbp.engine.commit.publication_check import require_generations
from cbp.errors import (
    AlreadyExistsError,
    CbpError,
    DataflowBusyError,
    DataflowsTooManyError,
    LogConflictError,
    NotFoundError,
    RebuildIncompleteError,
)
from cbp.errors.message_limits import listed
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.plan.fusion import choose_leaders
from cbp.model.run.intention import Intention
from cbp.model.version.dataflow_shape import shape_of
from cbp.model.version.version_change import Choice
from controller.loop.author.framing import Framer
from controller.loop.author.punctuations import Punctuations
from controller.loop.author.runnables import RunnableAnswers
from controller.loop.leadership.terms import CurrentTerm
from controller.loop.operations.priorities import Priorities
from controller.loop.operations.version_switch import (
    Changed,
    Swap,
    VersionSwitch,
    require_planned,
    stage_wiring,
)
from controller.loop.records.dataflow_folder import claim_folder, described
from controller.loop.records.dataflow_part import DataflowPart
from controller.loop.records.version_log import Description
from controller.loop.recovery.redo import Recovery, ignore
from controller.loop.runs.dataflow_locks import DataflowLocks
from controller.loop.runs.in_flight import InFlight
from controller.loop.runs.isolation import RECOVERED, UNRECOVERED, Isolation
from controller.loop.tick.holds import Holds
from controller.store.base import DataflowRecord

ARRIVALS = "updated with the input that arrived"
"""Name for `Isolation` of the step that finishes and restores a dataflow's arrivals."""

UNFINISHED = "the change to a new version is not complete; the log shows why"

_log = structlog.get_logger(__name__)


class Arrivals(Protocol):
    """The source of increments, as far as registration and recovery need it."""

    def prepare(self, record: DataflowRecord, dataflow: Dataflow) -> object:
        """Prepare for arrivals; idempotent."""
        ...

    def recover(self, record: DataflowRecord, dataflow: Dataflow) -> object:
        """Finish arrivals that a crash interrupted, and restore those that the store lost.

        Also prepares each source; a failure at one source does not affect the others.
        """
        ...


@dataclass(kw_only=True, eq=False)
class Versions(DataflowPart):
    """Registers dataflows and changes their versions; safe to use from several threads.

    Attributes:
        most: Largest number of registered dataflows; concurrent requests may exceed it slightly.
    """

    changes: VersionSwitch
    in_flight: InFlight
    term: CurrentTerm
    holds: Holds
    framer: Framer
    answers: RunnableAnswers
    punctuations: Punctuations
    priorities: Priorities
    recovery: Recovery
    exclusion: DataflowLocks
    isolation: Isolation
    arrivals: Arrivals
    most: int
    change_seconds: float
    tables_root: str

    def register(
        self,
        record: DataflowRecord,
        dataflow: Dataflow,
        *,
        on_redo: Callable[[Intention], object] = ignore,
    ) -> DataflowRecord:
        """Register a dataflow; take over its folder with the contents, if there is one.

        Raises:
            CodeDriftedError: If the folder holds tables that other code made.
        """
        with self.exclusion.hold(record.name, "is registered"):
            known = {one.name for one in self.store.dataflows()}
            if record.name in known:
                raise AlreadyExistsError(kind="dataflow", name=record.name)
            if len(known) >= self.most:
                raise DataflowsTooManyError(record.name, most=self.most)
            leaders, shape = choose_leaders(dataflow), shape_of(dataflow)
            first = Description(1, record.document, leaders, shape)
            description, had_one = claim_folder(self.files, record.folder, first)
            generation = self.open_log(record.folder).generation_before(description.version)
            record = replace(record, version=description.version, generation=generation)
            require_planned(record, dataflow, description)
            self.changes.bring_tables(record, dataflow, description)
            self.arrivals.prepare(record, dataflow)
            # `early` is one version behind until the store shows the version's beginning, so that
            # recovery after a crash finishes the registration.
            early = replace(record, version=description.version - (description.begin is not None))
            with self.holds.lock:
                self._record(early, dataflow, description)
                if had_one:
                    try:
                        self._take_over(record, dataflow, description, on_redo)
                    except Exception:
                        # After an error nothing is registered; the next attempt finds the folder.
                        with suppress(CbpError):
                            self.store.delete(record.name)
                        raise
        _log.info("dataflow.registered", dataflow=record.name, taken_over=had_one)
        return record

    def _record(self, record: DataflowRecord, dataflow: Dataflow, description: Description) -> None:
        """Register with the store; if its answer is lost, ask whether it has registered."""
        try:
            self.store.register(record, *stage_wiring(dataflow, description.leaders))
        except Exception:
            try:
                known = self.store.dataflow(record.name).created_at == record.created_at
            except CbpError:
                known = False
            if not known:
                raise

    def change(
        self,
        document: Any,
        dataflow: Dataflow,
        choice: Choice,
        *,
        expected_version: int | None,
        dry_run: bool,
        swap: Swap | None = None,
    ) -> Changed:
        """Change to a checked new version, or return the effects of the change.

        Raises:
            NotFoundError: If no dataflow of this name is registered.
            ChangeRefusedError: With every reason; nothing changed.
            DataflowBusyError: If the runs do not end in time, or another change is under way.
            OperatingError: If the change could not be finished; every tick retries it.
        """
        name = dataflow.name
        record = self.expected(name, expected_version)
        if dry_run:
            return self.changes.plan(record, document, dataflow, choice)
        self.holds.hold(name, "the dataflow is being changed to a new version")
        try:
            if not self.in_flight.wait(name, timeout=self.change_seconds):
                why = f"a run has not ended after {self.change_seconds:.0f} s"
                raise DataflowBusyError(name, why)
            self.framer.forget(name)
            self.answers.forget(name)
            with (
                self.exclusion.hold(name, "is changed"),
                self.punctuations.lock(name),
                self.term.deposing(),
            ):
                record = self.expected(name, expected_version)
                return self.changes.carry_out(record, document, dataflow, choice, swap)
        finally:
            # If the store does not answer now, every tick asks it again.
            self.holds.held[name] = UNFINISHED
            if not self.changes.unfinished(self.store.dataflow(name)):
                self.holds.release(name)

    def recover_all(self) -> None:
        """Recover every dataflow; one that cannot be recovered starts no runs until it is.

        The caller holds the lock of the tick, so that nothing runs before.
        """
        for record in self.store.dataflows():
            self._recover(record.name, nullcontext())

    def finish_late(self) -> None:
        """Try again to finish or recover dataflows; never waits for a lock."""
        held = dict(self.holds.held)  # other threads change it
        late = {name for name, why in held.items() if why in (UNFINISHED, UNRECOVERED)}
        late |= {one.dataflow for one in self.isolation.troubles() if one.doing == ARRIVALS}
        known = {record.name for record in self.store.dataflows()} if late else late
        for name in sorted(late - known):  # deleted meanwhile
            self.holds.held.pop(name, None)
            self.isolation.forget(name)
        for name in sorted(late & known):
            with self.exclusion.attempt(name, "is finished") as free:
                if free and name in self.holds.held:
                    self._recover(name, self.holds.lock)
                elif free:
                    self._recover_arrivals(name)

    def _recover(self, name: str, lock: AbstractContextManager[object]) -> None:
        self.holds.held.setdefault(name, UNRECOVERED)
        self.isolation.attempt(name, RECOVERED, partial(self._recover_in_order, name, lock))

    def _recover_in_order(self, name: str, lock: AbstractContextManager[object]) -> None:
        """Finish a change that a crash interrupted, then bring arrivals back, then redo runs."""
        if not self._finish(self.store.dataflow(name)):
            return
        self._recover_arrivals(name)
        if self.holds.held.get(name) == UNRECOVERED:
            with lock:
                self.priorities.bring(self.store.dataflow(name))
                self.recovery.recover_dataflow(self.store.dataflow(name))
                self.holds.held.pop(name, None)  # a change may have released it meanwhile

    def _take_over(
        self,
        record: DataflowRecord,
        dataflow: Dataflow,
        description: Description,
        on_redo: Callable[[Intention], object],
    ) -> None:
        log = self.open_log(record.folder)
        require_generations(record.folder, self.files, log.generation)
        self.arrivals.recover(record, dataflow)
        log.forget_positions(description.version)
        self.changes.bring_store(record, dataflow, description)
        self.priorities.bring(record)
        self.recovery.recover_dataflow(record, on_redo=on_redo)
        begin = description.begin
        self.recovery.forget_removed(record, None if begin is None else begin.position)

    def expected(self, name: str, version: int | None) -> DataflowRecord:
        """Return a dataflow's record; raises `NotFoundError` or `DataflowBusyError`."""
        record = self.store.dataflow(name)
        if version is not None and record.version != version:
            raise DataflowBusyError(
                name, f"its version is {record.version}, but the request expects version {version}"
            )
        return record

    def _finish(self, record: DataflowRecord) -> bool:
        """Finish a change that a crash interrupted; return whether the dataflow may run."""
        try:
            if self.changes.cut_short(record):
                # First: the start position of the version names them; later they would queue twice.
                self._bring_arrivals(record)
            self.changes.finish(record)
        except LogConflictError as error:
            self.term.depose(error.message)
            return False
        except CbpError as error:
            self.holds.held[record.name] = UNFINISHED
            _log.error("change.not_finished", dataflow=record.name, error=error.as_dict())
            return False
        if self.holds.held.get(record.name) == UNFINISHED:
            self.holds.held[record.name] = UNRECOVERED
        return True

    def _bring_arrivals(self, record: DataflowRecord) -> None:
        # Not `prepare`: an unusable folder of one source must not prevent recovery of the others.
        self.arrivals.recover(record, self.catalog.compiled(record))

    def _recover_arrivals(self, name: str) -> None:
        """Bring arrivals back; if that fails, runs use the arrivals that are already there."""
        bring = partial(self._bring_arrivals, self.store.dataflow(name))
        self.isolation.attempt(name, ARRIVALS, bring)

    def rebuild_missing(
        self,
        register: Callable[[Any], object],
        *,
        only: Collection[str],
        on_dataflow: Callable[[str], None],
    ) -> list[str]:
        """Register dataflows that only folders describe; raises `RebuildIncompleteError`."""
        known = {record.name for record in self.store.dataflows()}
        documents = described(self.files, self.tables_root)
        for name in sorted(set(only) - documents.keys()):
            raise NotFoundError(
                kind="folder with a description of the dataflow",
                name=name,
                hint=f"there are folders of: {listed(sorted(documents)) or 'none'}",
            )
        lost = [n for n in sorted(documents) if n not in known and (not only or n in only)]
        failed: dict[str, CbpError] = {}
        for name in lost:
            on_dataflow(name)
            try:
                register(documents[name])
            except CbpError as error:
                failed[name] = error
        rebuilt = [name for name in lost if name not in failed]
        if failed:
            raise RebuildIncompleteError(rebuilt, failed)
        return rebuilt
