"""State: point look-up by key, and paging through all of it; as of now, an epoch, or a time.

Key columns are query parameters, typed by the schema. All other parameters of a look-up begin
with `_`, which no column does: `_null`, `_epoch`, `_stage`, `_at`.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Request
from pydantic import AwareDatetime

from cbp.errors import NotFoundError
from controller.api.answers.json_values import json_value
from controller.api.answers.schemas import Records
from controller.api.requests.keys import NULL_PARAMETER, parse_key, schemas_of
from controller.api.requests.moments import MomentPageQuery, MomentQuery, as_of
from controller.api.routing.dependencies import ControllerDep, ReadingDep, SettingsDep
from controller.api.routing.routers import page_size, problems, router

__all__ = ["routes"]

routes = router("state")

_KEY_PARAMETERS = {
    "parameters": [
        {
            "name": "key",
            "in": "query",
            "required": True,
            "style": "form",
            "explode": True,
            "description": f"One parameter per key column; `{NULL_PARAMETER}=column` for null.",
            "schema": {"type": "object", "additionalProperties": {"type": "string"}},
        }
    ]
}


_MOMENT = ("_epoch", "_stage", "_at")


@routes.get(
    "/dataflows/{name}/state/{stage}/{state}",
    openapi_extra=_KEY_PARAMETERS,
    responses=problems(404, 409, 410),
)
def look_up(
    name: str,
    stage: str,
    state: str,
    request: Request,
    controller: ControllerDep,
    reading: ReadingDep,
    epoch: Annotated[int | None, Query(alias="_epoch", ge=0)] = None,
    epoch_of: Annotated[str | None, Query(alias="_stage", max_length=200)] = None,
    at: Annotated[AwareDatetime | None, Query(alias="_at")] = None,
) -> Records:
    """Return the published state records of one key; 404 when there is none."""
    schema, _ = schemas_of(controller.dataflow(name), stage, state)
    pairs = [one for one in request.query_params.multi_items() if one[0] not in _MOMENT]
    key = parse_key(schema, pairs)
    moment = as_of(MomentQuery(epoch=epoch, stage=epoch_of, at=at), prefix="_")
    records = reading.look_up(name, stage, state, key, moment)
    if not records:
        shown = ", ".join(f"{column}={json_value(value)}" for column, value in key.items())
        raise NotFoundError(kind="state record", name=f"{name}/{stage}.{state} {shown}")
    return Records(items=[json_value(record) for record in records])


@routes.get("/dataflows/{name}/state/{stage}/{state}/records", responses=problems(404, 409, 410))
def page(
    name: str,
    stage: str,
    state: str,
    controller: ControllerDep,
    reading: ReadingDep,
    settings: SettingsDep,
    query: Annotated[MomentPageQuery, Query()],
) -> Records:
    """Read a page of a state, ordered by the hash of its key.

    All pages are of one snapshot, that of the first page: complete and without duplicates while
    runs continue.
    """
    schemas_of(controller.dataflow(name), stage, state)
    limit = page_size(settings, query)
    records, cursor = reading.page_state(name, stage, state, query.cursor, limit, as_of(query))
    return Records(items=[json_value(record) for record in records], cursor=cursor)
