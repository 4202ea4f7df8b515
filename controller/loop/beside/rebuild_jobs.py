"""Rebuild jobs: new tables are built beside the old ones, compared with them, and swapped in.

`build_beside.py` says how. A build runs one run at a time, in the executor of verifications, and
only one build is under way in the service; so runs of dataflows keep their places. It keeps all
retained inputs of its dataflow while it is under way.

What was asked for is kept in the dataflow's folder until the job has ended (`build_order.py`). So
the next leader builds anew what a killed one had begun, under the same id, and swaps it in if that
was asked for. Tables of an earlier try are removed at its start.

Guaranteed: one build at a time; a cancelled or failed one has changed nothing; one that was
accepted ends, however often the service is killed
(tests/controller/loop/beside/test_build_beside.py, test_build_after_restart.py).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import structlog

from cbp.engine.commit.intention_log import IntentionLog
from cbp.engine.interface.engine import Engine
from cbp.engine.interface.garbage_collector import Retention
from cbp.engine.interface.runs import needs_spark
from cbp.engine.storage.failpoints import Faults
from cbp.engine.storage.files import Files
from cbp.errors import (
    CbpError,
    ChangeRefusedError,
    DataflowBusyError,
    EngineStartingError,
    InvariantError,
    Mistake,
    NotFoundError,
    RunCancelledError,
)
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.flow.snapshot import Snapshot
from cbp.model.schedule.quiescence import left_to_do
from cbp.model.version.code_drift import drift
from cbp.model.version.shape import shape_of
from cbp.model.version.version_change import Choice
from controller.loop.beside.build_beside import Build, Return, hindrances_of_build
from controller.loop.beside.build_order import BuildOrder, read_order, remove_order, write_order
from controller.loop.beside.build_plans import BuildPlans, everything_of
from controller.loop.beside.rebuild_job import (
    Job,
    JobCancelledError,
    Planned,
    RebuildJob,
    Status,
)
from controller.loop.operations.registration import Versions
from controller.loop.operations.version_change import Changed
from controller.loop.reading.snapshots import Snapshots
from controller.loop.records.catalog import Catalog
from controller.loop.records.dataflow_folder import remove_scratch, scratch_folder
from controller.loop.records.description_log import Descriptions
from controller.loop.runs.dropped_files import DroppedFiles
from controller.loop.tick.holds import Holds
from controller.store.base import DataflowRecord, Store

KEPT_MAX = 20
"""Jobs that this process remembers."""

READINGS_MAX = 25
"""How often a comparison waits for the dataflow to have applied what the build has."""

_log = structlog.get_logger(__name__)

_OTHER_CODE = "save the code of version {} again first: other code is loaded"


class RebuildJobs:
    """Builds, compares and swaps; safe to use from several threads.

    Args:
        executor: Carries out builds.
        building: Receives the dataflows that are built beside: their inputs are kept.
        holds: Which dataflows start nothing; no build begins again meanwhile.
        build_plans: Says what can be built.
        retention: How long the tables before a swap stay.
        compile_: Compiles a document by the code that is on disk now.
        settle_seconds: How long one waits before it looks again whether the dataflow is at rest.
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
        holds: Holds,
        dropped_files: DroppedFiles,
        build_plans: BuildPlans,
        retention: Retention,
        compile_: Callable[[Any], Dataflow],
        clock: Callable[[], datetime],
        settle_seconds: float,
        readings_max: int = READINGS_MAX,
    ) -> None:
        self._store, self._engine, self._catalog = store, engine, catalog
        self._versions, self._snapshots, self._open_log = versions, snapshots, open_log
        self._files, self._root, self._fault = files, tables_root, faults
        self._random_hex, self._executor, self._building = random_hex, executor, building
        self._retention, self._compile, self._clock = retention, compile_, clock
        self._readings_max, self._holds = readings_max, holds
        self._dropped_files, self._plans = dropped_files, build_plans
        self._descriptions = Descriptions(files)
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._left: list[Job] = []
        self._lock = threading.Lock()
        self._settle_seconds = settle_seconds

    def plan(
        self, document: Mapping[str, Any], dataflow: Dataflow, choice: Choice | None = None
    ) -> Changed:
        """Return what a swap would begin with, and why it is refused; see `BuildPlans.plan`."""
        return self._plans.plan(document, dataflow, choice)

    def start(
        self,
        document: Mapping[str, Any],
        dataflow: Dataflow,
        *,
        choice: Choice | None = None,
        expected_version: int | None = None,
        seeds: Mapping[str, str] = MappingProxyType({}),
        swaps: bool = False,
    ) -> RebuildJob:
        """Begin to build all tables of a version beside; durable once this returns, at once.

        Args:
            document: The document of the version; the present one builds the same tables again.
            dataflow: The dataflow of the document, checked and compiled.
            choice: As in `plan`.
            expected_version: Refuse unless the dataflow is at this version now.
            seeds: As in `plan`.
            swaps: Swap the tables in as soon as they are ready.

        Raises:
            NotFoundError: If there is no such dataflow.
            ChangeRefusedError: With every reason why it cannot be built; nothing has begun.
            DataflowBusyError: If a build is under way, of any dataflow, or the version differs.
        """
        name = dataflow.name
        record = self._versions.expected(name, expected_version)
        planned = self._plans.plan(document, dataflow, choice, seeds)
        planned.require_allowed()
        order = BuildOrder(
            id=f"n{self._random_hex(6)}",
            version=planned.version,
            generation=record.generation,
            document=document,
            shape=shape_of(dataflow),
            began_at=self._clock(),
            seeds=seeds,
            swaps=swaps,
        )
        with self._lock:
            for job in self._jobs.values():
                if not job.shown.ended:
                    why = f"rebuild {job.shown.id} of {job.shown.dataflow!r} is under way"
                    raise DataflowBusyError(name, f"{why}: swap it in, or cancel it")
            job = self._add(name, record.folder, order)
        job.planned = Planned(dataflow, everything_of(planned), planned.succession.leaders)
        try:
            write_order(self._files, record.folder, order)
        except CbpError:
            self._end(job, "failed")
            raise
        self._executor.submit(self._carry_out, job)
        return job.shown

    def start_present(
        self, name: str, seeds: Mapping[str, str] = MappingProxyType({})
    ) -> RebuildJob:
        """Begin to build the present version anew, by the code that it was registered with.

        Args:
            name: Name of the dataflow.
            seeds: As in `plan`.

        Raises:
            CodeDriftedError: If that code is not loaded: what is on disk is registered first.
            EngineStartingError: If it needs Spark, which is starting.
            Otherwise as `start`.
        """
        record = self._store.dataflow(name)
        self._catalog.require_same(record)
        dataflow = self._catalog.compiled(record)
        waits_for = self._engine.control.waits_for()
        if waits_for and needs_spark(dataflow.stages.values()):
            raise EngineStartingError(waits_for)
        return self.start(record.document, dataflow, seeds=seeds)

    def begin(self) -> None:
        """Find the builds that an earlier process had begun: `go_on` carries them out.

        Called once this instance leads, before anything else changes a dataflow. What this process
        built in an earlier term is given up.
        """
        self.stop()
        for record in self._store.dataflows():
            order = read_order(self._files, record.folder)
            if order is None:
                continue
            with self._lock:
                job = self._add(record.name, record.folder, order)
                self._left.append(job)
            job.show(step="begins anew, since the service was restarted")
            _log.info("rebuild.begins_anew", dataflow=record.name, rebuild=order.id)

    def go_on(self) -> None:
        """Carry out what `begin` found, as far as its dataflows are recovered; never waits."""
        if not self._left or self._engine.control.waits_for():
            return
        held = self._holds.all()
        for job in [one for one in self._left if one.shown.dataflow not in held]:
            self._left.remove(job)
            if not job.shown.ended:
                self._executor.submit(self._carry_out, job)

    def _add(self, name: str, folder: str, order: BuildOrder) -> Job:
        shown = RebuildJob(
            id=order.id, dataflow=name, version=order.version, began_at=order.began_at
        )
        job = self._jobs[order.id] = Job(shown, order, folder, self._clock, self._settle_seconds)
        self._building.add(name)
        while len(self._jobs) > KEPT_MAX:
            self._jobs.popitem(last=False)
        return job

    def show(self, name: str, id_: str) -> RebuildJob:
        """Return one job; raises `NotFoundError`, also if it ended before a restart."""
        return self._job(name, id_).shown

    def all(self, name: str) -> list[RebuildJob]:
        """Return the jobs of a dataflow, newest first; raises `NotFoundError`."""
        self._store.dataflow(name)
        with self._lock:
            jobs = [job.shown for job in self._jobs.values() if job.shown.dataflow == name]
        return jobs[::-1]

    def cancel(self, name: str, id_: str) -> RebuildJob:
        """End a job unless it has ended, or is being swapped in; durable, and returns at once.

        Raises:
            NotFoundError: If there is no such job.
            DataflowBusyError: If it is being swapped in.
        """
        job = self._job(name, id_)
        if job.shown.status == "swapping":
            raise DataflowBusyError(name, f"rebuild {id_} is being swapped in")
        if not job.shown.ended:
            remove_order(self._files, job.folder)
            self._cancel(job)
        return job.shown

    def stop(self) -> None:
        """Stop the job under way, since the service stops; the next leader begins it anew."""
        with self._lock:
            jobs = list(self._jobs.values())
            self._left.clear()
        for job in jobs:
            if not job.shown.ended:
                job.kept = True
                self._cancel(job)

    def _cancel(self, job: Job) -> None:
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
        time. Durable once this returns: the next leader swaps if this one is killed.

        Raises:
            NotFoundError: If there is no such job.
            DataflowBusyError: If it is not ready.
        """
        job = self._job(name, id_)
        if job.shown.status != "ready" or not job.busy.acquire(blocking=False):
            raise DataflowBusyError(name, f"rebuild {id_} is not ready: {job.shown.step}")
        try:
            self._ask_for_swap(job, swaps=True)
        except CbpError:
            job.busy.release()
            raise
        job.show(status="swapping", step="applies what came", error=None)
        self._executor.submit(self._swap, job)
        return job.shown

    def _ask_for_swap(self, job: Job, *, swaps: bool) -> None:
        job.order = replace(job.order, swaps=swaps)
        write_order(self._files, job.folder, job.order)

    def _swap(self, job: Job) -> None:
        assert job.build is not None, "it is ready"
        assert job.planned is not None, "it was built"
        build = job.build
        status: Status = "swapped"
        try:
            build.feed()
            self._versions.change(
                job.order.document,
                job.planned.dataflow,
                job.planned.choice,
                expected_version=None,
                dry_run=False,
                swap=build,
            )
        except Exception as cause:  # author's code and engines may raise anything
            newest = self._descriptions.newest(build.record.folder)
            # Once the version is put, every tick finishes it.
            if newest is None or newest.version <= build.record.version:
                lasting = isinstance(cause, ChangeRefusedError)
                status = "failed" if lasting else "cancelled" if job.kept else "ready"
                job.show(error=_error_of(cause))
                _log.warning("rebuild.not_swapped", dataflow=job.shown.dataflow, exc_info=cause)
        finally:
            job.busy.release()
        if status != "ready":
            self._end(job, status)
            return
        try:
            self._ask_for_swap(job, swaps=False)
        except CbpError as error:  # it swaps by itself after a restart, as was asked for
            _log.warning("rebuild.order_left", job=job.shown.id, error=error.as_dict())
        job.show(status="ready", step="is ready", done=0, total=0, unit="")

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
            mistakes += (
                replace(one, message=f"{_OTHER_CODE.format(record.version - 1)} ({one.message})")
                for one in drift(old.shape, shape_of(dataflow), code=True)
            )
        if mistakes:
            raise ChangeRefusedError(name, mistakes)
        planned = self._plans.everything(record, old.document, dataflow)
        return self._versions.change(
            old.document,
            dataflow,
            everything_of(planned),
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

    def _job(self, name: str, id_: str) -> Job:
        with self._lock:
            job = self._jobs.get(id_)
        if job is None or job.shown.dataflow != name:
            raise NotFoundError(kind="rebuild", name=id_)
        return job

    # one build

    def _carry_out(self, job: Job) -> None:
        """Build, and swap if that was asked for; in a thread of its own."""
        with job.busy:
            try:
                if self._is_done(job):
                    self._end(job, "swapped")
                    return
                self._build(job, job.planned or self._plans.again(job.shown.dataflow, job.order))
                if not job.order.swaps:
                    job.show(status="ready", step="is ready", done=0, total=0, unit="")
                job.check()
            except JobCancelledError:
                self._end(job, "cancelled")
            except Exception as cause:  # author's code and engines may raise anything
                if job.stop.is_set() and isinstance(cause, RunCancelledError):
                    self._end(job, "cancelled")
                    return
                job.show(error=_error_of(cause))
                _log.warning("rebuild.failed", dataflow=job.shown.dataflow, exc_info=cause)
                self._end(job, "failed")
        if job.order.swaps and not job.shown.ended and job.busy.acquire(blocking=False):
            job.show(status="swapping", step="applies what came", error=None)
            self._swap(job)

    def _is_done(self, job: Job) -> bool:
        return job.order.became(self._descriptions.of(self._store.dataflow(job.shown.dataflow)))

    def _build(self, job: Job, planned: Planned) -> None:
        name, job.planned = job.shown.dataflow, planned
        record = self._store.dataflow(name)
        job.check()
        # A name of its own for each try: what an earlier one left may be removed meanwhile.
        job.scratch = scratch_folder(self._root, f"{job.shown.id}{self._random_hex(3)}")
        job.build = build = Build(
            job.shown.id,
            record,
            planned.dataflow,
            planned.leaders,
            f"{job.scratch}/1",
            job,
            self._store,
            self._engine,
            self._files,
            self._open_log,
            self._dropped_files,
            self._plans.seeds(job.order.seeds),
            self._plans.firsts(record, job.order.seeds),
            self._fault,
        )
        present = self._catalog.compiled(record)
        for left in reversed(range(self._readings_max)):
            build.feed()
            snapshot = self._snapshots.take(name)
            if exact := self._at_rest(record, snapshot, build):
                break
            if left:
                job.wait({})
        tables = tuple(build.compare(present, snapshot))
        job.show(tables=tables, exact=exact, behind=build.behind)

    def _at_rest(self, record: DataflowRecord, snapshot: Snapshot, build: Build) -> bool:
        """Return whether a snapshot shows exactly what the build has applied."""
        position = self._store.position(record.name)
        units = self._catalog.units(record)
        rules = {leader: unit.leader.runnable for leader, unit in units.items()}
        shown = all(
            snapshot.epochs[name] + 1 == stage.epoch for name, stage in position.stages.items()
        )
        return shown and not build.behind and not left_to_do(rules, position, set())

    def _end(self, job: Job, status: Status) -> None:
        """End a job, and remove its tables as far as possible; the next start removes the rest."""
        if job.shown.ended:
            return
        steps = {"swapped": "is swapped in", "cancelled": "was cancelled", "failed": "failed"}
        job.show(status=status, step=steps[status], done=0, total=0, unit="", behind=0)
        name = job.shown.dataflow
        with self._lock:
            if all(one.shown.ended for one in self._jobs.values() if one.shown.dataflow == name):
                self._building.discard(name)
        try:
            if not job.kept:
                remove_order(self._files, job.folder)
        except CbpError as error:  # after a restart it is found to be outdated, or begins anew
            _log.warning("rebuild.order_left", job=job.shown.id, error=error.as_dict())
        if job.build is not None:
            build, job.build = job.build, None
            build.close()
            try:
                remove_scratch(self._files, job.scratch, faults=self._fault)
            except CbpError as error:
                _log.warning("rebuild.scratch_left", job=job.shown.id, error=error.as_dict())
        _log.info("rebuild.ended", dataflow=job.shown.dataflow, status=status)


def _error_of(cause: Exception) -> CbpError:
    if isinstance(cause, CbpError):
        return cause
    return InvariantError(f"the rebuild stopped with an unexpected error: {cause!r:.500}")
