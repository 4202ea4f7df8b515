"""Activity: what every dataflow does now, in one answer, for a view that is refreshed.

`cbp top` shows it, with one request for each refresh: the state of dataflows and their stages, the
runs under way with their phases, and the newest failures.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from fastapi import Query
from pydantic import Field

from cbp.model.run.intention import RunStatus
from controller.api.answers.json_values import json_value
from controller.api.answers.schemas import DataflowSummary, Model, RunOut, StageOut, StageState
from controller.api.figures.overview import OverviewDep
from controller.api.figures.run_figures import RunFiguresDep
from controller.api.routing.dependencies import ExchangeDep, StoreDep, granted_dataflows
from controller.api.routing.router_factory import Scope, needs, problems, router
from controller.store.base import RunRecord, Store

routes = router("activity")

_ORDER = ("broken", "stopped", "retrying", "ok", "paused")


class ActivityQuery(Model):
    """Which activity to show."""

    dataflow: str | None = Field(None, max_length=200, description="Only this dataflow.")
    limit: int = Field(
        20, ge=1, le=100, description="Maximum number of dataflows; those in trouble come first."
    )
    errors: int = Field(5, ge=0, le=50, description="Maximum number of failures; newest first.")


class StageActivityOut(Model):
    """What one stage does now."""

    name: str
    runs_with: str = Field(description="The stage that this one is fused with; usually itself.")
    state: StageState
    waiting: str = Field(description="Why it cannot start now; empty if it can.")
    epoch: int = Field(description="Number of its next run.")
    queued_increments: int
    queued_records: int
    lag_seconds: float | None = Field(description="Age of its oldest unread increment.")
    failures: int = Field(description="How often in a row the run that is due next has failed.")


class DataflowActivityOut(Model):
    """What one dataflow does now."""

    summary: DataflowSummary
    stages: list[StageActivityOut]


class ErrorOut(Model):
    """A failed run."""

    run: str
    dataflow: str
    stage: str
    epoch: int
    at: datetime
    error: dict[str, Any] | None


class ActivityOut(Model):
    """What dataflows do now."""

    at: datetime
    dataflows: list[DataflowActivityOut] = Field(
        description="Those in trouble first, then those that lag most."
    )
    left_out: int = Field(description="Number of further dataflows.")
    running: list[RunOut] = Field(description="Runs under way, oldest first.")
    errors: list[ErrorOut] = Field(description="Failed runs, newest first.")


@routes.get("/activity", responses=problems(404))
@needs(Scope.VIEWER, any_dataflow=True)
def show(
    store: StoreDep,
    overview: OverviewDep,
    run_figures: RunFiguresDep,
    exchange: ExchangeDep,
    query: ActivityQuery = Query(),
) -> ActivityOut:
    """Show dataflows with their stages, runs under way, and the newest failures.

    A token that is limited to some dataflows sees only those.
    """
    now = overview.now()
    records = {one.name: one for one in granted_dataflows(store, exchange, query.dataflow)}
    summaries = overview.summarise_all(records.values(), now)
    summaries.sort(key=lambda one: (_ORDER.index(one.state), -(one.lag_seconds or 0), one.name))
    shown = [overview.detail(records[one.name], now) for one in summaries[: query.limit]]
    running = [run for run in store.intended_runs() if run.dataflow in records]
    return ActivityOut(
        at=now,
        dataflows=[
            DataflowActivityOut(summary=one.summary, stages=list(map(_stage, one.stages)))
            for one in shown
        ],
        left_out=len(summaries) - len(shown),
        running=run_figures.page(sorted(running, key=lambda run: run.started_at)),
        errors=_errors(store, list(records), query),
    )


def _errors(store: Store, names: list[str], query: ActivityQuery) -> list[ErrorOut]:
    if not query.errors:
        return []
    failed: list[RunRecord] = []
    for name in names:
        failed += store.runs(name, status=RunStatus.FAILED, limit=query.errors).items
    failed.sort(key=lambda run: run.id, reverse=True)
    return [
        ErrorOut.of(
            run, run=run.id, at=run.finished_at or run.started_at, error=json_value(run.error)
        )
        for run in failed[: query.errors]
    ]


def _stage(stage: StageOut) -> StageActivityOut:
    return StageActivityOut.of(
        stage,
        queued_increments=sum(queue.increments for queue in stage.queues),
        queued_records=sum(queue.records for queue in stage.queues),
    )
