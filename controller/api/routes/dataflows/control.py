"""Pause, drain and resume a dataflow; pause, resume and retry a stage, and set its priority."""

from __future__ import annotations

from cbp.model.schedule.priority import Priority
from controller.api.answers.schemas import DataflowSummary
from controller.api.figures.overview import OverviewDep
from controller.api.routing.dependencies import ControllerDep
from controller.api.routing.router_factory import Scope, needs, problems, router

routes = router("dataflows", "/dataflows/{name}")


@routes.post("/pause", responses=problems(404))
@needs(Scope.OPERATOR, any_instance=True)
def pause(name: str, controller: ControllerDep, overview: OverviewDep) -> DataflowSummary:
    """Start no more runs; running ones finish. Idempotent and persistent."""
    controller.pause(name)
    return overview.summary_now(name)


@routes.post("/drain", responses=problems(404))
@needs(Scope.OPERATOR, any_instance=True)
def drain(name: str, controller: ControllerDep, overview: OverviewDep) -> DataflowSummary:
    """Take in no more files, process all queued input, then start no more runs: `drained`.

    Files stay in their drop folders, and uploads are refused, until `resume`. Idempotent and
    persistent.
    """
    controller.drain_dataflow(name)
    return overview.summary_now(name)


@routes.post("/resume", responses=problems(404))
@needs(Scope.OPERATOR, any_instance=True)
def resume(name: str, controller: ControllerDep, overview: OverviewDep) -> DataflowSummary:
    """Resume all stages, paused or stopped, and reset their failure counts. Idempotent."""
    controller.resume(name)
    return overview.summary_now(name)


@routes.post("/stages/{stage}/pause", responses=problems(404))
@needs(Scope.OPERATOR, any_instance=True)
def pause_stage(
    name: str, stage: str, controller: ControllerDep, overview: OverviewDep
) -> DataflowSummary:
    """Start no more runs of one stage until it is resumed; its input waits. Idempotent."""
    controller.pause_stage(name, stage)
    return overview.summary_now(name)


@routes.post("/stages/{stage}/resume", responses=problems(404))
@needs(Scope.OPERATOR, any_instance=True)
def resume_stage(
    name: str, stage: str, controller: ControllerDep, overview: OverviewDep
) -> DataflowSummary:
    """Resume one stage, and reset its failure count. Idempotent."""
    controller.resume_stage(name, stage)
    return overview.summary_now(name)


@routes.put("/stages/{stage}/priority/{priority}", responses=problems(404))
@needs(Scope.OPERATOR)
def set_priority(
    name: str, stage: str, priority: Priority, controller: ControllerDep, overview: OverviewDep
) -> DataflowSummary:
    """Set the priority of a stage: its waiting time counts 4, 1 or 1/4 times. Idempotent.

    Stages that run together have one priority. No stage starves, and results do not depend on it.
    """
    controller.set_priority(name, stage, priority)
    return overview.summary_now(name)


@routes.post("/stages/{stage}/retry", responses=problems(404, 409))
@needs(Scope.OPERATOR, any_instance=True)
def retry(
    name: str, stage: str, controller: ControllerDep, overview: OverviewDep
) -> DataflowSummary:
    """Retry a stage that stopped after failures; the next failure stops it again.

    A request for a stage that an operator paused is refused (`stage_paused`): resume it instead.
    """
    controller.retry(name, stage)
    return overview.summary_now(name)
