"""Freshness: whether everything that was delivered is applied, for one dataflow or for all."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from pydantic import Field

from cbp.model.schedule.freshness import FreshnessState, worst_of
from controller.access.scopes import Scope
from controller.api.answers.schemas import Model
from controller.api.figures.freshness import FreshnessFigures
from controller.api.routing.dependencies import (
    ControllerDep,
    DropFolderDep,
    ExchangeDep,
    PresentStateDep,
    StoreDep,
)
from controller.api.routing.granted_dataflows import granted_dataflows
from controller.api.routing.routers import problems, router
from controller.api.routing.scopes import needs

routes = router("freshness")

_STATES = (
    "`up_to_date`: every stage has applied every file that arrived; `catching_up`: the rest is "
    "being processed; `stuck`: something needs an operator."
)


class FreshnessQuery(Model):
    """Which dataflows to judge."""

    dataflow: str | None = Field(None, max_length=200, description="Only this dataflow.")


class DataflowFreshnessOut(Model):
    """Whether one dataflow is up to date."""

    dataflow: str
    state: FreshnessState = Field(description=_STATES)
    left: list[str] = Field(description="What is left, in words; empty if it is up to date.")


class FreshnessOut(Model):
    """Whether the dataflows are up to date."""

    state: FreshnessState = Field(description=f"The worst of its dataflows. {_STATES}")
    dataflows: list[DataflowFreshnessOut]


@routes.get("/freshness", responses=problems(404))
@needs(Scope.VIEWER, any_dataflow=True)
def show(
    store: StoreDep,
    controller: ControllerDep,
    drop_folder: DropFolderDep,
    present: PresentStateDep,
    exchange: ExchangeDep,
    query: Annotated[FreshnessQuery, Query()],
) -> FreshnessOut:
    """Tell whether everything that was delivered is applied: files, queues, quarantine.

    A token that is limited to some dataflows sees those. Sinks are not part of it.
    """
    figures = FreshnessFigures(
        controller=controller, store=store, drop_folder=drop_folder, present=present
    )
    judged = figures.of(granted_dataflows(store, exchange, query.dataflow))
    return FreshnessOut(
        state=worst_of(one.state for one in judged.values()),
        dataflows=[
            DataflowFreshnessOut(dataflow=name, state=one.state, left=list(one.left))
            for name, one in judged.items()
        ],
    )
