"""Rebuild jobs: new tables are built beside the old ones, compared with them, and swapped in.

`build_beside.py` builds; `swap.py` swaps, and goes back. A build does one run at a time, in the
executor of verifications, and the service has only one build at a time. So runs of dataflows keep
their slots. No input of a dataflow is removed while it is built beside.

Guaranteed: one build at a time; a build that was cancelled or failed has changed nothing; a build
that was accepted ends, however often the service is killed
(tests/controller/loop/rebuild/test_build_beside.py, test_build_after_restart.py).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any

import structlog

from cbp.engine.interface.engine import Engine
from cbp.engine.interface.runs import needs_spark
from cbp.engine.storage.failpoints import Faults
from cbp.engine.storage.files import Files
from cbp.errors import (
    CbpError,
    DataflowBusyError,
    DiskFullError,
    EngineStartingError,
    NotFoundError,
)
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.version.dataflow_shape import shape_of
from cbp.model.version.version_change import Choice
from controller.loop.operations.version_switch import Changed
from controller.loop.operations.versions import Versions
from controller.loop.rebuild.build_in_progress import (
    STEPS,
    Ended,
    Job,
    Pace,
    Planned,
    RebuildJob,
    error_of,
    passes,
)
from controller.loop.rebuild.build_order import (
    BuildOrder,
    end_order,
    open_order,
    read_order,
    write_order,
)
from controller.loop.rebuild.build_plans import BuildPlans, everything_of
from controller.loop.rebuild.build_work import BuildWork
from controller.loop.rebuild.checkpoint import folder_of, take_over
from controller.loop.rebuild.swap import Swaps
from controller.loop.records.dataflow_folder import remove_scratch
from controller.loop.records.dataflow_part import DataflowPart
from controller.loop.runs.in_flight import InFlight
from controller.loop.runs.retry_policy import RetryPolicy
from controller.loop.tick.holds import Holds
from controller.loop.verification.recomputation import JobEndedError
from controller.store.base import DataflowRecord

KEPT_MAX = 20
"""Jobs that this process remembers."""

_log = structlog.get_logger(__name__)


@dataclass(kw_only=True, eq=False)
class RebuildJobs(DataflowPart):
    """Builds, compares and swaps; safe to use from several threads.

    Attributes:
        building: Receives the dataflows that are built beside, whose inputs are kept.
        holds: No build of a dataflow that is held begins or continues.
    """

    engine: Engine
    versions: Versions
    tables_root: str
    random_hex: Callable[[int], str]
    faults: Faults
    executor: Executor
    building: set[str]
    holds: Holds
    build_plans: BuildPlans
    build_work: BuildWork
    swaps: Swaps
    settle_seconds: float
    rebuild_share: float
    in_flight: InFlight
    retry: RetryPolicy
    draw: Callable[[], float]

    def __post_init__(self) -> None:
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._left: list[Job] = []
        self._lock = threading.Lock()
        self._failed = FailedRebuilds(self.files)

    def plan(
        self, document: Mapping[str, Any], dataflow: Dataflow, choice: Choice | None = None
    ) -> Changed:
        """Return the plan of a version, and why it is refused; see `BuildPlans.plan`."""
        return self.build_plans.plan(document, dataflow, choice)

    def start(
        self,
        document: Mapping[str, Any],
        dataflow: Dataflow,
        *,
        choice: Choice | None = None,
        expected_version: int | None = None,
        seeds: Mapping[str, str] = MappingProxyType({}),
        swaps: bool = False,
        by: str = "",
    ) -> RebuildJob:
        """Begin to build all tables of a version beside the current ones; durable; returns at once.

        Raises:
            NotFoundError: If there is no such dataflow.
            ChangeRefusedError: With every reason why it cannot be built.
            DataflowBusyError: If a build of any dataflow is under way, or the version differs.
        """
        name = dataflow.name
        record = self.versions.expected(name, expected_version)
        planned = self.build_plans.plan(document, dataflow, choice, seeds)
        planned.require_allowed()
        order = BuildOrder(
            id=f"n{self.random_hex(6)}",
            version=planned.version,
            generation=record.generation,
            document=document,
            shape=shape_of(dataflow),
            began_at=self.clock(),
            seeds=seeds,
            swaps=swaps,
            by=by,
            swap_by=by if swaps else "",
        )
        with self._lock:
            for job in self._jobs.values():
                if not job.shown.ended:
                    why = f"rebuild {job.shown.id} of {job.shown.dataflow!r} is under way"
                    raise DataflowBusyError(name, f"{why}; end it with --swap or --cancel")
            job, failed = self._add(name, record.folder, order)
        job.planned = Planned(dataflow, everything_of(planned), planned.succession.leaders)
        try:
            with self._failed.writing:
                write_order(self.files, record.folder, order)
        except CbpError:  # nothing was ordered, so an earlier failure still needs a person
            self._end(job, "cancelled")
            with self._lock:
                self._jobs.pop(order.id, None)
            self._failed.put_back(name, failed)
            raise
        self._submit(job)
        return job.shown

    def start_present(
        self, name: str, seeds: Mapping[str, str] = MappingProxyType({}), *, by: str = ""
    ) -> RebuildJob:
        """Begin to rebuild the present version, with the code with which it was registered.

        Raises:
            CodeDriftedError: If that code is not loaded; register the code on disk first.
                Other errors are those of `start`.
        """
        record = self.store.dataflow(name)
        self.catalog.require_same(record)
        dataflow = self.catalog.compiled(record)
        waits_for = self.engine.control.waits_for()
        if waits_for and needs_spark(dataflow.stages.values()):
            raise EngineStartingError(waits_for)
        return self.start(record.document, dataflow, seeds=seeds, by=by)

    def begin(self) -> list[str]:
        """Find the builds that an earlier process had begun; `go_on` continues them.

        Called once this instance leads, before anything else changes a dataflow. It takes over
        builds of this process in an earlier term, too.

        Returns:
            The earlier paths of the folders of builds that were taken over.
        """
        self.stop()
        taken = []
        for record in self.store.dataflows():
            order = open_order(self.files, record.folder)
            if order is None:
                self._failed.read(record)
                continue
            was, number = take_over(self.files, self.tables_root, order.id, faults=self.faults)
            with self._lock:
                job, _ = self._add(record.name, record.folder, order)
                self._left.append(job)
            job.scratch, job.tries = folder_of(self.tables_root, order.id, number), number
            taken += [was] if was else []
            job.show(step="continues after a restart of the service")
            _log.info("rebuild.continued", dataflow=record.name, rebuild=order.id, tries=number)
        return taken

    def go_on(self) -> None:
        """Continue builds that `begin` found, and waiting ones; returns at once."""
        if not self._left or self.engine.control.waits_for():
            return
        held, now = self.holds.all(), self.clock()
        with self._lock:
            due = [job for job in self._left if job.shown.dataflow not in held and job.is_due(now)]
            self._left = [job for job in self._left if job not in due]
        for job in due:
            if not job.shown.ended:
                self._submit(job)

    def _submit(self, job: Job) -> None:
        """Carry out a job in a thread of its own; if none can be started, `go_on` tries again."""
        try:
            self.executor.submit(self._carry_out, job)
        except RuntimeError:
            with self._lock:
                self._left.append(job)

    def _add(self, name: str, folder: str, order: BuildOrder) -> tuple[Job, BuildOrder | None]:
        """Add a job; return it and the order of the failed one that it replaces, if any."""
        shown = RebuildJob(
            id=order.id,
            dataflow=name,
            version=order.version,
            began_at=order.began_at,
            share=self.rebuild_share,
            by=order.by,
        )
        pace = Pace(
            self.rebuild_share, lambda: any(name == one for one, _ in self.in_flight.busy())
        )
        job = Job(shown, order, folder, self.clock, pace, settle_seconds=self.settle_seconds)
        job.scratch = folder_of(self.tables_root, order.id, job.tries)
        self._jobs[order.id] = job
        failed = self._failed.forget(name)
        self.building.add(name)
        while len(self._jobs) > KEPT_MAX:
            self._jobs.popitem(last=False)
        return job, failed

    def show(self, name: str, id_: str) -> RebuildJob:
        """Return one job; raises `NotFoundError`, also for an older job after a restart."""
        known = next((one for one in self.all(name) if one.id == id_), None)
        if known is None:
            raise NotFoundError(kind="rebuild", name=id_)
        return known

    def all(self, name: str) -> list[RebuildJob]:
        """Return the jobs of a dataflow, newest first; raises `NotFoundError`.

        These are the jobs of this process, and the last one that another process ended.
        """
        record = self.store.dataflow(name)
        with self._lock:
            mine = [job for job in self._jobs.values() if job.shown.dataflow == name]
        jobs = {job.shown.id: job.shown for job in reversed(mine)}
        order = read_order(self.files, record.folder)
        if order is not None and order.outcome is not None:
            left = {job.shown.id for job in mine if job.kept}
            if order.id not in jobs or order.id in left:  # another leader ended it
                jobs[order.id] = RebuildJob.recorded(name, order, order.outcome)
        return sorted(jobs.values(), key=lambda job: job.began_at, reverse=True)

    def needs_person(self, record: DataflowRecord) -> RebuildJob | None:
        """Return the rebuild of a dataflow that is ready to be swapped in, or that failed."""
        ready = [one for one in self._open_jobs() if one.shown.status == "ready"]
        mine = (one.shown for one in ready if one.shown.dataflow == record.name)
        return next(mine, None) or self._failed.of(record)

    def cancel(self, name: str, id_: str, *, by: str = "") -> RebuildJob:
        """End a job unless it has ended, or is being swapped in; durable, and returns at once.

        A failed job counts as cancelled from then on: a person (`by`) has dealt with it.
        Raises `NotFoundError` or `DataflowBusyError`.
        """
        job = self._jobs.get(id_)
        order = self._failed.cancel(self.store.dataflow(name), id_, by=by)
        if job is None or job.shown.dataflow != name or (job.kept and job.shown.ended):
            if order is not None and order.outcome is not None:  # the next order may replace it now
                return RebuildJob.recorded(name, order, order.outcome)
            return self.show(name, id_)
        if order is not None:
            job.count_as_cancelled(order, by)
        if job.shown.status == "swapping":
            raise DataflowBusyError(name, f"rebuild {id_} is being swapped in")
        if job.shown.ended:
            return job.shown
        try:
            self._record(job, "cancelled", by)
            self._cancel(job)
        except DiskFullError:  # the tables that it built may fill the disk: remove them first
            self._cancel(job)
            self._record(job, "cancelled", by)
        return job.shown

    def end_all(self, name: str, folder: str) -> None:
        """End the jobs of a dataflow that was deleted; returns at once.

        A failed one counts as cancelled from then on, also if a registration takes the folder over.
        """
        failed = self._failed.forget(name)
        for job in self._open_jobs():
            if job.shown.dataflow == name:
                self._cancel(job)
        with self._lock:
            for id_, job in list(self._jobs.items()):
                if job.shown.dataflow == name and job.shown.ended:
                    del self._jobs[id_]
        if failed is not None and failed.outcome is not None:
            outcome = replace(failed.outcome, status="cancelled")
            try:
                with self._failed.writing:
                    end_order(self.files, folder, failed, outcome)
            except CbpError as error:
                _log.warning("rebuild.end_not_recorded", job=failed.id, error=error.as_dict())

    def _record(self, job: Job, status: Ended, by: str) -> None:
        """Record how a job ends, unless that is recorded already."""
        if job.order.outcome is None:
            outcome = job.shown.outcome(status, self.clock(), by)
            end_order(self.files, job.folder, job.order, outcome)
            job.order = replace(job.order, outcome=outcome)

    def stop(self) -> None:
        """Stop the job under way, since the service stops; the next leader continues it."""
        with self._lock:
            self._left.clear()
        for job in self._open_jobs():
            job.kept = True
            self._cancel(job)

    def _open_jobs(self) -> list[Job]:
        with self._lock:
            return [job for job in self._jobs.values() if not job.shown.ended]

    def _cancel(self, job: Job) -> None:
        job.stop.set()
        if job.run:
            self.engine.control.cancel(job.run)
        if job.busy.acquire(blocking=False):  # otherwise the thread that builds ends it
            try:
                self._end(job, "cancelled")
            finally:
                job.busy.release()

    def swap(self, name: str, id_: str, *, by: str = "") -> RebuildJob:
        """Begin to show the new tables instead of the old ones, all at one time; returns at once.

        Input that arrived meanwhile is applied first. No run of the dataflow starts while the
        last of it is applied, and while the new tables are copied beside the old files. The job
        fails if the version changed or the dataflow was rolled back. It is ready again, with an
        error, if runs did not end in time. Durable once this returns: the next leader swaps if
        this one is killed. Raises `NotFoundError` or `DataflowBusyError`.
        """
        job = self._job(name, id_)
        if job.shown.status != "ready" or not job.busy.acquire(blocking=False):
            raise DataflowBusyError(name, f"rebuild {id_} is not ready: it {job.shown.step}")
        try:
            self.swaps.ask(job, swaps=True, by=by)
        except CbpError:
            job.busy.release()
            raise
        job.show(status="swapping", step="applies new input", error=None)
        try:
            self.executor.submit(self._swap, job)
        except RuntimeError:  # no thread can be started, or the service stops
            job.busy.release()
            self._show_ready(job)
            raise
        return job.shown

    def _swap(self, job: Job) -> None:
        """Swap in the tables of a job that is ready; releases `job.busy`, which is held."""
        try:
            status, fault = self.swaps.carry_out(job)
            if fault is not None:
                self._wait(job, fault)
        finally:
            job.busy.release()
        if status == "building":  # its order still says that it is swapped in once it is ready
            if job.rest is None:
                job.show(status=status)
                self._submit(job)
            return
        if status != "ready":
            self._end(job, status)
            return
        self._show_ready(job)

    def _show_ready(self, job: Job) -> None:
        """Show a job as ready again, since it was not swapped in."""
        try:
            self.swaps.ask(job, swaps=False)
        except CbpError as error:  # after a restart it is swapped in, as was requested
            _log.warning("rebuild.swap_still_ordered", job=job.shown.id, error=error.as_dict())
        job.show(status="ready", step="is ready", done=0, total=0, unit="")

    def _job(self, name: str, id_: str) -> Job:
        with self._lock:
            job = self._jobs.get(id_)
        if job is None or job.shown.dataflow != name:
            raise NotFoundError(kind="rebuild", name=id_)
        return job

    # one build

    def _carry_out(self, job: Job) -> None:
        """Build, and swap if that was requested; in a thread of its own."""
        with job.busy:
            try:
                record = self.store.dataflow(job.shown.dataflow)
                if job.order.is_done(record, self.descriptions):
                    self._end(job, "swapped")
                    return
                job.planned = job.planned or self.build_plans.again(job.shown.dataflow, job.order)
                self.build_work.build(job, job.planned)
                job.check()
            except JobEndedError:
                self._end(job, "cancelled")
            except Exception as cause:  # author's code and engines may raise anything
                if job.stop.is_set():  # for example because its dataflow was deleted
                    _log.info("rebuild.stopped", dataflow=job.shown.dataflow, exc_info=cause)
                    self._end(job, "cancelled")
                    return
                error = error_of(cause)
                if passes(error):
                    self._wait(job, error)
                    return
                job.show(error=error)
                _log.warning("rebuild.failed", dataflow=job.shown.dataflow, exc_info=cause)
                self._end(job, "failed")
        if job.shown.ended:
            return
        if job.stop.is_set():  # since the last check
            self._cancel(job)
        elif not job.order.swaps:  # once this is shown, an operator can swap it in
            job.show(status="ready", step="is ready", done=0, total=0, unit="")
        elif job.busy.acquire(blocking=False):
            job.show(status="swapping", step="applies new input", error=None)
            self._swap(job)

    def _wait(self, job: Job, error: CbpError) -> None:
        """Let a job wait for a fault of the environment to pass; `go_on` carries it out again."""
        rest = self.retry.lasting(job.failures + 1, self.clock(), self.draw())
        job.wait_after(error, rest)
        name, again = job.shown.dataflow, rest.words(job.failures)
        _log.warning("rebuild.waits", dataflow=name, again=again, error=error.as_dict())
        with self._lock:
            self._left.append(job)

    def _end(self, job: Job, status: Ended) -> None:
        """End a job, and remove its tables as far as possible; the next start removes the rest.

        If the service stops, both its order and its tables stay.
        """
        if job.shown.ended:
            return
        name, order = job.shown.dataflow, job.order
        try:
            if not job.kept:
                self._record(job, status, order.swap_by if status == "swapped" else "")
        except CbpError as error:  # after a restart it is outdated, or continues
            _log.warning("rebuild.end_not_recorded", job=job.shown.id, error=error.as_dict())
        if status == "failed" and not job.stop.is_set():
            self._failed.note(job, self.clock())
        outcome = job.order.outcome
        job.show(
            status=status,
            step=STEPS[status],
            done=0,
            total=0,
            unit="",
            behind=0,
            ended_at=self.clock() if outcome is None else outcome.ended_at,
            ended_by="" if outcome is None else outcome.by,
        )
        with self._lock:
            if all(one.shown.ended for one in self._jobs.values() if one.shown.dataflow == name):
                self.building.discard(name)
        if job.build is not None:
            build, job.build = job.build, None
            build.close()
        if not job.kept:
            try:
                remove_scratch(self.files, job.scratch, faults=self.faults)
            except (CbpError, OSError) as error:
                _log.warning("rebuild.scratch_not_removed", job=job.shown.id, error=str(error))
        _log.info("rebuild.ended", dataflow=job.shown.dataflow, status=status)


class FailedRebuilds:
    """The newest rebuild of each dataflow, if it failed; safe to use from several threads.

    A failure is kept with the order, so it is known after a restart, too. The failure
    is over once there is another rebuild, a new version or a roll-back, or once the dataflow is
    deleted or the failed rebuild is cancelled.

    Attributes:
        writing: Held while an order is written, since all orders of a dataflow share a file.
    """

    def __init__(self, files: Files) -> None:
        self.writing = threading.Lock()
        self._files, self._lock = files, threading.Lock()
        self._orders: dict[str, BuildOrder] = {}

    def read(self, record: DataflowRecord) -> None:
        """Read from the folder of a dataflow whether its last rebuild failed."""
        order = read_order(self._files, record.folder)
        self.forget(record.name)
        if order is not None and order.outcome is not None and order.outcome.status == "failed":
            with self._lock:
                self._orders[record.name] = order

    def note(self, job: Job, at: datetime) -> None:
        """Note a job that has just failed, even if its outcome could not be recorded."""
        outcome = job.order.outcome or job.shown.outcome("failed", at, "")
        with self._lock:
            self._orders[job.shown.dataflow] = replace(job.order, outcome=outcome)

    def forget(self, name: str) -> BuildOrder | None:
        """Forget the failure of a dataflow; return its order if there was one."""
        with self._lock:
            return self._orders.pop(name, None)

    def put_back(self, name: str, order: BuildOrder | None) -> None:
        """Undo `forget`, given what it returned."""
        if order is not None:
            with self._lock:
                self._orders[name] = order

    def of(self, record: DataflowRecord) -> RebuildJob | None:
        """Return the failed rebuild of a dataflow; `None` if there is none that still matters."""
        with self._lock:
            order = self._orders.get(record.name)
        if order is None or order.outcome is None or not order.is_for(record):
            return None
        return RebuildJob.recorded(record.name, order, order.outcome)

    def cancel(self, record: DataflowRecord, id_: str, *, by: str) -> BuildOrder | None:
        """Count a failed rebuild as cancelled, durably; `None` if no rebuild of this id failed."""
        with self.writing:
            with self._lock:
                order = self._orders.get(record.name)
            if order is None or order.outcome is None or order.id != id_:
                return None
            outcome = replace(order.outcome, status="cancelled", by=by)
            end_order(self._files, record.folder, order, outcome)
            self.forget(record.name)
        return replace(order, outcome=outcome)
