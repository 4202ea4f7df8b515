"""State: point look-up by key. Columns of the key are query parameters, typed by the schema."""

from __future__ import annotations

from fastapi import Request

from cbp.errors import NotFoundError
from cbp.model.dataflow import Dataflow
from cbp.model.schema import Schema
from controller.api.keys import NULL_PARAMETER, parse_key
from controller.api.routing import ServicesParameter, problems, router
from controller.api.schemas import Records
from controller.api.values import json_value

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


@routes.get(
    "/dataflows/{name}/state/{stage}/{state}",
    openapi_extra=_KEY_PARAMETERS,
    responses=problems(404),
)
def look_up(
    name: str, stage: str, state: str, request: Request, services: ServicesParameter
) -> Records:
    """Return the published state records of one key; 404 when there is none."""
    schema = _key_schema(services.controller.dataflow(name), stage, state)
    key = parse_key(schema, request.query_params.multi_items())
    found = services.controller.look_up(name, stage, state, key)
    if not found:
        shown = ", ".join(f"{column}={json_value(value)}" for column, value in key.items())
        raise NotFoundError(kind="state record", name=f"{name}/{stage}.{state} {shown}")
    return Records(items=[json_value(record) for record in found])


def _key_schema(dataflow: Dataflow, stage: str, state: str) -> Schema:
    node = dataflow.stages.get(stage)
    if node is None:
        raise NotFoundError(kind="stage", name=f"{dataflow.name}.{stage}")
    key = node.translator.key
    if key is None or all(spec.name != state for spec in node.translator.states):
        raise NotFoundError(kind="state", name=f"{dataflow.name}/{stage}.{state}")
    return key
