"""Records that a stage has set aside, and their give-back."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from fastapi import Query
from pydantic import Field

from cbp.errors import NotFoundError
from controller.api.answers.jobs import JobOut, JobStatus
from controller.api.answers.schemas import Model, Page
from controller.api.requests.moments import RefusalPageQuery
from controller.api.routing.cursors import CursorsDep
from controller.api.routing.dependencies import (
    ControllerDep,
    GiveBackJobsDep,
    IdempotencyKey,
    IdempotencyKeysDep,
    ReadingDep,
)
from controller.api.routing.router_factory import PREFIX, Scope, needs, problems, router
from controller.loop.operations.jobs import GiveBackJob
from controller.loop.recovery.corrections import GivenBack
from controller.store.errors import CursorInvalidError

routes = router("stages", "/dataflows/{name}/stages/{stage}")

_FIRST = -(2**63), -1
"""A place before all records."""


class SetAsideOut(Model):
    """A record that is set aside."""

    epoch: int = Field(
        description="Epoch of the run that set the record aside; negative for a run of a rebuild "
        "that is swapped in."
    )
    number: int = Field(
        description="Position of the record among those that the same run set aside."
    )
    input: str | None = Field(description="`null` for a call that a timer caused.")
    key: dict[str, Any] | None = Field(
        description="The key of its group; `null` for a record that is a group of its own."
    )
    record: dict[str, Any] | None = Field(description="`null` for a call that a timer caused.")
    code: str = Field(
        description="Code of the error; `set_aside_behind` if it waits behind earlier records of "
        "its group."
    )
    message: str
    increment: int | None = Field(
        description="The increment of the record, in the flow that the input reads."
    )
    file: str | None = Field(
        description="The file that contained the record, if the record came from a source."
    )
    line: int | None = Field(description="Its line in that file, from 1, if it is known.")
    set_aside_at: datetime


class GiveBackQuery(Model):
    """The person who gives records back, and the reason."""

    reason: str = Field(min_length=1, max_length=1000)
    by: str = Field("", max_length=200, description="Who asks for it.")


class GivenBackOut(Model):
    """The result for the records that a stage had set aside."""

    stage: str
    records: int = Field(description="Records that were applied.")
    left: int = Field(description="Records that fail again, and stay set aside.")
    epoch: int | None = Field(
        description="The epoch that applied the records; null if this was only a trial."
    )
    run: str | None


class GiveBackJobOut(JobOut):
    """A give-back that is under way, or has ended."""

    status: JobStatus
    stage: str
    given_back: GivenBackOut | None = Field(
        description="What was done; `null` until the give-back is done."
    )


@routes.get("/set-aside", responses=problems(400, 404))
@needs(Scope.VIEWER)
def list_set_aside(
    name: str,
    stage: str,
    controller: ControllerDep,
    reading: ReadingDep,
    cursors: CursorsDep,
    query: RefusalPageQuery = Query(),
) -> Page[SetAsideOut]:
    """List the records that a stage has set aside, in the order in which they are given back."""
    if stage not in controller.dataflow(name).stages:
        raise NotFoundError(kind="stage", name=f"{name}.{stage}")
    after, rows = _place(cursors.open(query.cursor)), reading.set_aside(name, stage)
    left = [
        row
        for row in rows
        if (row["epoch"], row["number"]) > after
        and query.code in (None, row["code"])
        and query.holds(row["set_aside_at"])
    ]
    return cursors.first_of(left, query, lambda row: f"{row['epoch']}/{row['number']}", _shown)


@routes.post("/give-back", status_code=202, responses=problems(404, 409, 422, 503))
@needs(Scope.ADMIN)
def give_back(
    name: str,
    stage: str,
    jobs: GiveBackJobsDep,
    idempotency_keys: IdempotencyKeysDep,
    query: GiveBackQuery = Query(),
    idempotency_key: IdempotencyKey = None,
) -> GiveBackJobOut:
    """Begin to give back set-aside records of a stage, in order, in a separate epoch.

    Poll the job until it has ended. Records that fail again stay set aside. A request that repeats
    an Idempotency-Key gets the same job, and gives nothing more back.
    """
    asked = f"give back {name} {stage} {query.model_dump_json()}".encode()
    with idempotency_keys.use(idempotency_key, asked):
        job = jobs.start(name, stage, who=query.by, why=query.reason, request=idempotency_key or "")
    return _job(job)


@routes.post("/give-back/preview", status_code=202, responses=problems(404, 409, 422, 503))
@needs(Scope.OPERATOR, changes=False)
def preview_give_back(name: str, stage: str, jobs: GiveBackJobsDep) -> GiveBackJobOut:
    """Begin to try the stage's code on set-aside records; changes nothing."""
    return _job(jobs.start_trial(name, stage))


@routes.get("/give-back/jobs/{job}", responses=problems(404))
@needs(Scope.VIEWER, leader_only=True)
def show_give_back(name: str, stage: str, job: str, jobs: GiveBackJobsDep) -> GiveBackJobOut:
    """Show the progress or the result of a give-back or of a trial."""
    shown = jobs.show(name, job)
    if shown.stage != stage:
        raise NotFoundError(kind=jobs.kind, name=job)
    return _job(shown)


def _job(one: GiveBackJob) -> GiveBackJobOut:
    path = f"{PREFIX}/dataflows/{one.dataflow}/stages/{one.stage}/give-back/jobs/{one.id}"
    done = None if one.result is None else _given(one.stage, one.result)
    return GiveBackJobOut.at(path, one, given_back=done)


def _given(stage: str, given: GivenBack) -> GivenBackOut:
    made = given.made
    return GivenBackOut.of(
        given,
        stage=stage,
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
        return _FIRST
    epoch, _, number = cursor.partition("/")
    digits = (epoch.removeprefix("-"), number)  # a rebuild beside counts its epochs below 0
    if not all(part.isascii() and part.isdigit() for part in digits):
        raise CursorInvalidError(cursor)
    return int(epoch), int(number)
