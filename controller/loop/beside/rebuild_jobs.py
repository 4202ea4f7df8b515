"""Rebuild jobs: new tables are built beside the old ones, compared with them, and swapped in.

    start -> building -> ready -> swapping -> swapped          cancel: nothing has changed
                 '- failed: nothing has changed

`build_beside.py` says how. A build runs one run at a time, in the executor of verifications, and
only one build is under way in the service; so runs of dataflows keep their places. It keeps all
retained inputs of its dataflow while it is under way. A job is forgotten with the process, and its
folder is removed at the next start; a swap is not: it is a version.

Guaranteed: one build at a time; a cancelled or failed one has changed nothing
(tests/controller/loop/beside/test_build_beside.py).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal

import structlog

from cbp.engine.commit.intention_log import IntentionLog
from cbp.engine.interface.engine import Engine
from cbp.engine.interface.garbage_collector import Retention
from cbp.engine.storage.failpoints import Faults
from cbp.engine.storage.files import Files
from cbp.errors import (
    CbpError,
    ChangeRefusedError,
    DataflowBusyError,
    InvariantError,
    Mistake,
    NotFoundError,
    RunCancelledError,
)
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.flow.snapshot import Snapshot
from cbp.model.version.code_drift import drift
from cbp.model.version.shape import shape_of
from cbp.model.version.version_change import Choice
from controller.loop.beside.build_beside import (
    Build,
    Return,
    TableDifference,
    hindrances_of_build,
)
from controller.loop.operations.registration import Versions
from controller.loop.operations.version_change import Changed
from controller.loop.reading.snapshots import Snapshots
from controller.loop.records.catalog import Catalog
from controller.loop.records.dataflow_folder import remove_scratch, scratch_folder
from controller.loop.records.description_log import Descriptions
from controller.store.base import DataflowRecord, Store

__all__ = ["RebuildJob", "RebuildJobs"]

KEPT_MAX = 20
"""Jobs that this process remembers."""

READINGS_MAX = 25
"""How often a comparison waits for the dataflow to have applied what the build has."""

_POLL_SECONDS = 0.2

Status = Literal["building", "ready", "swapping", "swapped", "cancelled", "failed"]

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildJob:
    """One rebuild, under way or ended.

    Attributes:
        version: The version that it is to become.
        step: What it does now, in words.
        done, total, unit: How much of the step is done, of how much, and what is counted.
        behind: Increments that have come and are not in the new tables; a swap applies them first.
        tables: How the new tables differ from the present ones; empty until it is ready.
        exact: Whether both were compared after the same input. Otherwise the dataflow did not come
            to rest, and some differences are increments that only one side has applied.
        error: Why it failed, or why its last swap did.
    """

    id: str
    dataflow: str
    version: int
    began_at: datetime
    status: Status = "building"
    step: str = "waits to begin"
    done: int = 0
    total: int = 0
    unit: str = ""
    seconds: float = 0.0
    behind: int = 0
    tables: tuple[TableDifference, ...] = ()
    exact: bool = True
    error: CbpError | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing more happens."""
        return self.status in ("swapped", "cancelled", "failed")


class _CancelledError(Exception):
    """The job was cancelled."""


@dataclass
class _Job:
    """One job; what is shown of it is replaced as a whole."""

    shown: RebuildJob
    document: Mapping[str, Any]
    dataflow: Dataflow
    choice: Choice
    clock: Callable[[], datetime]
    stop: threading.Event = field(default_factory=threading.Event)
    busy: threading.Lock = field(default_factory=threading.Lock)
    build: Build | None = None
    run: str = ""

    def tell(self, step: str, done: int = 0, total: int = 0, unit: str = "") -> None:
        self.show(step=step, done=done, total=total, unit=unit)
        self.check()

    def began(self, run: str) -> None:
        self.run = run  # first: whatever cancels the job either sees the run, or is seen below
        self.check()

    def check(self) -> None:
        if self.stop.is_set():
            raise _CancelledError

    def wait(self, busy: Mapping[str, str]) -> None:
        self.show(step="waits until the dataflow has applied what came", done=0, total=0, unit="")
        if self.stop.wait(_POLL_SECONDS):
            raise _CancelledError

    def show(self, **changed: Any) -> None:
        if not self.shown.ended:
            seconds = (self.clock() - self.shown.began_at).total_seconds()
            self.shown = replace(self.shown, seconds=seconds, **changed)


class RebuildJobs:
    """Builds, compares and swaps; safe to use from several threads.

    Args:
        executor: Carries out builds.
        building: Receives the dataflows that are built beside: their inputs are kept.
        retention: How long the tables before a swap stay.
        compile_: Compiles a document that was registered.
        readings_max: How often a comparison waits for the dataflow to come to rest.
    """

    def __init__(
        self,
        *,
        store: Store,
        engine: Engine,
        catalog: Catalog,
        versions: Versions,
        snapshots: Snapshots,
        open_log: Callable[[str], IntentionLog],
        files: Files,
        tables_root: str,
        random_hex: Callable[[int], str],
        faults: Faults,
        executor: Executor,
        building: set[str],
        retention: Retention,
        compile_: Callable[[Any], Dataflow],
        clock: Callable[[], datetime],
        readings_max: int = READINGS_MAX,
    ) -> None:
        self._store, self._engine, self._catalog = store, engine, catalog
        self._versions, self._snapshots, self._open_log = versions, snapshots, open_log
        self._files, self._root, self._fault = files, tables_root, faults
        self._random_hex, self._executor, self._building = random_hex, executor, building
        self._retention, self._compile, self._clock = retention, compile_, clock
        self._readings_max = readings_max
        self._descriptions = Descriptions(files)
        self._jobs: OrderedDict[str, _Job] = OrderedDict()
        self._lock = threading.Lock()

    def plan(self, document: Mapping[str, Any], dataflow: Dataflow) -> Changed:
        """Return what a swap to this version would begin with; reads only.

        Raises:
            NotFoundError: If there is no such dataflow.
            ChangeRefusedError: With every reason why it cannot be built.
        """
        record = self._store.dataflow(dataflow.name)
        planned = self._planned(record, document, dataflow)
        refused = (*planned.plan.refused, *planned.succession.refused)
        refused += tuple(hindrances_of_build(dataflow))
        if refused:
            raise ChangeRefusedError(dataflow.name, refused)
        return planned

    def start(self, document: Mapping[str, Any], dataflow: Dataflow) -> RebuildJob:
        """Begin to build all tables of a version beside; returns at once.

        Args:
            document: The version; that of the present one builds the same tables again.
            dataflow: The same, checked and compiled.

        Raises:
            NotFoundError: If there is no such dataflow.
            ChangeRefusedError: With every reason why it cannot be built; nothing has begun.
            DataflowBusyError: If a build is under way, of any dataflow.
        """
        name = dataflow.name
        planned = self.plan(document, dataflow)
        with self._lock:
            for job in self._jobs.values():
                if not job.shown.ended:
                    why = f"rebuild {job.shown.id} of {job.shown.dataflow!r} is under way"
                    raise DataflowBusyError(name, f"{why}: swap it in, or cancel it")
            id_ = f"n{self._random_hex(6)}"
            shown = RebuildJob(
                id=id_, dataflow=name, version=planned.version, began_at=self._clock()
            )
            choice = _everything(planned)
            job = _Job(shown, document, dataflow, choice, self._clock)
            self._jobs[id_] = job
            self._building.add(name)
            while len(self._jobs) > KEPT_MAX:
                self._jobs.popitem(last=False)
        self._executor.submit(self._guarded, job, planned.succession.leaders)
        return job.shown

    def show(self, name: str, id_: str) -> RebuildJob:
        """Return one job; raises `NotFoundError`, also after a restart."""
        return self._job(name, id_).shown

    def all(self, name: str) -> list[RebuildJob]:
        """Return the jobs of a dataflow, newest first; raises `NotFoundError`."""
        self._store.dataflow(name)
        with self._lock:
            jobs = [job.shown for job in self._jobs.values() if job.shown.dataflow == name]
        return jobs[::-1]

    def cancel(self, name: str, id_: str) -> RebuildJob:
        """End a job unless it has ended, or is being swapped in; returns at once.

        Raises:
            NotFoundError: If there is no such job.
            DataflowBusyError: If it is being swapped in.
        """
        job = self._job(name, id_)
        if job.shown.status == "swapping":
            raise DataflowBusyError(name, f"rebuild {id_} is being swapped in")
        self._cancel(job)
        return job.shown

    def stop(self) -> None:
        """End the job under way, since the service stops."""
        with self._lock:
            jobs = list(self._jobs.values())
        for job in jobs:
            if not job.shown.ended and job.shown.status != "swapping":
                self._cancel(job)

    def _cancel(self, job: _Job) -> None:
        job.stop.set()
        if job.run:
            self._engine.control.cancel(job.run)
        if job.busy.acquire(blocking=False):  # else the thread that builds sees it
            try:
                self._end(job, "cancelled")
            finally:
                job.busy.release()

    def swap(self, name: str, id_: str) -> RebuildJob:
        """Begin to show the new tables in place of the old ones, all at one time; returns at once.

        What came meanwhile is applied first. No run of the dataflow starts while the rest of it is
        applied, and while the new tables are copied beside the old files. The job fails if another
        version took over, or a roll-back; it is ready again, with an error, if runs did not end in
        time.

        Raises:
            NotFoundError: If there is no such job.
            DataflowBusyError: If it is not ready.
        """
        job = self._job(name, id_)
        if job.shown.status != "ready" or not job.busy.acquire(blocking=False):
            raise DataflowBusyError(name, f"rebuild {id_} is not ready: {job.shown.step}")
        job.show(status="swapping", step="applies what came", error=None)
        self._executor.submit(self._swap, job)
        return job.shown

    def _swap(self, job: _Job) -> None:
        assert job.build is not None, "it is ready"
        build, status = job.build, "swapped"
        try:
            build.feed()
            self._versions.change(
                job.document,
                job.dataflow,
                job.choice,
                expected_version=None,
                dry_run=False,
                swap=build,
            )
        except Exception as cause:  # author's code and engines may raise anything
            newest = self._descriptions.newest(build.record.folder)
            # Once the version is put, every tick finishes it.
            if newest is None or newest.version <= build.record.version:
                lasting = isinstance(cause, ChangeRefusedError)
                status = "failed" if lasting else "ready"
                job.show(error=_error_of(cause))
                _log.warning("rebuild.not_swapped", dataflow=job.shown.dataflow, exc_info=cause)
        finally:
            job.busy.release()
        if status == "ready":
            job.show(status="ready", step="is ready", done=0, total=0, unit="")
        else:
            self._end(job, "swapped" if status == "swapped" else "failed")

    def back(self, name: str) -> Changed:
        """Show the tables from before the last swap again; what came since waits for the old code.

        Raises:
            NotFoundError: If there is no such dataflow, or a file of the old tables is gone.
            ChangeRefusedError: If the present version began by no swap, or the old code is not
                loaded.
            DataflowBusyError: As `Versions.change`.
        """
        record = self._store.dataflow(name)
        description = self._descriptions.of(record)
        begin = description.begin
        if begin is None or begin.swapped is None or begin.back:
            message = f"version {record.version} did not begin with a swap: nothing to go back to"
            raise ChangeRefusedError(name, [Mistake("swap_absent", "rebuild", message)])
        old = self._descriptions.version(record, record.version - 1)
        dataflow = self._compile(old.document)
        mistakes = list(hindrances_of_build(dataflow))
        if old.shape is not None:
            mistakes += drift(old.shape, shape_of(dataflow), code=True)
        if mistakes:
            raise ChangeRefusedError(name, mistakes)
        planned = self._planned(record, old.document, dataflow)
        return self._versions.change(
            old.document,
            dataflow,
            _everything(planned),
            expected_version=record.version,
            dry_run=False,
            swap=Return(
                stood=begin.swapped,
                at_ms=begin.at_ms,
                dataflow=dataflow,
                number=record.version,
                store=self._store,
                engine=self._engine,
                files=self._files,
                open_log=self._open_log,
            ),
        )

    def back_until(self, record: DataflowRecord) -> datetime | None:
        """Return until when the tables before the last swap stay; `None` if there was none."""
        begin = self._descriptions.of(record).begin
        if begin is None or begin.swapped is None or begin.back:
            return None
        until = begin.at_ms / 1000 + self._retention.seconds
        return datetime.fromtimestamp(until, UTC)

    def _planned(
        self, record: DataflowRecord, document: Mapping[str, Any], dataflow: Dataflow
    ) -> Changed:
        present = self._catalog.compiled(record).stages.keys()
        choice = Choice(
            rebuild=frozenset(dataflow.stages.keys() & present),
            retained=frozenset(dataflow.stages.keys() - present),
        )
        return self._versions.changes.plan(record, document, dataflow, choice)

    def _job(self, name: str, id_: str) -> _Job:
        with self._lock:
            job = self._jobs.get(id_)
        if job is None or job.shown.dataflow != name:
            raise NotFoundError(kind="rebuild", name=id_)
        return job

    # one build

    def _guarded(self, job: _Job, leaders: tuple[str, ...]) -> None:
        with job.busy:
            try:
                self._build(job, leaders)
                job.show(status="ready", step="is ready", done=0, total=0, unit="")
                job.check()
            except _CancelledError:
                self._end(job, "cancelled")
            except Exception as cause:  # author's code and engines may raise anything
                if job.stop.is_set() and isinstance(cause, RunCancelledError):
                    self._end(job, "cancelled")
                    return
                job.show(error=_error_of(cause))
                _log.warning("rebuild.failed", dataflow=job.shown.dataflow, exc_info=cause)
                self._end(job, "failed")

    def _build(self, job: _Job, leaders: tuple[str, ...]) -> None:
        name = job.shown.dataflow
        record = self._store.dataflow(name)
        job.check()
        job.build = build = Build(
            job.shown.id,
            record,
            job.dataflow,
            leaders,
            f"{scratch_folder(self._root, job.shown.id)}/1",
            job,
            self._store,
            self._engine,
            self._files,
            self._open_log,
        )
        present = self._catalog.compiled(record)
        for _ in range(self._readings_max):
            build.feed()
            snapshot = self._snapshots.take(name)
            if exact := self._at_rest(record, snapshot, build):
                break
            job.wait({})
        else:
            exact = False
        tables = tuple(build.compare(present, snapshot))
        job.show(tables=tables, exact=exact, behind=build.behind)

    def _at_rest(self, record: DataflowRecord, snapshot: Snapshot, build: Build) -> bool:
        """Tell whether a snapshot shows exactly what the build has applied."""
        position = self._store.position(record.name)
        return not build.behind and all(
            snapshot.epochs[name] + 1 == stage.epoch
            and not any(connector.held for connector in stage.connectors.values())
            for name, stage in position.stages.items()
        )

    def _end(self, job: _Job, status: Status) -> None:
        """End a job, and remove its tables as far as possible; the next start removes the rest."""
        if job.shown.ended:
            return
        steps = {"swapped": "is swapped in", "cancelled": "was cancelled", "failed": "failed"}
        job.show(status=status, step=steps[status], done=0, total=0, unit="", behind=0)
        self._building.discard(job.shown.dataflow)
        if job.build is not None:
            build, job.build = job.build, None
            build.close()
            try:
                folder = scratch_folder(self._root, job.shown.id)
                remove_scratch(self._files, folder, faults=self._fault)
            except CbpError as error:
                _log.warning("rebuild.scratch_left", job=job.shown.id, error=error.as_dict())
        _log.info("rebuild.ended", dataflow=job.shown.dataflow, status=status)


def _error_of(cause: Exception) -> CbpError:
    if isinstance(cause, CbpError):
        return cause
    return InvariantError(f"the rebuild stopped with an unexpected error: {cause!r:.500}")


def _everything(planned: Changed) -> Choice:
    stages = planned.plan.stages
    return Choice(
        rebuild=frozenset(name for name, one in stages.items() if one.state == "rebuilt"),
        retained=frozenset(name for name, one in stages.items() if one.kind == "added"),
    )
