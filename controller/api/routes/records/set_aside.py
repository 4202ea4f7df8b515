"""What a stage has set aside, and how it is given back."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Any

from fastapi import Query
from pydantic import Field

from cbp.errors import NotFoundError
from controller.access.scopes import Scope
from controller.api.answers.schemas import Model, Page, PageQuery
from controller.api.routing.cursors import CursorsDep
from controller.api.routing.dependencies import (
    AmendmentsDep,
    ControllerDep,
    IdempotencyKey,
    IdempotencyKeysDep,
    ReadingDep,
    SettingsDep,
)
from controller.api.routing.routers import page_size, problems, router
from controller.api.routing.scopes import needs
from controller.loop.recovery.corrections import GivenBack
from controller.store.errors import CursorInvalidError

routes = router("stages")


class SetAsideOut(Model):
    """A record that is set aside."""

    epoch: int = Field(description="Epoch of the run that set it aside.")
    number: int = Field(description="Its place among those of that run.")
    input: str | None = Field(description="Null for a call that a timer asked for.")
    key: dict[str, Any] | None = Field(
        description="The key of its group; null for a record that is a group of its own."
    )
    record: dict[str, Any] | None = Field(description="Null for a call that a timer asked for.")
    code: str = Field(
        description="Code of the error; `set_aside_behind` if earlier records of its group wait."
    )
    message: str
    increment: int | None = Field(description="Its increment, in the flow that the input reads.")
    file: str | None = Field(description="The file that brought it, if a source did.")
    line: int | None = Field(description="Its line in that file, from 1, if it is known.")
    set_aside_at: datetime


class GiveBackQuery(Model):
    """The person who gives records back, and the reason."""

    reason: str = Field(min_length=1, max_length=1000)
    by: str = Field("", max_length=200, description="Who asks for it.")


class GivenBackOut(Model):
    """What became of the records that a stage had set aside."""

    stage: str
    records: int = Field(description="Records that were applied.")
    left: int = Field(description="Records that fail again, and stay set aside.")
    epoch: int | None = Field(description="The epoch that applied them; null if it was only tried.")
    run: str | None


@routes.get("/dataflows/{name}/stages/{stage}/set-aside", responses=problems(400, 404))
@needs(Scope.VIEWER)
def list_set_aside(
    name: str,
    stage: str,
    controller: ControllerDep,
    reading: ReadingDep,
    settings: SettingsDep,
    cursors: CursorsDep,
    query: Annotated[PageQuery, Query()],
) -> Page[SetAsideOut]:
    """List what a stage has set aside, in the order in which it is given back."""
    if stage not in controller.dataflow(name).stages:
        raise NotFoundError(kind="stage", name=f"{name}.{stage}")
    after, rows = _place(cursors.open(query.cursor)), reading.set_aside(name, stage)
    left = [row for row in rows if (row["epoch"], row["number"]) > after]
    shown = left[: page_size(settings, query)]
    more = None
    if len(shown) < len(left):
        more = f"{shown[-1]['epoch']}/{shown[-1]['number']}"
    return Page(items=[_shown(row) for row in shown], cursor=cursors.seal(more))


@routes.post("/dataflows/{name}/stages/{stage}/give-back", responses=problems(404, 409, 422, 503))
@needs(Scope.ADMIN)
def give_back(
    name: str,
    stage: str,
    amendments: AmendmentsDep,
    idempotency_keys: IdempotencyKeysDep,
    query: Annotated[GiveBackQuery, Query()],
    idempotency_key: IdempotencyKey = None,
) -> GivenBackOut:
    """Give back what a stage had set aside, in its order, as an epoch of its own.

    What fails again stays set aside. A request that repeats an Idempotency-Key gets the first
    answer and gives nothing back.
    """
    asked = f"give back {name} {stage} {query.model_dump_json()}".encode()
    with idempotency_keys.use(idempotency_key, asked):
        given = amendments.give_back(
            name, stage, who=query.by, why=query.reason, request=idempotency_key or ""
        )
    return _given(stage, given)


@routes.post(
    "/dataflows/{name}/stages/{stage}/give-back/preview", responses=problems(404, 409, 422, 503)
)
@needs(Scope.OPERATOR, changes=False)
def preview_give_back(name: str, stage: str, amendments: AmendmentsDep) -> GivenBackOut:
    """Call the stage's code with what is set aside, and tell what fails; changes nothing."""
    return _given(stage, amendments.try_to_give_back(name, stage))


def _given(stage: str, given: GivenBack) -> GivenBackOut:
    made = given.made
    return GivenBackOut(
        stage=stage,
        records=given.records,
        left=given.left,
        epoch=None if made is None else made.epoch,
        run=None if made is None else made.run,
    )


def _shown(row: dict[str, Any]) -> SetAsideOut:
    parsed = {
        name: None if row[name] is None else json.loads(row[name]) for name in ("key", "record")
    }
    return SetAsideOut.model_validate({**row, **parsed})


def _place(cursor: str | None) -> tuple[int, int]:
    if cursor is None:
        return -1, -1
    epoch, _, number = cursor.partition("/")
    if not (epoch.isascii() and epoch.isdigit() and number.isascii() and number.isdigit()):
        raise CursorInvalidError(cursor)
    return int(epoch), int(number)
