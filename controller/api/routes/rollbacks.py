"""Roll-backs: show what one would do, do it, list past ones with their reasons."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

from fastapi import Query
from pydantic import Field

from cbp.model.flow.generation import Generation
from cbp.model.version.rollback_goal import Moment
from controller.api.answers.schemas import Model, Page
from controller.api.routing.dependencies import AmendmentsDep, IdempotencyKey, IdempotencyKeysDep
from controller.api.routing.routers import problems, router

__all__ = ["routes"]

routes = router("rollbacks")

_TO = "A position's number, the last epoch of a stage that stays (count:57), or a time."


class PlanQuery(Model):
    """The target of a roll-back."""

    to: str = Field(min_length=1, max_length=100, description=_TO)
    drop_later: bool = Field(
        False, description="Do not queue later arrivals again, nor close again."
    )


class RollbackQuery(PlanQuery):
    """The target, the author and the reason of a roll-back."""

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
    closes_dropped: int = Field(description="Closes after that moment that are dropped.")
    at: datetime
    by: str
    reason: str


class RollbackPlanOut(Model):
    """What a roll-back would do."""

    rollback: RollbackOut
    records_undone: int
    queued: dict[str, int] = Field(description="`stage.input` to the increments that wait then.")
    closes_again: int = Field(description="Closes after that moment that are restored.")
    tables: list[TableRewindOut]
    queued_before: dict[str, int] = Field(
        description="With `drop_later`: source to its increments that had arrived before that "
        "moment and were not read then; they are applied again."
    )


class MomentsQuery(Model):
    """How many moments a client wants."""

    limit: int = Field(50, ge=1, le=500, description="Most moments to return.")


class MomentOut(Model):
    """A moment to which a dataflow can be rolled back."""

    position: int = Field(description="Value for `to`: the number of runs that stay.")
    stage: str = Field(description="Stage whose run was recorded; empty: before the first run.")
    epoch: int = Field(description="Number of that run; -1: before the first run.")
    at: datetime | None = Field(description="When it was recorded; null: before the first run.")


@routes.get("/dataflows/{name}/rollback/moments", responses=problems(404))
def list_moments(
    name: str, amendments: AmendmentsDep, query: Annotated[MomentsQuery, Query()]
) -> Page[MomentOut]:
    """List the moments to which a dataflow can be rolled back, newest first."""
    moments = amendments.moments(name, limit=query.limit)
    return Page(items=[_moment(one) for one in moments])


@routes.get("/dataflows/{name}/rollback", responses=problems(404, 409))
def plan(
    name: str, amendments: AmendmentsDep, query: Annotated[PlanQuery, Query()]
) -> RollbackPlanOut:
    """Show what a roll-back would do; changes nothing."""
    plan_ = amendments.plan_roll_back(name, query.to, drop_later=query.drop_later)
    return RollbackPlanOut(
        rollback=_shown(plan_.generation),
        records_undone=plan_.records_undone,
        queued=dict(plan_.queued),
        closes_again=plan_.closes_again,
        tables=[TableRewindOut(table=t, **asdict(one)) for t, one in plan_.tables.items()],
        queued_before=dict(plan_.queued_before),
    )


@routes.post("/dataflows/{name}/rollback", responses=problems(404, 409))
def roll_back(
    name: str,
    amendments: AmendmentsDep,
    idempotency_keys: IdempotencyKeysDep,
    query: Annotated[RollbackQuery, Query()],
    idempotency_key: IdempotencyKey = None,
) -> RollbackOut:
    """Take tables, queues and epochs back to an earlier moment, and continue from there.

    A request that repeats an Idempotency-Key gets the first answer and undoes nothing more.
    """
    asked = f"rollback {name} {query.model_dump_json()}".encode()
    with idempotency_keys.use(idempotency_key, asked):
        done = amendments.roll_back(
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
def list_rollbacks(name: str, amendments: AmendmentsDep) -> Page[RollbackOut]:
    """List the roll-backs of a dataflow, newest first: who undid what, and why."""
    return Page(items=[_shown(one) for one in reversed(amendments.rollbacks(name))])


def _moment(one: Moment) -> MomentOut:
    at = datetime.fromtimestamp(one.cut.at_ms / 1000, UTC) if one.stage else None
    return MomentOut(position=one.cut.number, stage=one.stage, epoch=one.epoch, at=at)


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
