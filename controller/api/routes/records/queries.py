"""SQL over a snapshot of a dataflow, and the current record per key of one table of it.

Both read one consistent snapshot of all tables, as `GET /dataflows/{name}/snapshot` describes it. A
query is one SELECT; `controller.query` defines what it may read, and its limits.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Literal

from fastapi import Query, Request, Response
from pydantic import Field

from cbp.model.flow.schema import Schema
from cbp.model.flow.snapshot import Snapshot
from cbp.model.instants import instant_of
from controller.api.answers.json_values import json_value
from controller.api.answers.record_files import (
    CURSOR_HEADER,
    NEXT_CURSOR,
    TRUNCATED_HEADER,
    csv_of_rows,
    file_page,
)
from controller.api.answers.schemas import PAGE_SIZE_MAX, Model, PageQuery, Records
from controller.api.requests.keys import KEY_PARAMETERS, parse_key
from controller.api.requests.moments import Instant, MomentQuery, as_of
from controller.api.routing.cursors import CURSOR_MAX, CursorsDep
from controller.api.routing.dependencies import ControllerDep, QueriesDep, SettingsDep, SnapshotsDep
from controller.api.routing.router_factory import Scope, needs, problems, router
from controller.loop.reading.reader import AsOf
from controller.loop.reading.snapshots import Snapshots
from controller.query import Answer, Question, current_table
from controller.query.query_limits import SQL_CHARACTERS_MAX
from controller.query.statement import sql_names

routes = router("queries")

_OWN = ("_epoch", "_stage", "_at", "_limit", "_cursor", "_by", "_format")
_NO_KEY = Schema(())
_WHOLE_NUMBERS = ("HUGEINT", "UHUGEINT")


class QueryIn(MomentQuery):
    """A query, and the snapshot that it reads; without one, the newest."""

    sql: str = Field(
        min_length=1,
        max_length=SQL_CHARACTERS_MAX,
        description="One SELECT in DuckDB's SQL. Tables are named `stage.state`, `stage.output`, "
        "and `stage.view_changes` for the changes of a view.",
        examples=["SELECT url, n FROM count.counts ORDER BY n DESC LIMIT 10"],
    )
    format: Literal["json", "csv"] = Field("json", description="The format of the answer.")
    limit: int | None = Field(None, ge=1, strict=True, description="Maximum number of rows.")
    epoch: int | None = Field(
        None, ge=0, strict=True, description="The first snapshot that shows this epoch."
    )


class ColumnOut(Model):
    """One column of an answer."""

    name: str
    type: str


class QueryOut(Model):
    """The rows of a query."""

    dataflow: str
    at: datetime = Field(description="Time of the last publication in the snapshot.")
    epochs: dict[str, int] = Field(
        description="Maps each stage to its last epoch in the snapshot; -1 if there is none."
    )
    tables: list[str] = Field(description="The tables that the query read.")
    columns: list[ColumnOut]
    rows: list[list[Any]]
    truncated: bool = Field(description="Whether there were more rows.")
    seconds: float


class SqlTableOut(Model):
    """A table that queries can name."""

    name: str
    columns: str
    path: str = Field(description="The folder of the table, below the folder of the dataflow.")


class SqlTablesOut(Model):
    """The tables of a dataflow, by their names in SQL."""

    items: list[SqlTableOut]


@routes.post(
    "/dataflows/{name}/query",
    responses={
        **problems(404, 409, 410),
        200: {"model": QueryOut, "content": {"text/csv": {}}, "description": "The rows."},
    },
    response_model=None,
)
@needs(Scope.VIEWER, changes=False, any_instance=True)
def query(
    name: str, body: QueryIn, snapshots: SnapshotsDep, queries: QueriesDep
) -> QueryOut | Response:
    """Run one SELECT over a consistent snapshot of all tables of a dataflow.

    A query can read nothing else. It is stopped if it takes too much time or memory.
    """
    snapshot = _take(snapshots, name, as_of(body) or AsOf())
    answer = queries.run(Question(body.sql, snapshot, rows=body.limit))
    rows = _json_rows(answer)
    if body.format == "csv":
        text = csv_of_rows([column for column, _ in answer.columns], rows)
        headers = {TRUNCATED_HEADER: str(answer.truncated).lower()}
        return Response(text, media_type="text/csv; charset=utf-8", headers=headers)
    return QueryOut.of(
        answer,
        dataflow=name,
        at=instant_of(snapshot.at_ms),
        epochs=snapshot.epochs,
        columns=[ColumnOut(name=column, type=type_) for column, type_ in answer.columns],
        rows=rows,
    )


@routes.get("/dataflows/{name}/query/tables", responses=problems(404))
@needs(Scope.VIEWER)
def list_tables(name: str, controller: ControllerDep, snapshots: SnapshotsDep) -> SqlTablesOut:
    """List the tables that a query can name, with their columns."""
    dataflow = controller.dataflow(name)
    schemas: dict[str, Schema] = {}
    for stage in dataflow.stages.values():
        spec = stage.translator
        for state in spec.states:
            schemas[f"state/{stage.name}.{state.name}"] = state.schema
        for output in spec.outputs:
            schemas[f"flows/{stage.name}.{output.name}"] = output.schema
    names = sql_names(_take(snapshots, name, AsOf()).tables)
    return SqlTablesOut(
        items=[
            SqlTableOut(name=one, columns=str(schemas[table]), path=table)
            for one, table in names.items()
            if table in schemas
        ]
    )


@routes.get(
    "/dataflows/{name}/current/{table}",
    openapi_extra={"parameters": [{**KEY_PARAMETERS["parameters"][0], "required": False}]},
    responses={
        **problems(404, 409, 410),
        200: {
            "model": Records,
            "content": {"text/csv": {}},
            "headers": {CURSOR_HEADER: NEXT_CURSOR},
            "description": "The records.",
        },
    },
    response_model=None,
)
@needs(Scope.VIEWER)
def current(
    name: str,
    table: str,
    request: Request,
    controller: ControllerDep,
    snapshots: SnapshotsDep,
    queries: QueriesDep,
    settings: SettingsDep,
    cursors: CursorsDep,
    epoch: Annotated[int | None, Query(alias="_epoch", ge=0)] = None,
    epoch_of: Annotated[str | None, Query(alias="_stage", max_length=200)] = None,
    at: Annotated[Instant | None, Query(alias="_at")] = None,
    limit: Annotated[int | None, Query(alias="_limit", ge=1, le=PAGE_SIZE_MAX)] = None,
    cursor: Annotated[str | None, Query(alias="_cursor", max_length=CURSOR_MAX)] = None,
    by: Annotated[
        list[str] | None,
        Query(
            alias="_by", max_length=20, description="Columns that replace the key of the output."
        ),
    ] = None,
    format_: Annotated[
        Literal["json", "csv"],
        Query(alias="_format", description="With `csv`, the default `_limit` is the maximum."),
    ] = "json",
) -> Records | Response:
    """Return the current record per key of a state, a view or an output, ordered by key.

    The last record of a key replaces earlier ones. Columns in the query select records. All pages
    show the snapshot of the first page.
    """
    wanted = current_table(controller.dataflow(name), table, by or ())
    pairs = [one for one in request.query_params.multi_items() if one[0] not in _OWN]
    where = parse_key(_NO_KEY, pairs, optional=wanted.schema)
    cursors = cursors.about(*(f"{column}={text}" for column, text in sorted(pairs)), *(by or ()))
    asked = as_of(MomentQuery(epoch=epoch, stage=epoch_of, at=at), prefix="_") or AsOf()
    if limit is None and format_ == "csv":
        limit = settings.page_size_max
    size, place = cursors.size(PageQuery(limit=limit)), cursors.pair(cursor)
    at_ms, offset = place or (None, 0)
    snapshot = _take(snapshots, name, asked if at_ms is None else AsOf(at_ms=at_ms))
    shown = {column: json_value(value) for column, value in where.items()}
    sql, values = wanted.query(shown, limit=size + 1, offset=offset)
    answer = queries.run(Question(sql, snapshot, reads=(wanted.name,), values=values))
    rows = _json_rows(answer)
    more = f"{snapshot.at_ms}/{offset + size}" if len(rows) > size else None
    names = [column for column, _ in answer.columns]
    if format_ == "csv":
        text = csv_of_rows(names, rows[:size])
        return file_page(text, f"{name}.{table}.csv", cursors.seal(more))
    items = [dict(zip(names, row, strict=True)) for row in rows[:size]]
    return Records(items=items, cursor=cursors.seal(more))


def _take(snapshots: Snapshots, name: str, asked: AsOf) -> Snapshot:
    return snapshots.take(name, epoch=asked.epoch, stage=asked.stage, at_ms=asked.at_ms)


def _json_rows(answer: Answer) -> list[list[Any]]:
    whole = [type_ in _WHOLE_NUMBERS for _, type_ in answer.columns]
    return [
        [
            int(value) if is_whole and isinstance(value, Decimal) else json_value(value)
            for value, is_whole in zip(row, whole, strict=True)
        ]
        for row in answer.rows
    ]
