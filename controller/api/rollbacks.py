"""Roll-backs: show what one would do, do it, list what was done and why."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

from fastapi import Header, Query, Request
from pydantic import Field

from cbp.model.generation import Generation
from controller.api.routing import ServicesParameter, problems, router
from controller.api.schemas import Model, Page

__all__ = ["routes"]

routes = router("rollbacks")

_TO = "A position's number, the last epoch of a stage that stays (count:57), or a time."


class PlanQuery(Model):
    """Where a roll-back would go."""

    to: str = Field(min_length=1, max_length=100, description=_TO)
    drop_later: bool = Field(
        False, description="Do not queue later arrivals again, nor close again."
    )


class RollbackQuery(PlanQuery):
    """Where to, who asks, and why."""

    reason: str = Field(min_length=1, max_length=1000)
    by: str = Field("", max_length=200, description="Who asks for it.")
    pause: bool = Field(False, description="Leave the dataflow paused.")


class TableRewindOut(Model):
    """What a roll-back does to one table."""

    table: str
    shows: int = Field(description="The version whose records it shows then.")
    files_removed: int
    files_added: int
    records_now: int
    records_then: int
    bytes_now: int
    bytes_then: int


class RollbackOut(Model):
    """A roll-back that was done."""

    generation: int
    position: int
    epochs: dict[str, int] = Field(description="Stage to its next epoch then.")
    undone: dict[str, int] = Field(description="Stage to the epochs that were undone.")
    dropped: dict[str, int] = Field(description="Source to its increments that stay unread.")
    closes_dropped: int = Field(description="Closes made since that close nothing any more.")
    at: datetime
    by: str
    reason: str


class RollbackPlanOut(Model):
    """What a roll-back would do."""

    rollback: RollbackOut
    records_undone: int
    queued: dict[str, int] = Field(description="`stage.input` to the increments that wait then.")
    closes_again: int = Field(description="Closes made since that stand where they stood.")
    tables: list[TableRewindOut]


@routes.get("/dataflows/{name}/rollback", responses=problems(404, 409))
def plan(
    name: str, services: ServicesParameter, query: Annotated[PlanQuery, Query()]
) -> RollbackPlanOut:
    """Show what a roll-back would do; changes nothing."""
    found = services.controller.amendments.plan_roll_back(
        name, query.to, drop_later=query.drop_later
    )
    return RollbackPlanOut(
        rollback=_shown(found.generation),
        records_undone=found.records_undone,
        queued=dict(found.queued),
        closes_again=found.closes_again,
        tables=[TableRewindOut(table=t, **asdict(one)) for t, one in found.tables.items()],
    )


@routes.post("/dataflows/{name}/rollback", responses=problems(404, 409))
def roll_back(
    name: str,
    request: Request,
    services: ServicesParameter,
    query: Annotated[RollbackQuery, Query()],
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=200)] = None,
) -> RollbackOut:
    """Take tables, queues and epochs back to an earlier moment, and run on from there.

    Repeated with its Idempotency-Key, it gets the first answer and undoes nothing more.
    """
    asked = f"rollback {name} {query.model_dump_json()}".encode()
    with request.app.state.idempotency_keys.use(idempotency_key, asked):
        done = services.controller.amendments.roll_back(
            name,
            query.to,
            who=query.by,
            why=query.reason,
            drop_later=query.drop_later,
            pause=query.pause,
            request=idempotency_key or "",
        )
    return _shown(done)


@routes.get("/dataflows/{name}/rollbacks", responses=problems(404))
def list_rollbacks(name: str, services: ServicesParameter) -> Page[RollbackOut]:
    """List the roll-backs of a dataflow, newest first: who undid what, and why."""
    return Page(
        items=[_shown(one) for one in reversed(services.controller.amendments.rollbacks(name))]
    )


def _shown(one: Generation) -> RollbackOut:
    epochs = {name: stage.epoch for name, stage in one.position.stages.items()}
    return RollbackOut(
        generation=one.number,
        position=one.position.number,
        epochs=epochs,
        undone={name: end - epochs.get(name, end) for name, end in one.undone.items()},
        dropped=dict(one.dropped),
        closes_dropped=len(one.closes_dropped),
        at=datetime.fromtimestamp(one.prepared_ms / 1000, UTC),
        by=one.who,
        reason=one.why,
    )
