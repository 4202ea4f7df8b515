"""Recovery: what is committed and not yet published, and what the last recoveries did."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Literal

from fastapi import Query
from pydantic import Field

from cbp.model.instants import instant_of
from controller.access.identity import Identity
from controller.api.answers.schemas import Model, Page, PageQuery
from controller.api.requests.moments import RangePageQuery
from controller.api.routing.cursors import CursorsDep
from controller.api.routing.dependencies import CallerDep, ControllerDep, ExchangeDep
from controller.api.routing.router_factory import Scope, needs, problems, router
from controller.api.routing.scope_check import require_granted
from controller.loop.reading.recovery_preview import OpenIntention
from controller.loop.recovery.recovery_notes import RecoveryNote

routes = router("recovery")


class IntentionsQuery(PageQuery):
    """The part of a dataflow's open intentions that a client wants."""

    stage: str | None = Field(None, max_length=200, description="Only runs of this stage.")


class IntentionOut(Model):
    """A committed run that readers of the tables do not see yet."""

    stage: str
    epoch: int
    run: str
    since: datetime = Field(description="When it was committed.")
    waits_for: Literal["publication", "finish"] = Field(
        description="`finish`: publishing or recording the run failed, and is retried. "
        "`publication`: nothing failed."
    )
    because: str = Field(
        description="Why it failed, and when it is retried; empty if nothing failed."
    )
    tries: int
    records: int = Field(description="Records of its outputs.")
    tables: list[str] = Field(description="Tables that will change.")


class RedoneOut(Model):
    """Epochs of one stage that were published and recorded again."""

    stage: str
    first: int
    last: int


class DataflowRecoveredOut(Model):
    """What a recovery did to one dataflow."""

    dataflow: str
    redone: list[RedoneOut]
    interrupted: list[str] = Field(description="`stage/epoch` of runs that begin again.")
    position: int | None = Field(description="Position that was restored; `null` if there is none.")
    generation: int | None = Field(
        description="Roll-back that was finished; `null` if there is none."
    )
    problem: str = Field(
        description="Why it could not be recovered immediately; empty if it could."
    )


class RecoveryOut(Model):
    """One recovery of an instance that became leader."""

    at: datetime
    term: int = Field(description="Epoch of the lease.")
    instance: str = Field(description="Address of the instance; empty if it is not known.")
    seconds: float
    dataflows: list[DataflowRecoveredOut] = Field(description="Dataflows that it changed.")
    removed: list[str] = Field(
        description="Removed folders, which a purge or a verification had left behind."
    )


class RecoveriesQuery(RangePageQuery):
    """Which recoveries a client wants."""

    dataflow: str | None = Field(None, max_length=200, description="Only actions on this dataflow.")


@routes.get("/dataflows/{name}/intentions", responses=problems(404))
@needs(Scope.VIEWER, leader_only=True)
def list_intentions(
    name: str, controller: ControllerDep, cursors: CursorsDep, query: IntentionsQuery = Query()
) -> Page[IntentionOut]:
    """List committed runs that are not yet published, by stage and epoch."""
    every = controller.open_intentions(name)
    wanted = [one for one in every if query.stage in (None, one.intention.stage)]
    if (after := cursors.named(query.cursor)) is not None:
        wanted = [one for one in wanted if (one.intention.stage, one.intention.epoch) > after]
    return cursors.first_of(
        wanted, query, lambda one: f"{one.intention.stage}/{one.intention.epoch}", _intention
    )


@routes.get("/recoveries")
@needs(Scope.VIEWER, any_dataflow=True, leader_only=True)
def list_recoveries(
    controller: ControllerDep,
    exchange: ExchangeDep,
    caller: CallerDep,
    cursors: CursorsDep,
    query: RecoveriesQuery = Query(),
) -> Page[RecoveryOut]:
    """List the last 20 recoveries and their actions, newest first, also from before a restart.

    A recovery that had no work to do is listed until the next start. A token that is limited to
    some dataflows sees only the actions on these. Without a `limit` all are returned.
    """
    if query.dataflow is not None:
        require_granted(exchange, query.dataflow)
    every = [note for note in controller.recovery_notes.notes() if query.holds(note.at)]
    notes = [shown for note in every if (shown := _visible(note, caller)) is not None]

    def show(note: RecoveryNote) -> RecoveryOut:
        only = query.dataflow
        of_it = [one for name, one in note.dataflows.items() if only in (None, name)]
        return RecoveryOut.of(note, dataflows=of_it)

    return cursors.about(query.dataflow or "").short_list(
        notes, query, lambda one: f"{one.term}/{one.at.isoformat()}", show
    )


def _intention(one: OpenIntention) -> IntentionOut:
    return IntentionOut.of(one, one.intention, since=instant_of(one.intention.prepared_ms))


def _visible(note: RecoveryNote, caller: Identity) -> RecoveryNote | None:
    """Return the actions of a recovery that a caller may see; `None` if there are none."""
    if caller.dataflows is None:
        return note
    mine = {name: one for name, one in note.dataflows.items() if caller.may_touch(name)}
    # Removed folders can belong to any dataflow.
    return replace(note, dataflows=mine, removed=()) if mine else None
