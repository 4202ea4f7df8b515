"""State: point look-up by key, and paging through all of it; as of now, an epoch, or a time.

Key columns are query parameters, typed by the schema. All other parameters of a look-up begin
with `_`, which no column does: `_null`, `_epoch`, `_stage`, `_at`, `_limit`, `_cursor`.

The history of one key is `controller.api.routes.records.state_history`.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Request

from cbp.errors import NotFoundError
from controller.access.scopes import Scope
from controller.api.answers.json_values import json_value
from controller.api.answers.schemas import PAGE_SIZE_MAX, PageQuery, Records
from controller.api.requests.keys import KEY_PARAMETERS, parse_key, schemas_of, second_key_of
from controller.api.requests.moments import Instant, MomentPageQuery, MomentQuery, as_of
from controller.api.routing.cursors import CURSOR_MAX, CursorsDep
from controller.api.routing.dependencies import ControllerDep, ReadingDep
from controller.api.routing.read_routes import read_anywhere
from controller.api.routing.routers import problems, router
from controller.api.routing.scope_check import needs

routes = router("state")

_OWN = ("_epoch", "_stage", "_at", "_limit", "_cursor")
"""Parameters of a look-up that are not columns."""
_NULL_WORDS = ("", "-", "null", "NULL", "None")
"""Texts that may be meant as null, which has a parameter of its own."""


@routes.get(
    "/dataflows/{name}/state/{stage}/{state}",
    openapi_extra=KEY_PARAMETERS,
    responses=problems(404, 409, 410),
)
@needs(Scope.VIEWER)
@read_anywhere
def look_up(
    name: str,
    stage: str,
    state: str,
    request: Request,
    controller: ControllerDep,
    reading: ReadingDep,
    cursors: CursorsDep,
    epoch: Annotated[int | None, Query(alias="_epoch", ge=0)] = None,
    epoch_of: Annotated[str | None, Query(alias="_stage", max_length=200)] = None,
    at: Annotated[Instant | None, Query(alias="_at")] = None,
    limit: Annotated[int | None, Query(alias="_limit", ge=1, le=PAGE_SIZE_MAX)] = None,
    cursor: Annotated[str | None, Query(alias="_cursor", max_length=CURSOR_MAX)] = None,
) -> Records:
    """Return the published state records of one key, page by page; 404 when there is none.

    For a view or a kept state, further columns of its key select among the key's records. All pages
    show the snapshot of the first page.
    """
    dataflow = controller.dataflow(name)
    schema, _ = schemas_of(dataflow, stage, state)
    pairs = [one for one in request.query_params.multi_items() if one[0] not in _OWN]
    second = second_key_of(dataflow, stage, state)
    given = parse_key(schema, pairs, optional=second)
    key = {column: given[column] for column in schema.names}
    moment = as_of(MomentQuery(epoch=epoch, stage=epoch_of, at=at), prefix="_")
    among = {column: value for column, value in given.items() if column not in key}
    cursors = cursors.about(*(f"{column}={text}" for column, text in sorted(pairs)))
    size, place = cursors.size(PageQuery(limit=limit)), cursors.open(cursor)
    records, behind = reading.page_key(name, stage, state, key, place, size, moment, among)
    if not records:
        shown = ", ".join(f"{column}={json_value(value)}" for column, value in given.items())
        nulls = [column for column, value in given.items() if value in _NULL_WORDS]
        hint = "".join(f"if {one} is null: --null {one} (REST: _null={one})" for one in nulls[:1])
        raise NotFoundError(kind="state record", name=f"{name}/{stage}.{state} {shown}", hint=hint)
    return Records(items=[json_value(record) for record in records], cursor=cursors.seal(behind))


@routes.get("/dataflows/{name}/state/{stage}/{state}/records", responses=problems(404, 409, 410))
@needs(Scope.VIEWER)
@read_anywhere
def page(
    name: str,
    stage: str,
    state: str,
    controller: ControllerDep,
    reading: ReadingDep,
    cursors: CursorsDep,
    query: Annotated[MomentPageQuery, Query()],
) -> Records:
    """Read a page of a state, ordered by the hash of its key.

    All pages show the snapshot of the first page, so they are complete and without duplicates while
    runs continue.
    """
    schemas_of(controller.dataflow(name), stage, state)
    limit, place = cursors.size(query), cursors.open(query.cursor)
    records, cursor = reading.page_state(name, stage, state, place, limit, as_of(query))
    return Records(items=[json_value(record) for record in records], cursor=cursors.seal(cursor))
