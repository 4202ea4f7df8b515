"""Runs: list, show, cancel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from fastapi import Query
from pydantic import Field

from cbp.model.dataflow.lanes import lanes_of
from cbp.model.run.intention import RunStatus
from controller.api.answers.json_values import json_value
from controller.api.answers.problems import RunEndedError
from controller.api.answers.schemas import Page, PageQuery, RunOut
from controller.api.figures.overview import members_of
from controller.api.routing.dependencies import ControllerDep, SettingsDep, StoreDep
from controller.api.routing.routers import page_size, problems, router
from controller.loop.controller import Controller
from controller.store.base import RunRecord

__all__ = ["routes", "show"]

routes = router("runs")


class RunQuery(PageQuery):
    """Which runs to list."""

    dataflow: str | None = Field(None, max_length=200)
    stage: str | None = Field(
        None,
        max_length=200,
        description="With `dataflow`, any stage; alone, one that leads its runs.",
    )
    status: RunStatus | None = None


@routes.get("/runs", responses=problems(404))
def list_runs(
    store: StoreDep,
    controller: ControllerDep,
    settings: SettingsDep,
    query: Annotated[RunQuery, Query()],
) -> Page[RunOut]:
    """List runs, newest first."""
    if query.dataflow is not None:
        store.dataflow(query.dataflow)
    page = store.runs(
        query.dataflow,
        stage=_leader(controller, query.dataflow, query.stage),
        status=query.status,
        cursor=query.cursor,
        limit=page_size(settings, query),
    )
    members = {run.dataflow: members_of(controller, run.dataflow) for run in page.items}
    shown = [_shown(run, members[run.dataflow]) for run in page.items]
    return Page(items=shown, cursor=page.cursor)


@routes.get("/runs/{run}", responses=problems(404))
def show(run: str, store: StoreDep, controller: ControllerDep) -> RunOut:
    """Show one run with its figures, or with the error that ended it."""
    record = store.run(run)
    return _shown(record, members_of(controller, record.dataflow))


@routes.post("/runs/{run}/cancel", status_code=202, responses=problems(404, 409))
def cancel(run: str, store: StoreDep, controller: ControllerDep) -> RunOut:
    """Ask a run to stop; it may still finish. What it read stays queued."""
    record = store.run(run)
    if record.status is not RunStatus.INTENDED:
        raise RunEndedError(run, record.status)
    controller.cancel(run)
    return show(run, store, controller)


def _leader(controller: Controller, dataflow: str | None, stage: str | None) -> str | None:
    """Return the stage that leads the runs of this stage."""
    if dataflow is None or stage is None:
        return stage
    members = members_of(controller, dataflow)
    return next((leader for leader, names in members.items() if stage in names), stage)


def _shown(run: RunRecord, members: Mapping[str, tuple[str, ...]]) -> RunOut:
    ended = run.finished_at
    return RunOut(
        id=run.id,
        dataflow=run.dataflow,
        stage=run.stage,
        stages=list(members.get(run.stage, (run.stage,))),
        epoch=run.epoch,
        attempt=run.attempt,
        status=run.status,
        read={name: list(indexes) for name, indexes in run.read.items()},
        remove={name: list(indexes) for name, indexes in run.remove.items()},
        started_at=run.started_at,
        finished_at=ended,
        seconds=None if ended is None else (ended - run.started_at).total_seconds(),
        figures=dict(run.figures),
        lanes=list(lanes_of(run.figures)),
        error=None if run.error is None else json_value(run.error),
    )
