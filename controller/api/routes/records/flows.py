"""Flows: pages of records, as JSON or as a file; sizes over epochs; close open frames."""

from __future__ import annotations

from dataclasses import asdict
from typing import Literal

from fastapi import Query, Response
from pydantic import Field

from cbp.errors import NotFoundError
from cbp.model.flow.punctuation import Punctuation
from cbp.model.instants import instant_of
from controller.api.answers.json_values import json_value
from controller.api.answers.record_files import (
    CURSOR_HEADER,
    NEXT_CURSOR,
    csv_text,
    file_page,
    json_text,
)
from controller.api.answers.request_errors import IdempotencyKeyReusedError, RequestInvalidError
from controller.api.answers.schemas import Model, Page, PunctuationOut, Records
from controller.api.requests.moments import MomentPageQuery, RangePageQuery, as_of
from controller.api.routing.cursors import CursorsDep
from controller.api.routing.dependencies import (
    ControllerDep,
    IdempotencyKey,
    IdempotencyKeysDep,
    ReadingDep,
    SettingsDep,
    StoreDep,
)
from controller.api.routing.router_factory import Scope, needs, problems, router

routes = router("flows", "/dataflows/{name}")

_RECORDS = "flows_read"
"""The list whose pages can also be downloaded."""


class FlowPageQuery(MomentPageQuery):
    """A page of a flow."""

    newest: bool = Field(
        False, description="List the newest increment first; not with `epoch` or `at`."
    )


class DownloadQuery(FlowPageQuery):
    """A page of a flow as a file."""

    format: Literal["csv", "json"] = Field("csv", description="The format of the file.")


class SeriesQuery(Model):
    """How many increments to show, and the column whose figures to show."""

    column: str | None = Field(None, max_length=200, description="A numeric column.")
    limit: int = Field(
        100, ge=1, le=500, description="Maximum number of increments; the newest are shown."
    )


class IncrementFiguresOut(Model):
    """One increment of a flow, and figures of a column over its records that were read."""

    index: int = Field(description="Number of the increment; for the flow of a stage, the epoch.")
    records: int
    bytes: int
    read: int = Field(description="Number of its records that the figures cover.")
    nulls: int = Field(
        description="Records that were read and have no finite number in the column."
    )
    least: float | None
    most: float | None
    mean: float | None
    total: float | None


class SeriesOut(Model):
    """The newest increments of a flow, oldest first."""

    flow: str
    column: str | None
    items: list[IncrementFiguresOut]


@routes.get("/flows/{flow}/records", responses=problems(404, 410))
@needs(Scope.VIEWER, read_anywhere=True)
def read(
    name: str,
    flow: str,
    controller: ControllerDep,
    reading: ReadingDep,
    cursors: CursorsDep,
    query: FlowPageQuery = Query(),
) -> Records:
    """Read a page of a flow; the flow of a source is named like the source.

    With an epoch or a time, the pages show the flow of a stage as in that snapshot, even if more is
    published meanwhile. Otherwise new increments follow the last page. With `newest`, the newest
    increment comes first.
    """
    if flow not in controller.dataflow(name).flows():
        raise NotFoundError(kind="flow", name=f"{name}/{flow}")
    limit, place = cursors.size(query), cursors.open(query.cursor)
    if query.newest:
        if as_of(query) is not None:
            message = "a snapshot cannot be listed newest first; leave out newest, or epoch and at"
            mistake = {"code": "newest_of_snapshot", "where": "query.newest", "message": message}
            raise RequestInvalidError([mistake])
        records, cursor = reading.results.page(name, flow, place, limit)
    else:
        records, cursor = reading.read_flow(name, flow, place, limit, as_of(query))
    return Records(items=[json_value(record) for record in records], cursor=cursors.seal(cursor))


@routes.get(
    "/flows/{flow}/download",
    responses={
        **problems(404, 410),
        200: {
            "content": {"text/csv": {}, "application/json": {}},
            "headers": {CURSOR_HEADER: NEXT_CURSOR},
            "description": "The file.",
        },
    },
    response_class=Response,
)
@needs(Scope.VIEWER)
def download(
    name: str,
    flow: str,
    controller: ControllerDep,
    reading: ReadingDep,
    settings: SettingsDep,
    cursors: CursorsDep,
    query: DownloadQuery = Query(),
) -> Response:
    """Return a page of a flow as an attachment: CSV with a header, or a JSON array.

    In CSV a null is an empty cell, an empty string is `""`, and a nested value is JSON. Without a
    limit the page has the maximum size.
    """
    if query.limit is None:
        query = query.model_copy(update={"limit": settings.page_size_max})
    cursors = cursors.of_list(_RECORDS)
    page = read(name, flow, controller, reading, cursors, query)
    columns = [*controller.dataflow(name).flows()[flow].names]
    columns += [one for one in (page.items[0] if page.items else {}) if one not in columns]
    content = csv_text(columns, page.items) if query.format == "csv" else json_text(page.items)
    return file_page(content, f"{name}.{flow}.{query.format}", page.cursor)


@routes.get("/flows/{flow}/series", responses=problems(404, 410))
@needs(Scope.VIEWER)
def series(name: str, flow: str, reading: ReadingDep, query: SeriesQuery = Query()) -> SeriesOut:
    """Return the sizes of a flow's newest increments, and figures of one numeric column.

    At most 5,000 records of an increment are read, and 50,000 in all.
    """
    figures = reading.results.figures(name, flow, query.column, query.limit)
    items = [IncrementFiguresOut(**asdict(one)) for one in figures]
    return SeriesOut(flow=flow, column=query.column, items=items)


@routes.post("/flows/{flow}/close", status_code=201, responses=problems(404, 409))
@needs(Scope.ADMIN)
def close(
    name: str,
    flow: str,
    controller: ControllerDep,
    idempotency_keys: IdempotencyKeysDep,
    idempotency_key: IdempotencyKey = None,
) -> PunctuationOut:
    """Close the open frames of a flow: no more records of their keys will arrive.

    The close is durable once this answers. Records that arrived before are framed first; later
    records start new frames. A request that repeats an Idempotency-Key gets the first answer.
    """
    with idempotency_keys.use(idempotency_key, f"close {name} {flow}".encode()):
        made = controller.close(name, flow, key=idempotency_key)
    if made.flow != flow:
        raise IdempotencyKeyReusedError
    return _shown(made, controller.framed_inputs(name, flow))


@routes.get("/punctuations", responses=problems(404))
@needs(Scope.VIEWER)
def list_punctuations(
    name: str,
    store: StoreDep,
    controller: ControllerDep,
    cursors: CursorsDep,
    query: RangePageQuery = Query(),
) -> Page[PunctuationOut]:
    """List the punctuations that closed frames of a dataflow's flows, newest first."""
    store.dataflow(name)
    page = store.punctuations(
        name,
        since=query.since,
        until=query.until,
        cursor=cursors.open(query.cursor),
        limit=cursors.size(query),
    )
    flows = {one.flow for one in page.items if not one.input}
    inputs = {flow: controller.framed_inputs(name, flow) for flow in flows}
    items = [_shown(one, inputs.get(one.flow, [])) for one in page.items]
    return Page(items=items, cursor=cursors.seal(page.cursor))


def _shown(one: Punctuation, inputs: list[str]) -> PunctuationOut:
    return PunctuationOut.of(
        one, inputs=[one.input] if one.input else inputs, closed_at=instant_of(one.closed_ms)
    )
