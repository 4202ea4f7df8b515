"""Flows: read a page of a flow's records, oldest increment first; close its open frames."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from fastapi import Query

from cbp.errors import NotFoundError
from cbp.model.flow.punctuation import Punctuation
from controller.api.answers.json_values import json_value
from controller.api.answers.problems import IdempotencyKeyReusedError
from controller.api.answers.schemas import Page, PageQuery, PunctuationOut, Records
from controller.api.requests.moments import MomentPageQuery, as_of
from controller.api.routing.dependencies import (
    ControllerDep,
    IdempotencyKey,
    IdempotencyKeysDep,
    ReadingDep,
    SettingsDep,
    StoreDep,
)
from controller.api.routing.routers import page_size, problems, router

__all__ = ["routes"]

routes = router("flows")


@routes.get("/dataflows/{name}/flows/{flow}/records", responses=problems(404, 410))
def read(
    name: str,
    flow: str,
    controller: ControllerDep,
    reading: ReadingDep,
    settings: SettingsDep,
    query: Annotated[MomentPageQuery, Query()],
) -> Records:
    """Read a page of a flow; the flow of a source is named like the source.

    With an epoch or a time: the flow of a stage as in that snapshot, even if more is published
    meanwhile. Without: new increments follow the last page.
    """
    if flow not in controller.dataflow(name).flows():
        raise NotFoundError(kind="flow", name=f"{name}/{flow}")
    limit = page_size(settings, query)
    records, cursor = reading.read_flow(name, flow, query.cursor, limit, as_of(query))
    return Records(items=[json_value(record) for record in records], cursor=cursor)


@routes.post("/dataflows/{name}/flows/{flow}/close", status_code=201, responses=problems(404, 409))
def close(
    name: str,
    flow: str,
    controller: ControllerDep,
    idempotency_keys: IdempotencyKeysDep,
    idempotency_key: IdempotencyKey = None,
) -> PunctuationOut:
    """Close the open frames of a flow: no more records of their keys will come.

    Durable once this answers. What arrived before is framed first; records that come later
    begin new frames. Repeated with its Idempotency-Key, it gets the first answer.
    """
    with idempotency_keys.use(idempotency_key, f"close {name} {flow}".encode()):
        made = controller.close(name, flow, key=idempotency_key)
    if made.flow != flow:
        raise IdempotencyKeyReusedError
    return _shown(made, controller.framed_inputs(name, flow))


@routes.get("/dataflows/{name}/punctuations", responses=problems(404))
def list_punctuations(
    name: str,
    store: StoreDep,
    controller: ControllerDep,
    settings: SettingsDep,
    query: Annotated[PageQuery, Query()],
) -> Page[PunctuationOut]:
    """List the punctuations that closed frames of a dataflow's flows, newest first."""
    store.dataflow(name)
    page = store.punctuations(name, cursor=query.cursor, limit=page_size(settings, query))
    flows = {one.flow for one in page.items if not one.input}
    inputs = {flow: controller.framed_inputs(name, flow) for flow in flows}
    items = [_shown(one, inputs.get(one.flow, [])) for one in page.items]
    return Page(items=items, cursor=page.cursor)


def _shown(one: Punctuation, inputs: list[str]) -> PunctuationOut:
    return PunctuationOut(
        number=one.number,
        flow=one.flow,
        at=one.at,
        reason=one.reason,
        inputs=[one.input] if one.input else inputs,
        closed_at=datetime.fromtimestamp(one.closed_ms / 1000, UTC),
    )
