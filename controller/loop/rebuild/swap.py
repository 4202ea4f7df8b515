"""Swap: the tables of a rebuild are shown instead of the present ones, all at one time; and back.

The step itself is a version switch (`controller.loop.operations.version_switch`) to the tables that
were built beside (`build_beside.py`). `rebuild_jobs.py` decides when to swap.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

import structlog

from cbp.engine.interface.engine import Engine
from cbp.engine.interface.garbage_collector import Retention
from cbp.errors import CbpError, ChangeRefusedError, Mistake
from cbp.model.version.code_drift import drift
from cbp.model.version.dataflow_shape import shape_of
from controller.loop.operations.version_switch import Changed
from controller.loop.operations.versions import Versions
from controller.loop.rebuild.build_beside import (
    CorrectedMeanwhileError,
    Return,
    hindrances_of_build,
)
from controller.loop.rebuild.build_in_progress import Ended, Job, error_of, passes
from controller.loop.rebuild.build_order import write_order
from controller.loop.rebuild.build_plans import BuildPlans, everything_of
from controller.loop.rebuild.build_work import BuildWork
from controller.loop.records.dataflow_part import DataflowPart
from controller.registry import Registry
from controller.store.base import DataflowRecord

SwapStatus = Ended | Literal["ready", "building"]
"""The status of a job after a swap was tried."""

_log = structlog.get_logger(__name__)

_OTHER_CODE = "the loaded code is not that of version {}: restore the code of that version first"


@dataclass(kw_only=True, eq=False)
class Swaps(DataflowPart):
    """Swaps tables in, and goes back."""

    engine: Engine
    versions: Versions
    retention: Retention
    build_plans: BuildPlans
    build_work: BuildWork
    registry: Registry

    def ask(self, job: Job, *, swaps: bool, by: str = "") -> None:
        """Record whether a job will be swapped in; durable once this returns."""
        job.order = replace(job.order, swaps=swaps, swap_by=by)
        write_order(self.files, job.folder, job.order)

    def carry_out(self, job: Job) -> tuple[SwapStatus, CbpError | None]:
        """Swap in the tables of a job that is ready.

        Returns:
            The status with which the job continues: `building` if more is built before the swap.
            And the fault of the environment that must pass first; `None` if there is none.
        """
        assert job.build is not None, f"rebuild {job.shown.id} has no tables to swap in"
        assert job.planned is not None, f"rebuild {job.shown.id} has no plan"
        build = job.build
        job.pace.begin()
        try:
            build.feed()
            with job.pace.hurrying():
                self.versions.change(
                    job.order.document,
                    job.planned.dataflow,
                    job.planned.choice,
                    expected_version=None,
                    dry_run=False,
                    swap=build,
                )
        except CorrectedMeanwhileError as cause:
            self.build_work.begin_anew(job, str(cause))
            return "building", None
        except Exception as cause:  # author's code and engines may raise anything
            newest = self.descriptions.newest(build.record.folder)
            if newest is not None and newest.version > build.record.version:
                return "swapped", None  # once the version is put, every tick finishes it
            lasting, error = isinstance(cause, ChangeRefusedError), error_of(cause)
            job.show(error=error)
            _log.warning("rebuild.not_swapped", dataflow=job.shown.dataflow, exc_info=cause)
            if lasting:
                return "failed", None
            if job.stop.is_set():
                return "cancelled", None
            return ("building", error) if passes(error) else ("ready", None)
        return "swapped", None

    def back(self, name: str) -> Changed:
        """Show the tables from before the last swap again; later input waits for the old code.

        Raises:
            NotFoundError: If there is no such dataflow, or a file of the old tables no longer
                exists.
            ChangeRefusedError: If the present version did not begin with a swap, or the old
                code is not loaded.
            DataflowBusyError: As `Versions.change`.
        """
        record = self.store.dataflow(name)
        description = self.descriptions.of(record)
        begin = description.begin
        if begin is None or begin.swapped is None or begin.back:
            message = f"version {record.version} did not begin with a swap: it has no old tables"
            raise ChangeRefusedError(name, [Mistake("swap_absent", "rebuild", message)])
        old = self.descriptions.version(record, record.version - 1)
        dataflow = self.registry.compile(old.document)
        mistakes = list(hindrances_of_build(dataflow))
        if old.shape is not None:
            mistakes += (
                replace(one, message=f"{_OTHER_CODE.format(record.version - 1)} ({one.message})")
                for one in drift(old.shape, shape_of(dataflow), code=True)
            )
        if mistakes:
            raise ChangeRefusedError(name, mistakes)
        planned = self.build_plans.everything(record, old.document, dataflow)
        return self.versions.change(
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
                parts=self,
                engine=self.engine,
            ),
        )

    def back_until(self, record: DataflowRecord) -> datetime | None:
        """Return until when the last swap can be undone; `None` if there was none."""
        begin = self.descriptions.of(record).begin
        if begin is None or begin.swapped is None or begin.back:
            return None
        until = begin.at_ms / 1000 + self.retention.seconds
        return datetime.fromtimestamp(until, UTC)
