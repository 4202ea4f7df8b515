"""How dataflows come in and change version, while everything else goes on.

What is written and in which order is the business of `change`, `folder` and `recovery`; here
is who has to stand still meanwhile. A dataflow that changes is *held*: it starts nothing,
frames nothing and takes no files in, and it stays held as long as its store is not that of
its newest version. Others are never waited for.

Invariant: whatever `held` names is finished, or shown as the reason why its stages wait
(tests/controller/test_change.py, test_change_crashes.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import structlog

from cbp.engine.files import Files
from cbp.errors import AlreadyExistsError, CbpError, DataflowBusyError, LogConflictError
from cbp.model.change import Choice
from cbp.model.dataflow import Dataflow
from cbp.model.fusion import choose_leaders
from cbp.model.shape import shape_of
from controller.loop.answers import Answers
from controller.loop.catalog import Catalog
from controller.loop.change import Changed, Changes, require_planned, stage_wiring
from controller.loop.description import Description
from controller.loop.exclusion import Exclusion
from controller.loop.folder import claim_folder
from controller.loop.frames import Framer
from controller.loop.punctuations import Punctuations
from controller.loop.recovery import Recovery
from controller.loop.runs import Runs
from controller.loop.tick import Ticker
from controller.store.base import DataflowRecord, Store

__all__ = ["CHANGE_SECONDS", "Arrivals", "Versions"]

CHANGE_SECONDS = 60.0
"""How long a change waits for the runs under way."""

UNFINISHED = "has a new version that is not finished; the log says why"

_log = structlog.get_logger(__name__)


class Arrivals(Protocol):
    """Where increments come from, as far as registration and recovery need it."""

    def prepare(self, record: DataflowRecord, dataflow: Dataflow) -> object:
        """Make ready for arrivals; idempotent."""
        ...

    def recover(self, record: DataflowRecord, dataflow: Dataflow) -> object:
        """Finish arrivals that a crash interrupted; bring back those that the store lost."""
        ...


@dataclass(slots=True)
class Versions:
    """Brings dataflows in, and to new versions; safe to use from several threads.

    Attributes:
        exclusion: Gives the turns to work on a dataflow.
        arrivals: Returns where increments come from; `None`: nothing arrives.
    """

    store: Store
    files: Files
    catalog: Catalog
    changes: Changes
    runs: Runs
    ticker: Ticker
    framer: Framer
    answers: Answers
    punctuations: Punctuations
    recovery: Recovery
    exclusion: Exclusion
    arrivals: Callable[[], Arrivals | None]

    def register(self, record: DataflowRecord, dataflow: Dataflow) -> DataflowRecord:
        """Bring a dataflow in, or take it over with what its folder holds.

        Raises:
            AlreadyExistsError: If the name is taken.
            TableForeignError: If its folder holds anything else.
            CodeDriftedError: If it holds what other code has left.
        """
        with self.exclusion.hold(record.name, "is registered"):
            if any(known.name == record.name for known in self.store.dataflows()):
                raise AlreadyExistsError(kind="dataflow", name=record.name)
            leaders, shape = choose_leaders(dataflow), shape_of(dataflow)
            first = Description(1, record.document, leaders, shape)
            claimed = claim_folder(self.files, record.folder, first)
            found = claimed.description
            generation = self.runs.log(record.folder).generation_before(found.version)
            record = replace(record, version=found.version, generation=generation)
            require_planned(record, dataflow, found)
            self.changes.bring_tables(record, dataflow, found)
            self.prepare(record, dataflow)
            # Behind its version until it stands where that began: a crash is then finished.
            early = replace(record, version=found.version - (found.begin is not None))
            with self.ticker.lock:
                self.store.register(early, *stage_wiring(dataflow, found.leaders))
                if claimed.before:
                    self._take_over(record, dataflow, found)
        _log.info("dataflow.registered", dataflow=record.name, taken_over=claimed.before)
        return record

    def change(
        self,
        document: Any,
        dataflow: Dataflow,
        choice: Choice,
        *,
        expected_version: int | None,
        dry_run: bool,
    ) -> Changed:
        """Let a checked new version take over, or tell what it would do.

        Raises:
            NotFoundError: If no dataflow of this name is registered.
            ChangeRefusedError: With every reason; nothing changed.
            DataflowBusyError: If its runs do not end in time, or another change is under way.
            OperatingError: If it took over and could not be finished: every tick tries again.
        """
        name = dataflow.name
        record = self._expected(name, expected_version)
        if dry_run:
            return self.changes.plan(record, document, dataflow, choice)
        self.ticker.hold(name, "is changed to a new version")
        try:
            if not self.runs.wait(name, timeout=CHANGE_SECONDS):
                why = f"a run has not ended after {CHANGE_SECONDS:.0f} s"
                raise DataflowBusyError(name, why)
            self.framer.forget(name)
            self.answers.forget(name)
            with (
                self.exclusion.hold(name, "is changed"),
                self.punctuations.lock(name),
                self.runs.deposing(),
            ):
                record = self._expected(name, expected_version)
                return self.changes.carry_out(record, document, dataflow, choice)
        finally:
            # Should the store not answer now, every tick asks it again
            self.ticker.held[name] = UNFINISHED
            if not self.changes.unfinished(self.store.dataflow(name)):
                self.ticker.release(name)

    def recover(self, record: DataflowRecord) -> None:
        """Finish a change that a crash interrupted, then arrivals; before runs are redone."""
        if self._finish(record):
            self._recover_arrivals(self.store.dataflow(record.name))

    def finish_late(self) -> None:
        """Try again to finish the changes that could not be; waits for nobody."""
        for name in [name for name, why in self.ticker.held.items() if why == UNFINISHED]:
            with self.exclusion.attempt(name, "is finished") as free:
                if not free:
                    continue
                self.recover(self.store.dataflow(name))
                if name not in self.ticker.held:
                    with self.ticker.lock:
                        self.recovery.recover_dataflow(self.store.dataflow(name))

    def prepare(self, record: DataflowRecord, dataflow: Dataflow) -> None:
        """Make ready for arrivals, if anything arrives; idempotent."""
        arrivals = self.arrivals()
        if arrivals is not None:
            arrivals.prepare(record, dataflow)

    def _take_over(
        self, record: DataflowRecord, dataflow: Dataflow, description: Description
    ) -> None:
        arrivals = self.arrivals()
        if arrivals is not None:
            arrivals.recover(record, dataflow)
        self.runs.log(record.folder).forget_positions(description.version)
        self.changes.bring_store(record, dataflow, description)
        self.recovery.recover_dataflow(record)

    def _expected(self, name: str, version: int | None) -> DataflowRecord:
        record = self.store.dataflow(name)
        if version is not None and record.version != version:
            raise DataflowBusyError(name, f"it is at version {record.version}, not {version}")
        return record

    def _finish(self, record: DataflowRecord) -> bool:
        """Finish what a crash left of a change; tell whether the dataflow may run."""
        try:
            if self.changes.cut_short(record):
                # Where the version began speaks of them: afterwards they would be queued anew.
                self._bring_arrivals(record)
            self.changes.finish(record)
        except LogConflictError as error:
            self.runs.depose(error.message)
            return False
        except CbpError as error:
            self.ticker.held[record.name] = UNFINISHED
            _log.error("change.not_finished", dataflow=record.name, error=error.as_dict())
            return False
        if self.ticker.held.get(record.name) == UNFINISHED:
            del self.ticker.held[record.name]
        return True

    def _bring_arrivals(self, record: DataflowRecord) -> None:
        arrivals = self.arrivals()
        if arrivals is not None:
            dataflow = self.catalog.compiled(record)
            arrivals.prepare(record, dataflow)
            arrivals.recover(record, dataflow)

    def _recover_arrivals(self, record: DataflowRecord) -> None:
        try:
            self._bring_arrivals(record)
        except LogConflictError as error:
            self.runs.depose(error.message)
        except CbpError as error:
            _log.error("arrivals.not_recovered", dataflow=record.name, error=error.as_dict())
