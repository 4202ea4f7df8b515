"""The commit of a run: records a prepared run, publishes what is due, and commits.

    put the record -> publish, if it is due -> commit
        '-- from here on the run cannot fail: it is finished, however often that must be
            tried, and after a crash as well

A run that could not be finished is *parked*: it is kept in `ParkedRuns` and finished later. Its
stage starts nothing until then, and shows the reason. Publications that are due without a run
start here too.

The publisher's lock of the dataflow is taken once for each run, and held from the record's time to
the commit.

Invariants (tests/controller/loop/runs/test_publication.py, test_recovery.py): every step may be
repeated after any crash; after `LogConflictError` this controller no longer publishes anything.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import structlog

from cbp.clock import MACHINE
from cbp.engine.interface.runs import PreparedRun
from cbp.errors import CbpError, DataflowBusyError, LogConflictError
from cbp.model.run.publication import Publication
from controller.loop.leadership.terms import CurrentTerm
from controller.loop.records.correction_log import put_note
from controller.loop.records.dataflow_part import DataflowPart
from controller.loop.runs.in_flight import InFlight, StageId, Work
from controller.loop.runs.isolation import Isolation
from controller.loop.runs.planned_run import ParkedRun, PlannedRun, RecordedRun
from controller.loop.runs.publisher import Publisher
from controller.loop.runs.retry_policy import RetryPolicy, describe_error
from controller.loop.runs.run_counts import RunCounts
from controller.store.base import DataflowRecord, StageRecord

PUBLISHED = "published"

_PUBLICATION = ""
"""Used as the stage's name when the work is a publication of the whole dataflow."""

_log = structlog.get_logger(__name__)


@dataclass(kw_only=True, eq=False)
class RunCommit(DataflowPart):
    """Finishes prepared runs and publishes; every method can be called from any thread."""

    retry: RetryPolicy
    draw: Callable[[], float]
    publisher: Publisher
    in_flight: InFlight
    parked: ParkedRuns
    term: CurrentTerm
    isolation: Isolation
    run_counts: RunCounts
    seconds: Callable[[], float] = MACHINE.seconds

    def begin(self) -> None:
        """Begin a term as leader: forget everything from an earlier term."""
        self.in_flight.begin()
        self.parked.clear()
        self.publisher.forget_all()

    def forget(self, dataflow: str, *, since_ms: int = 0) -> None:
        """Forget a dataflow that was deleted, rolled back or changed."""
        self.in_flight.forget(dataflow)
        self.parked.forget(dataflow)
        self.publisher.forget(dataflow, since_ms=since_ms)

    def record(self, run: PlannedRun, prepared: PreparedRun, begins: Mapping[str, float]) -> bool:
        """Make the record of a prepared run, and finish the run as `finish` does."""
        name = run.record.name
        with self.publisher.lock(name):
            older = self.publisher.before(run.record, run.node.name, run.run.epoch)
            recorded = run.recorded(
                prepared,
                begins,
                prepared_ms=self.publisher.next_ms(name),
                unpublished_from=older[0].epoch if older else run.run.epoch,
                leader_epoch=self.term.leader_epoch,
            )
            return self._finish(recorded)

    def finish(self, run: RecordedRun) -> bool:
        """Record a run, publish due runs, and commit; return whether it is committed.

        On failure the run is parked.
        """
        with self.publisher.lock(run.record.name):
            return self._finish(run)

    def _finish(self, run: RecordedRun) -> bool:
        """Finish a run; the caller holds the publisher's lock."""
        record, stage, intention = run.record, run.node.name, run.intention
        began = self.seconds()
        try:
            failed = run.id in self.parked.all()
            if failed and self.publisher.before(record, stage, intention.epoch):
                # Finish a publication that a failed attempt began: no later record may join it.
                self._publish(record, stage=stage, at_once=True)
            self.open_log(record.folder).put(intention)
            put_note(self.files, record.folder, intention)
            self.publisher.add(record, intention)
            self._publish(record, stage=stage, at_once=failed)
            self.store.commit(intention, finished_at=self.clock())
        except LogConflictError as error:
            self.term.depose(error.message)
            return False
        except Exception as error:  # any failure: the record stays and is redone
            self._park(run, error)
            return False
        self.parked.remove(run.id)
        seconds = self.seconds() - began
        self.run_counts.commit(record.name, intention.figures, seconds)
        _log.info("run.committed", epoch=intention.epoch, **_plain(intention.figures))
        return True

    def finish_all(self, record: DataflowRecord) -> None:
        """Try now to finish and publish all recorded runs of a dataflow that starts nothing."""
        for (name, _), parked in self.parked.all().items():
            if name == record.name:
                self.finish(parked.run)
        self.publish(record)

    def require_finished(self, name: str) -> None:
        """Raise unless all records of a dataflow are committed in the store and published."""
        for (dataflow, stage), parked in self.parked.all().items():
            if dataflow == name:
                raise DataflowBusyError(name, f"its stage {stage!r} {parked.reason}")
        for one in self.store.stages(name):
            self.require_redone(name, one)
        if any(self.publisher.unpublished(name).values()):
            raise DataflowBusyError(
                name, "the results of its runs cannot be published; `cbp status` shows why"
            )

    def require_redone(self, name: str, stage: StageRecord) -> None:
        """Raise if the next epoch of a stage is recorded, but unknown to the store.

        A recovery that fails leaves such records after the parked one.
        """
        log = self.open_log(self.store.dataflow(name).folder)
        if log.read(stage.stage, stage.epoch) is not None:
            why = (
                f"epoch {stage.epoch} of its stage {stage.stage!r} is recorded, but not published "
                "yet"
            )
            raise DataflowBusyError(name, why)

    def start_publishing(self, record: DataflowRecord, *, at_once: bool) -> None:
        """Submit a publication to the executor, if one is due and none is under way."""
        key = record.name, _PUBLICATION
        if key not in self.in_flight.busy() and self._due(record, at_once=at_once) is not None:
            work = Work(key, "", self.clock())
            publish = partial(self.publish, record, at_once=at_once)
            self.in_flight.submit(
                work, lambda: self.isolation.attempt(record.name, PUBLISHED, publish)
            )

    def publish(self, record: DataflowRecord, *, at_once: bool = True) -> None:
        """Publish finished runs; park the stages where that fails."""
        if self.term.deposed:
            return
        try:
            with self.publisher.lock(record.name):
                self._publish(record, at_once=at_once)
        except LogConflictError as error:
            self.term.depose(error.message)

    def _publish(self, record: DataflowRecord, *, stage: str = "", at_once: bool = False) -> None:
        """Publish due runs; raise the failure of `stage`, and park other stages that fail.

        The caller holds the publisher's lock.
        """
        publication = self._due(record, stage=stage, at_once=at_once)
        if publication is None:
            return
        failures = self.publisher.publish(record, publication)
        own = failures.pop(stage, None)
        for name, error in failures.items():
            if isinstance(error, LogConflictError):
                raise error
            node = self.catalog.compiled(record).stages[name]
            newest = self.publisher.newest(record.name, name)
            self._park(RecordedRun(record, node, newest), error)
        if own is not None:
            raise own

    def _due(self, record: DataflowRecord, *, stage: str = "", at_once: bool) -> Publication | None:
        parked = {name for dataflow, name in self.parked.all() if dataflow == record.name}
        return self.publisher.due(record, self.now_ms(), without=parked - {stage}, at_once=at_once)

    def _park(self, run: RecordedRun, error: Exception) -> None:
        known = self.parked.all().get(run.id)
        tries = known.tries + 1 if known is not None and known.run.intention == run.intention else 1
        hopeless = isinstance(error, CbpError) and not error.retryable
        again = self.retry.lasting(tries, self.clock(), self.draw())
        rest, because = None if hopeless else again, describe_error(error)["message"]
        self.parked.put(ParkedRun(run, because, tries, rest))
        _log.warning("run.not_finished", epoch=run.intention.epoch, reason=because, exc_info=error)
        if hopeless:
            self.store.pause_stage(*run.id, because, describe_error(error))


def _plain(figures: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in figures.items()}


class ParkedRuns:
    """The parked runs, at most one for each stage; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._parked: dict[StageId, ParkedRun] = {}

    def all(self) -> dict[StageId, ParkedRun]:
        """Return the parked run of each stage that has one."""
        with self._lock:
            return dict(self._parked)

    def put(self, parked: ParkedRun) -> None:
        """Keep a run to finish later."""
        with self._lock:
            self._parked[parked.run.id] = parked

    def remove(self, stage: StageId) -> None:
        """Drop the parked run of a stage, if any, since it is finished."""
        with self._lock:
            self._parked.pop(stage, None)

    def forget(self, dataflow: str) -> None:
        """Drop the parked runs of a dataflow."""
        with self._lock:
            for key in [key for key in self._parked if key[0] == dataflow]:
                del self._parked[key]

    def clear(self) -> None:
        """Drop all parked runs, since another term begins."""
        with self._lock:
            self._parked.clear()
