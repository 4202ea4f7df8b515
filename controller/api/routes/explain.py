"""Explanations: the physical plan of a dataflow, and what a run did and why."""

from __future__ import annotations

from cbp.model.dataflow.explain import Plan
from cbp.model.run.account import Change, Consumed
from controller.api.answers.schemas import Model, RunOut
from controller.api.routes.runs import show
from controller.api.routing.dependencies import ControllerDep, ExplainingDep, StoreDep
from controller.api.routing.routers import problems, router

__all__ = ["routes"]

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
        recorded: False once the log no longer holds the run's record: `changes` are unknown.
        version: Version of the dataflow that ran.
        codes: Stage to the fingerprint of the code that ran.
    """

    run: RunOut
    why: str
    consumed: list[Consumed]
    produced: list[ProducedOut]
    changes: list[Change]
    versions: dict[str, int]
    recorded: bool
    version: int
    codes: dict[str, str]


@routes.get("/dataflows/{name}/plan", responses=problems(404))
def plan(name: str, explaining: ExplainingDep) -> PlanOut:
    """Show which stages run together, and what is shuffled, broadcast, looked up or scanned."""
    plan_ = explaining.plan(name)
    return PlanOut(plan=plan_.plan, picture=plan_.picture, mermaid=plan_.mermaid, dot=plan_.dot)


@routes.get("/runs/{run}/account", responses=problems(404))
def account(
    run: str, store: StoreDep, controller: ControllerDep, explaining: ExplainingDep
) -> AccountOut:
    """Explain why a run ran, on which increments, and what it produced."""
    shown = show(run, store, controller)
    run_account = explaining.run(run)
    return AccountOut(
        run=shown,
        why=run_account.why,
        consumed=list(run_account.consumed),
        produced=[
            ProducedOut(flow=i.flow, index=i.index, records=i.records, bytes=i.bytes)
            for i in run_account.produced
        ],
        changes=list(run_account.changes),
        versions=dict(run_account.versions),
        recorded=run_account.recorded,
        version=run_account.version,
        codes=dict(run_account.codes),
    )
