"""Explanations: the physical plan of a dataflow, and what a run did and why."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from cbp.model.plan.explain import Plan
from cbp.model.run.account import Change, Consumed, LookedUpTable
from controller.api.answers.json_values import json_value
from controller.api.answers.schemas import Model, RunOut
from controller.api.figures.run_figures import RunFiguresDep
from controller.api.routing.dependencies import ExplainingDep, GrantedRunDep, LineagesDep
from controller.api.routing.router_factory import Scope, needs, problems, router

routes = router("explain")


class PlanOut(Model):
    """A dataflow's physical plan, and its graph drawn in three ways."""

    plan: Plan
    picture: str
    mermaid: str
    dot: str


class ProducedOut(Model):
    """An increment that a run produced."""

    flow: str
    index: int
    records: int
    bytes: int


class AccountOut(Model):
    """Why a run ran, on what, and what it produced.

    Attributes:
        recorded: False if the log no longer has the run's record, so that `changes` and
            `lookups` are unknown.
        version: Version of the dataflow that ran.
        codes: Maps each stage to the fingerprint of the code that ran.
    """

    run: RunOut
    why: str
    consumed: list[Consumed]
    produced: list[ProducedOut]
    lookups: list[LookedUpTable]
    changes: list[Change]
    versions: dict[str, int]
    recorded: bool
    version: int
    codes: dict[str, str]


class CauseOut(Model):
    """The origin of an increment that a run read."""

    input: str
    flow: str
    index: int
    run: str | None = Field(
        description="The run that wrote the increment; `null` if it came from a source, or if the "
        "run is not known."
    )
    origin: dict[str, Any] = Field(description="What is known about the arrival of the increment.")


class EffectOut(Model):
    """What one reader did with an output of a run."""

    flow: str
    index: int
    stage: str
    input: str
    run: str | None = Field(
        description="The first run that read the output; `null` if none is known."
    )
    waits: bool = Field(description="Whether the output waits in the reader's queue.")


class LineageOut(Model):
    """The causes and effects of a run."""

    causes: list[CauseOut] = Field(description="The newest causes of each input, up to 200 in all.")
    effects: list[EffectOut]


@routes.get("/runs/{run}/lineage", responses=problems(404))
@needs(Scope.VIEWER, any_dataflow=True)
def lineage(record: GrantedRunDep, lineages: LineagesDep) -> LineageOut:
    """Show the runs and files that made a run's input, and the runs that read its output."""
    of_run = lineages.of(record.id)
    causes = [CauseOut.of(one, origin=json_value(one.origin)) for one in of_run.causes]
    return LineageOut.of(of_run, causes=causes)


@routes.get("/dataflows/{name}/plan", responses=problems(404))
@needs(Scope.VIEWER)
def plan(name: str, explaining: ExplainingDep) -> PlanOut:
    """Show which stages run together, and which inputs are shuffled, broadcast, or scanned."""
    return PlanOut.of(explaining.plan(name))


@routes.get("/runs/{run}/account", responses=problems(404))
@needs(Scope.VIEWER, any_dataflow=True)
def account(
    record: GrantedRunDep, run_figures: RunFiguresDep, explaining: ExplainingDep
) -> AccountOut:
    """Explain why a run ran, on which increments, and what it produced."""
    return AccountOut.of(explaining.run(record.id), run=run_figures.one(record))
