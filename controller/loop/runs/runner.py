"""The runner: prepare a run, record it, publish, commit; or fail, and try again.

    intend -> prepare -> put the intention -> publish, if it is due -> commit
               |          '-- from here on the run cannot fail: it is finished, however
               |              often that must be tried, and after a crash as well
               '-- fails: the increment stays queued, the try is counted

An intention that could not be finished is *parked*: it is kept here, shown as the reason why its
stage waits, and finished later. It is never a failed run. A run beyond its time limit is
cancelled, and fails until an operator resumes its stage. A run that gives way to another dataflow
(`cbp.model.schedule.slots`) is cancelled and tried again. A cancelled run that does not stop is
given up (`controller.loop.runs.in_flight`); no record names its files.

Invariants (tests/controller/test_loop.py, test_failures.py, test_recovery.py): a stage has at most
one run under way; no run starts while its stage is parked; after `LogConflictError`
this controller starts nothing any more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any

import structlog

from cbp.engine.commit.intention_log import IntentionLog
from cbp.engine.interface.runs import PreparedRun, RunControl, RunPlan, RunPreparer
from cbp.engine.interface.table_publisher import TablePublisher
from cbp.engine.outputs.compaction import due
from cbp.engine.storage.failpoints import NO_FAULTS, Faults
from cbp.engine.storage.files import Files
from cbp.errors import (
    CbpError,
    CodeNotLoadedError,
    DataflowBusyError,
    ForeignWriterError,
    InvariantError,
    LogConflictError,
    RunCancelledError,
    RunGaveWayError,
    TableForeignError,
    TimeLimitError,
)
from cbp.model.dataflow.dataflow import StageNode
from cbp.model.flow.framing import FrameNote
from cbp.model.flow.increment import Increment
from cbp.model.run.intention import Intention, RunStatus
from cbp.model.run.publication import Publication
from cbp.model.schedule.backoff import Rest
from cbp.model.schedule.slots import Taken
from controller.loop.records.catalog import Catalog
from controller.loop.records.correction_log import put_note
from controller.loop.records.description_log import Descriptions
from controller.loop.runs.in_flight import StageId, UnderWay, Work
from controller.loop.runs.isolation import Isolation
from controller.loop.runs.lane_counts import LaneCounts
from controller.loop.runs.output_retention import Keeping
from controller.loop.runs.publisher import Publisher
from controller.loop.runs.retry import (
    DEATHS_AT_ONCE,
    DEATHS_MAX,
    DIED,
    INTERRUPTED_CODE,
    RetryPolicy,
    code_of,
    counted,
    deaths,
    lasted,
    lasts,
    operating,
)
from controller.store.base import DataflowRecord, RunRecord, StageRecord, Store

__all__ = ["INTERRUPTED", "PUBLISHED", "Job", "Parked", "Runs", "StageId"]

INTERRUPTED: Mapping[str, Any] = {
    "error_code": INTERRUPTED_CODE,
    "message": "the service stopped while this run was under way; it runs again",
    "details": {},
}
PUBLISHED = "published"

_PUBLICATION = ""
"""Used as the stage's name when the work is a publication of the whole dataflow."""

_TRIES_SEEN = 100
"""How many failed tries in a row are read: more would change neither a pause nor a decision."""

_ENDS = (Exception, SystemExit, KeyboardInterrupt, GeneratorExit)
"""What author's code may raise in a thread of this process; none of these ends the process."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Job:
    """A run that is to be started.

    Attributes:
        stage: The stage as it was when the run was decided.
        memo: The Runnable's new memo.
        dropped: Increments that this run removes although no run ever read them.
        gave_way: How often runs of its epoch gave way before.
        frames: Input -> notes on the frames that the run reads.
    """

    record: DataflowRecord
    node: StageNode
    stage: StageRecord
    run: RunRecord
    plan: RunPlan
    memo: Any = None
    dropped: tuple[Increment, ...] = ()
    gave_way: int = 0
    frames: Mapping[str, tuple[FrameNote, ...]] = field(default_factory=dict)

    @property
    def id(self) -> StageId:
        """The dataflow and the stage."""
        return self.record.name, self.node.name


@dataclass(frozen=True, slots=True)
class Parked:
    """A prepared run that could not be finished yet.

    Attributes:
        rest: The pause before the next try; `None`: not until the stage is resumed.
        tries: How often finishing it failed.
    """

    record: DataflowRecord
    node: StageNode
    intention: Intention
    because: str
    tries: int
    rest: Rest | None

    @property
    def reason(self) -> str:
        """Why the stage waits, in words."""
        when = "" if self.rest is None else f", tries again at {self.rest.end:%H:%M:%S} UTC"
        return f"finishes epoch {self.intention.epoch}{when}: {self.because}"


class Runs:
    """Executes runs on an executor; every method may be called from any thread."""

    def __init__(
        self,
        *,
        store: Store,
        preparer: RunPreparer,
        control: RunControl,
        tables: TablePublisher,
        files: Files,
        clock: Callable[[], datetime],
        retry: RetryPolicy,
        executor: Executor,
        catalog: Catalog,
        wake: Callable[[], None],
        isolation: Isolation,
        draw: Callable[[], float],
        faults: Faults = NO_FAULTS,
        seconds_max: float = 0.0,
    ) -> None:
        self._store, self._preparer, self._files, self._clock = store, preparer, files, clock
        self._retry, self._fault, self._seconds_max = retry, faults, seconds_max
        self._catalog, self._isolation, self._draw = catalog, isolation, draw
        self._under_way = UnderWay(
            executor=executor,
            clock=clock,
            wake=wake,
            stop=lambda run: control.cancel(run),
            isolation=isolation,
        )
        self._lock = threading.Lock()
        self._parked: dict[StageId, Parked] = {}
        self._stopping = False
        self.publisher = Publisher(
            tables=tables, catalog=catalog, log=self.log, begins=Descriptions(files).begins
        )
        self.deposed, self.leader_epoch = "", 0
        self.keeping = Keeping(catalog, self.log)
        self.lane_counts = LaneCounts()

    def log(self, folder: str) -> IntentionLog:
        """Return the intention log of a dataflow's folder."""
        return IntentionLog(folder, self._files, self._fault)

    def busy(self) -> dict[StageId, str]:
        """Return the stages that have a run under way, with the run's id."""
        return self._under_way.busy()

    def taken(self) -> dict[StageId, Taken]:
        """Return the stages that have a run under way, with the run as the scheduler sees it."""
        return self._under_way.taken()

    def parked(self) -> dict[StageId, Parked]:
        """Return the stages whose last run waits to be finished."""
        with self._lock:
            return dict(self._parked)

    # starting and stopping

    def start(self, job: Job) -> None:
        """Record a run as intended and hand it to the executor."""
        self._store.intend(job.run)
        own = job.node.run_seconds_max
        limit = self._seconds_max if own is None else own
        work = Work(job.id, job.run.id, self._clock(), seconds_max=limit, gave_way=job.gave_way)
        work.give_up = lambda: self._failed(job, work, RunCancelledError(work.run))
        self._under_way.submit(work, lambda: self._run(job, work))

    def redo(self, record: DataflowRecord, node: StageNode, intention: Intention) -> None:
        """Hand a recorded run to the executor, to be published and committed."""
        key = record.name, node.name
        work = Work(key, intention.run, self._clock())
        self._under_way.submit(work, lambda: self.finish(record, node, intention))

    def cancel(self, run: str) -> None:
        """Ask a run to stop, whether it still waits for a thread or is being prepared."""
        self._under_way.cancel(run)

    def give_way(self, run: str, to: str) -> None:
        """Ask a run to give way to dataflow `to`; its epoch runs again."""
        self._under_way.give_way(run, to)

    def asked_to_end(self) -> int:
        """Return how many pieces of work were asked to stop so far, for whatever reason."""
        return self._under_way.asked_to_end

    def gave_way(self, stage: StageRecord) -> int:
        """Return how often a stage's next epoch gave way since the stage was last resumed."""
        return sum(
            run.epoch == stage.epoch and code_of(run) == RunGaveWayError.code
            for run in self._failed_tries(stage)
        )

    def slots(self) -> int:
        """Return how many tasks the engine runs at a time."""
        return self._preparer.limits().slots

    def keep_time(self) -> None:
        """Cancel runs beyond their time limit; give up cancelled runs that do not stop."""
        self._under_way.keep_time()

    def stop(self) -> None:
        """From now on count cancelled runs as interrupted, since no operator cancelled them."""
        self._stopping = True

    def depose(self, reason: str) -> None:
        """Start nothing any more: another controller leads."""
        self.deposed = reason
        _log.error("controller.deposed", reason=reason)

    def follow(self, reason: str) -> None:
        """Start nothing: another controller leads, and that is no error."""
        self.deposed = reason

    def begin(self, leader_epoch: int) -> None:
        """Begin a term as leader; drop everything kept of an earlier term.

        Args:
            leader_epoch: Every record of this term carries it.
        """
        self._under_way.begin()
        with self._lock:
            self._parked.clear()
        self.publisher.forget_all()
        self._stopping, self.deposed, self.leader_epoch = False, "", leader_epoch

    def wait(self, dataflow: str | None = None, *, timeout: float | None = None) -> bool:
        """Wait for the runs of one or all dataflows; return whether all have ended."""
        return self._under_way.wait(dataflow, timeout=timeout)

    def forget(self, dataflow: str, *, since_ms: int = 0) -> None:
        """Drop what is kept about a dataflow that was deleted, rolled back or changed.

        Args:
            dataflow: The name of the dataflow.
            since_ms: Time of the amendment; see `Publisher.forget`.
        """
        self._under_way.forget(dataflow)
        with self._lock:
            for key in [key for key in self._parked if key[0] == dataflow]:
                del self._parked[key]
        self.publisher.forget(dataflow, since_ms=since_ms)

    # one run

    def _run(self, job: Job, work: Work) -> None:
        _log.info("run.started", epoch=job.run.epoch, attempt=job.run.attempt)
        try:
            prepared = self._prepare(job, work)
        except _ENDS as error:  # author's code and engines may raise anything
            if self._under_way.record(work):
                self._failed(job, work, _ordinary(error))
            return
        if not self._under_way.record(work):
            _log.warning("run.came_too_late", epoch=job.run.epoch)
            return
        with self.publisher.lock(job.record.name):
            self.finish(job.record, job.node, self._intention(job, prepared))

    def _prepare(self, job: Job, work: Work) -> PreparedRun:
        if work.cancelled_at is not None:
            raise RunCancelledError(job.run.id)
        plan = job.plan
        if due(plan.epoch):
            plan = replace(plan, kept=self.keeping.of(job.record, (plan.node, *plan.fused)))
        return self._preparer.prepare(plan)

    def _intention(self, job: Job, prepared: PreparedRun) -> Intention:
        return Intention(
            dataflow=job.record.name,
            stage=job.node.name,
            epoch=job.run.epoch,
            run=job.run.id,
            prepared_ms=self.publisher.next_ms(job.record.name, self._now_ms()),
            read={name: tuple(indexes) for name, indexes in job.run.read.items()},
            remove={name: tuple(indexes) for name, indexes in job.run.remove.items()},
            outputs=prepared.outputs,
            changes=prepared.changes,
            dataflow_version=job.record.version,
            unpublished_from=self._unpublished_from(job),
            leader_epoch=self.leader_epoch,
            memo=job.memo,
            figures={**prepared.figures, **_dropped(job.dropped)},
            generation=job.record.generation,
            frames=job.frames,
            codes={one.name: one.translator.code.text for one in (job.node, *job.plan.fused)},
        )

    def _unpublished_from(self, job: Job) -> int:
        before = self.publisher.before(job.record, job.node.name, job.run.epoch)
        return before[0].epoch if before else job.run.epoch

    def _now_ms(self) -> int:
        return int(self._clock().timestamp() * 1000)

    def finish(self, record: DataflowRecord, node: StageNode, intention: Intention) -> bool:
        """Put an intention, publish what is due, and commit; park the intention on failure.

        Every step may be repeated after any crash.

        Returns:
            Whether it is committed.
        """
        key = record.name, node.name
        try:
            with self.publisher.lock(record.name):
                self.publisher.before(record, node.name, intention.epoch)
                self.log(record.folder).put(intention)
                put_note(self._files, record.folder, intention)
                self.publisher.add(intention)
                self._publish(record, stage=node.name)
                self._store.commit(intention, finished_at=self._clock())
        except LogConflictError as error:
            self.depose(error.message)
            return False
        except Exception as error:  # any failure: the record stays and is redone
            self._park(record, node, intention, error)
            return False
        with self._lock:
            self._parked.pop(key, None)
        self.lane_counts.add(record.name, intention.figures)
        _log.info("run.committed", epoch=intention.epoch, **_plain(intention.figures))
        return True

    @contextmanager
    def deposing(self) -> Iterator[None]:
        """Stop starting runs if the block finds a record of another controller.

        Raises:
            LogConflictError: Any such conflict in the block is raised again.
        """
        try:
            yield
        except LogConflictError as error:
            self.depose(error.message)
            raise

    def finish_all(self, record: DataflowRecord) -> None:
        """Try now to finish and publish everything recorded of a dataflow that starts nothing."""
        for (name, _), parked in self.parked().items():
            if name == record.name:
                self.finish(parked.record, parked.node, parked.intention)
        self.publish(record)

    def require_finished(self, name: str) -> None:
        """Raise unless all records of a dataflow are committed in the store and published.

        Raises:
            DataflowBusyError: With what is missing.
        """
        for (dataflow, stage), parked in self.parked().items():
            if dataflow == name:
                raise DataflowBusyError(name, f"its stage {stage!r} {parked.reason}")
        if any(self.publisher.unpublished(name).values()):
            raise DataflowBusyError(name, "what its runs made cannot be published; see its stages")

    # publication

    def start_publishing(self, record: DataflowRecord, *, at_once: bool) -> None:
        """Submit a publication to the executor, if one is due and none is under way."""
        key = record.name, _PUBLICATION
        if key not in self.busy() and self._due(record, at_once=at_once) is not None:
            work = Work(key, "", self._clock())
            publish = partial(self.publish, record, at_once=at_once)
            self._under_way.submit(
                work, lambda: self._isolation.attempt(record.name, PUBLISHED, publish)
            )

    def publish(self, record: DataflowRecord, *, at_once: bool = True) -> None:
        """Publish what is finished; park the stages where that fails."""
        if self.deposed:
            return
        try:
            self._publish(record, at_once=at_once)
        except LogConflictError as error:
            self.depose(error.message)

    def _publish(self, record: DataflowRecord, *, stage: str = "", at_once: bool = False) -> None:
        """Publish what is due; raise the failure of `stage`, park other stages that fail."""
        with self.publisher.lock(record.name):
            publication = self._due(record, stage=stage, at_once=at_once)
            if publication is None:
                return
            failures = self.publisher.publish(record, publication)
            for name, error in failures.items():
                if name == stage or isinstance(error, LogConflictError):
                    raise error
                node = self._catalog.compiled(record).stages[name]
                self._park(record, node, self.publisher.newest(record.name, name), error)

    def _due(self, record: DataflowRecord, *, stage: str = "", at_once: bool) -> Publication | None:
        parked = {name for dataflow, name in self.parked() if dataflow == record.name}
        return self.publisher.due(record, self._now_ms(), without=parked - {stage}, at_once=at_once)

    def not_before(self, stage: StageRecord) -> datetime | None:
        """Return when a stage may run again after a failure; `None`: at once."""
        return self._retry.not_before(stage.retry_at, stage.failures, self._clock())

    def park(self, record: DataflowRecord, node: StageNode, parked: Parked) -> None:
        """Keep an intention that is to be finished later."""
        with self._lock:
            self._parked[record.name, node.name] = parked

    def _park(
        self, record: DataflowRecord, node: StageNode, intention: Intention, error: Exception
    ) -> None:
        known = self.parked().get((record.name, node.name))
        tries = 1 if known is None or known.intention != intention else known.tries + 1
        hopeless = isinstance(error, CbpError) and not error.retryable
        again = self._retry.lasting(tries, self._clock(), self._draw())
        rest, because = None if hopeless else again, _described(error)["message"]
        self.park(record, node, Parked(record, node, intention, because, tries, rest))
        _log.warning("run.parked", epoch=intention.epoch, reason=because, exc_info=error)
        if hopeless:
            self._store.pause_stage(record.name, node.name, because, _described(error))

    # failed tries

    def _failed(self, job: Job, work: Work, error: Exception) -> None:
        now = self._clock()
        if work.late and isinstance(error, RunCancelledError):
            error = TimeLimitError(f"run {work.run} of {job.node.name!r}", work.seconds_max)
        if isinstance(error, RunCancelledError) and self._stopping:
            self.interrupt(job.run)
            return
        if isinstance(error, RunCancelledError) and work.gives_way_to:
            self._gave_way(job, work, now)
            return
        error, failed = operating(error), self._failed_tries(job.stage)
        if lasts(error) and not isinstance(error, RunCancelledError):
            tries, pause = 1 + lasted(failed), ""
            retry_at: datetime | None = self._retry.lasting(tries, now, self._draw()).end
        else:
            tries = 1 + counted(failed)
            pause = self._pause_reason(job, error, tries)
            retry_at = None if pause else self._retry.retry_at(tries, now)
        described = _described(error)
        _log.warning("run.failed", tries=tries, paused=bool(pause), error=described, exc_info=error)
        self._store.fail(job.run.id, described, finished_at=now, retry_at=retry_at, pause=pause)

    def _gave_way(self, job: Job, work: Work, now: datetime) -> None:
        """Settle a run that gave way; its epoch may run again at once, in the narrow place."""
        seconds = (now - work.since).total_seconds()
        told = RunGaveWayError(
            work.run, stage=job.node.name, seconds=seconds, to=work.gives_way_to
        ).as_dict()
        _log.warning("run.gave_way", error=told)
        self._store.fail(job.run.id, told, finished_at=now, retry_at=now)

    def interrupt(self, run: RunRecord) -> None:
        """Settle a run that ended without a result because of a request, such as a stop."""
        self._store.fail(run.id, INTERRUPTED, finished_at=self._clock(), retry_at=None)
        _log.info("run.interrupted", dataflow=run.dataflow, stage=run.stage, run=run.id)

    def bury(self, run: RunRecord) -> None:
        """Settle a run during which the service died; after repeated deaths its stage stops."""
        stages = self._store.stages(run.dataflow)
        stage = next((stage for stage in stages if stage.stage == run.stage), None)
        died = 1 + (deaths(self._failed_tries(stage)) if stage is not None else 0)
        now, pause = self._clock(), ""
        if died >= DEATHS_MAX:
            pause = f"the service died {died} times in a row under epoch {run.epoch}"
        retry_at = None
        if died > DEATHS_AT_ONCE and not pause:
            retry_at = self._retry.lasting(died - DEATHS_AT_ONCE, now, self._draw()).end
        told = {**INTERRUPTED, "details": {DIED: True}}
        self._store.fail(run.id, told, finished_at=now, retry_at=retry_at, pause=pause)
        _log.info("run.interrupted", dataflow=run.dataflow, stage=run.stage, run=run.id, died=died)

    def _pause_reason(self, job: Job, error: Exception, tries: int) -> str:
        message = _described(error)["message"]
        if isinstance(error, RunCancelledError):
            return f"run {job.run.id} was cancelled; resume to run epoch {job.run.epoch} again"
        # A run that hangs would hang again; a broken invariant would be broken again.
        hopeless = (
            InvariantError
            | ForeignWriterError
            | TableForeignError
            | TimeLimitError
            | CodeNotLoadedError
        )
        if isinstance(error, hopeless):
            return f"epoch {job.run.epoch} failed: {message}"
        if tries >= self._retry.failures_max:
            return f"epoch {job.run.epoch} failed {tries} times: {message}"
        return ""

    def _failed_tries(self, stage: StageRecord) -> Sequence[RunRecord]:
        """Return the failed tries in a row of a stage, newest first."""
        if stage.failures == 0:
            return ()
        found = self._store.runs(
            stage.dataflow,
            stage=stage.stage,
            status=RunStatus.FAILED,
            limit=min(stage.failures, _TRIES_SEEN),
        )
        return found.items


def _ordinary(error: BaseException) -> Exception:
    """Convert what ended a thread to an ordinary exception: it ends the run only."""
    if isinstance(error, Exception):
        return error
    ended = RuntimeError(f"the author's code ended its thread: {error!r}")
    ended.__cause__ = error
    return ended


def _described(error: Exception) -> dict[str, Any]:
    """Return an error in the form that a run stores."""
    if isinstance(error, CbpError):
        return error.as_dict()
    message = f"{type(error).__name__}: {error}"
    return {"error_code": "unexpected", "message": message, "details": {}}


def _dropped(increments: Sequence[Increment]) -> dict[str, float]:
    """Return the figures of increments removed unread; empty if there are none."""
    if not increments:
        return {}
    records = sum(increment.records for increment in increments)
    return {"increments_dropped": len(increments), "records_dropped": records}


def _plain(figures: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in figures.items()}
