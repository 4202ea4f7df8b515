"""Rebuilds of all tables beside the present ones: build, show differences, swap in, go back."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from fastapi import Query, Request
from pydantic import Field, StringConstraints
from starlette.concurrency import run_in_threadpool

from controller.api.answers.jobs import JobOut
from controller.api.answers.schemas import Model, Page, Problem
from controller.api.requests.body import read_document_body, require_name
from controller.api.requests.moments import ErrorCode, RangePageQuery
from controller.api.routing.cursors import CursorsDep, page_behind
from controller.api.routing.dependencies import CallerDep, ControllerDep, RebuildJobsDep, StoreDep
from controller.api.routing.router_factory import (
    PREFIX,
    Scope,
    needs,
    problems,
    request_body,
    router,
)
from controller.loop.rebuild.build_in_progress import RebuildJob

routes = router("rebuilds", "/dataflows/{name}/rebuilds")

Seed = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*=.+$", max_length=4_000)]
_SEED = (
    "`SOURCE=PATH`: read a Parquet file, a folder of them, or a Delta table on the service's "
    "machine, below `CBP_SOURCE_ROOTS`, instead of the source's input that is no longer kept."
)
_BODY = request_body(
    "application/json",
    "application/yaml",
    schema={"type": "object", "description": "As for `PUT /dataflows/{name}`."},
    required=False,
    description="The document of the version to build; without it, the registered version is built "
    "again.",
)


class TableDifferenceOut(Model):
    """How one table would differ after the swap, in records."""

    table: str
    before: int = Field(description="Number of records in the present table.")
    after: int = Field(description="Number of records in the new table.")
    added: int | None = Field(
        description="Number of added records; `null` if the table was not compared."
    )
    gone: int | None
    changed: int | None = Field(
        description="Number of records whose key is in both tables, with other values."
    )
    because: str = Field(description="Why the table was not compared; empty if it was.")


class RebuildJobOut(JobOut):
    """A rebuild that is under way, or has ended."""

    version: int
    status: Literal["building", "ready", "swapping", "swapped", "cancelled", "failed"]
    tables: list[TableDifferenceOut] = Field(
        description="Differences between the present and the new tables, once the rebuild is ready."
    )
    exact: bool = Field(
        description="Whether the present and the new tables had applied the same input when they "
        "were compared. Otherwise some differences come from increments that only one side had "
        "applied."
    )
    share: float = Field(
        description="Share of the time in which the rebuild works (`CBP_REBUILD_SHARE`). It pauses "
        "between its runs, and while a run of the dataflow is under way."
    )
    rested: float = Field(description="How long the rebuild has paused, in seconds.")
    by: str = Field(description="Who asked for the rebuild.")
    ended_by: str = Field(description="Who asked for the swap, or cancelled the rebuild.")
    ended_at: datetime | None
    anew: str = Field(
        description="Why the rebuild started over after a restart or a fault; empty if it did not "
        "start over."
    )
    again_at: datetime | None = Field(
        description="Time of the next attempt, while the rebuild waits for a fault of the "
        "environment, such as a full disk, to be repaired (see `error`); `null` if it does not "
        "wait."
    )
    error: Problem | None = Field(
        description="Why the rebuild or its last swap failed, or why the rebuild waits."
    )


class RebuildsQuery(RangePageQuery):
    """Which rebuilds to list."""

    error_code: ErrorCode = Field(
        None, description="Code of the error that ended the rebuild, or that makes it wait."
    )


class RebuildsOut(Page[RebuildJobOut]):
    """The rebuilds of a dataflow since the service started, and the last one before that."""

    back_until: datetime | None = Field(
        description="Time until which the tables from before the last swap are kept, so that the "
        "swap can be undone; `null` if the current version did not begin with a swap."
    )


class SwappedBackOut(Model):
    """The version that shows the tables from before the last swap again."""

    dataflow: str
    version: int


@routes.post("", status_code=202, openapi_extra=_BODY, responses=problems(404, 409, 413, 415))
@needs(Scope.ADMIN)
async def start(
    name: str,
    request: Request,
    controller: ControllerDep,
    jobs: RebuildJobsDep,
    caller: CallerDep,
    seed: Annotated[list[Seed] | None, Query(max_length=100, description=_SEED)] = None,
) -> RebuildJobOut:
    """Begin to rebuild all tables beside the present ones, from all retained input.

    With a document, the rebuild makes that version, with the code that is on disk. Without one, it
    rebuilds the registered version with its registered code, and is refused (`code_drifted`) if
    that code no longer exists. Until the swap the dataflow continues, and readers see its present
    tables. The request is refused, before any change, if needed input is no longer retained.
    """
    seeds = dict(one.split("=", 1) for one in seed or ())
    given = request.headers.get("content-type") is not None
    body = await read_document_body(request) if given else None

    def begin() -> RebuildJob:
        if body is None or not body.body:
            return jobs.start_present(name, seeds=seeds, by=caller.actor)
        with body.parsed() as document:
            require_name(document, name, "rebuilt")
            dataflow = controller.validate(document.values, document.duplicates)
            return jobs.start(document.values, dataflow, seeds=seeds, by=caller.actor)

    return _job(await run_in_threadpool(begin))


@routes.get("", responses=problems(404))
@needs(Scope.VIEWER, leader_only=True)
def list_rebuilds(
    name: str,
    store: StoreDep,
    jobs: RebuildJobsDep,
    cursors: CursorsDep,
    query: RebuildsQuery = Query(),
) -> RebuildsOut:
    """List the rebuilds of a dataflow, newest first, and the time until which a swap can be undone.

    Without a `limit` all of them are returned. The last rebuild is also listed after a restart of
    the service.
    """
    shown, more = page_behind(
        jobs.all(name),
        lambda one: one.id,
        place=cursors.open(query.cursor),
        size=cursors.size_or_all(query),
        holds=lambda one: (
            query.holds(one.began_at)
            and query.error_code in (None, None if one.error is None else one.error.code)
        ),
    )
    until = jobs.swaps.back_until(store.dataflow(name))
    return RebuildsOut(
        items=[_job(one) for one in shown], cursor=cursors.seal(more), back_until=until
    )


@routes.get("/{rebuild}", responses=problems(404))
@needs(Scope.VIEWER, leader_only=True)
def show(name: str, rebuild: str, jobs: RebuildJobsDep) -> RebuildJobOut:
    """Show the progress of a rebuild and, once it is ready, the differences."""
    return _job(jobs.show(name, rebuild))


@routes.post("/{rebuild}/swap", status_code=202, responses=problems(404, 409))
@needs(Scope.ADMIN)
def swap(name: str, rebuild: str, jobs: RebuildJobsDep, caller: CallerDep) -> RebuildJobOut:
    """Begin to swap in the new tables, all at one time.

    Poll the rebuild until it has ended. Input that arrived meanwhile is applied first.
    """
    return _job(jobs.swap(name, rebuild, by=caller.actor))


@routes.post("/{rebuild}/cancel", status_code=202, responses=problems(404, 409))
@needs(Scope.ADMIN)
def cancel(name: str, rebuild: str, jobs: RebuildJobsDep, caller: CallerDep) -> RebuildJobOut:
    """Cancel a rebuild and remove its tables; nothing else changes. Idempotent.

    A failed rebuild can be cancelled too, which ends its alert.
    """
    return _job(jobs.cancel(name, rebuild, by=caller.actor))


@routes.post("/back", responses=problems(404, 409))
@needs(Scope.ADMIN)
def back(name: str, jobs: RebuildJobsDep) -> SwappedBackOut:
    """Go back to the tables and the version from before the last swap.

    Input that arrived since the swap is then applied by that version.
    """
    return SwappedBackOut(dataflow=name, version=jobs.swaps.back(name).version)


def _job(one: RebuildJob) -> RebuildJobOut:
    path = f"{PREFIX}/dataflows/{one.dataflow}/rebuilds/{one.id}"
    return RebuildJobOut.at(path, one)
