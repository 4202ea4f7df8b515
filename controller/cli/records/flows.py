"""The commands `cbp increments` and `cbp records`: what flows hold."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any

import typer

from cbp.errors.counts import format_count
from controller.cli import session as options
from controller.cli.paging import AsCsv, FileLimit, print_csv
from controller.cli.session import AsJson, Cursor, DataflowName, Limit, Since, Until, fetch, session
from controller.terminal import (
    Cell,
    bytes_text,
    clock,
    print_items,
    print_json,
    print_more,
    print_page,
    print_records,
    print_text,
)

FlowName = Annotated[str, typer.Argument(help="`source` or `stage.output`.")]
Newest = Annotated[bool, typer.Option("--newest", help="Begin with the newest increment.")]
Column = Annotated[
    str | None, typer.Argument(help="A numeric column; without it, only sizes are shown.")
]
Grid = Annotated[bool, typer.Option("--grid", help="Show which stages applied each increment.")]
NotApplied = Annotated[
    bool,
    typer.Option(
        "--not-applied", help="With --grid: show only increments that some stage has not applied."
    ),
]
GRID_ROWS_MAX = 100
_LIMIT = 20
Flow = Annotated[str | None, typer.Option(help="Only this flow: `source` or `stage.output`.")]


def increments_command(
    context: typer.Context,
    dataflow: DataflowName,
    flow: Flow = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = 20,
    cursor: Cursor = None,
    grid: Grid = False,
    not_applied: NotApplied = False,
    json_: AsJson = False,
) -> None:
    """List the increments of a dataflow, newest first; with --grid, by stage."""
    if grid or not_applied:
        with session(context).connect() as service:
            at = ("dataflows", dataflow, "increments", "grid")
            asked = {"flow": flow, "limit": min(limit, GRID_ROWS_MAX), "cursor": cursor}
            answer = service.get(*at, **asked, not_applied="true" if not_applied else None)
        if json_:
            print_json(answer)
        else:
            _print_grid(answer)
        return
    asked = {"flow": flow, "since": since, "until": until, "limit": limit, "cursor": cursor}
    answer = fetch(context, json_, "dataflows", dataflow, "increments", **asked)
    columns: dict[str, Cell] = {
        **{name: name for name in ("flow", "index", "records", "rejected")},
        "size": (bytes_text, "bytes"),
        "arrived": (clock, "created_at"),
    }
    print_page(answer, columns, empty="no increments", rare=("rejected",))


def _print_grid(answer: Mapping[str, Any]) -> None:
    columns: dict[str, Cell] = {
        answer["flow"]: "index",
        "records": "records",
        "rejected": "rejected",
        "arrived": (clock, "created_at"),
    }
    for number, one in enumerate(answer["stages"]):
        columns[one["name"]] = (partial(_cell, number=number), "cells")
    print_items(answer["items"], columns, empty="no increments", rare=("rejected",))
    for one in answer["stages"]:
        if one["failures"] or one["stopped"]:
            again = one["stopped"] or f"the next attempt is at {clock(one['retry_at'])}"
            failed = format_count(one["failures"], "failed attempt")
            print_text(f"{one['name']}: {failed}; {again}", "yellow")
    print_more(answer)


def _cell(cells: Sequence[Mapping[str, Any]], number: int) -> str:
    cell = cells[number]
    if cell["status"] == "none":
        return "-"
    at = "" if cell["epoch"] is None else f" ({cell['epoch']})"
    return f"{cell['status']}{at}"


def records_command(
    context: typer.Context,
    dataflow: DataflowName,
    flow: FlowName,
    limit: FileLimit = None,
    cursor: Cursor = None,
    epoch: options.Epoch = None,
    stage: options.Stage = None,
    at: options.At = None,
    newest: Newest = False,
    csv: AsCsv = False,
    json_: AsJson = False,
) -> None:
    """Print the records of a flow, oldest first: all so far, or those of a snapshot.

    With --csv, all records are printed, unless you give a --limit; otherwise one page.
    """
    asked = {"limit": limit, **options.moment(epoch, stage, at)}
    asked["newest"] = "true" if newest else None
    path = ("dataflows", dataflow, "flows", flow)
    with session(context).connect() as service:
        if csv:
            query = [(name, str(value)) for name, value in asked.items() if value is not None]
            print_csv(service, (*path, "download"), query, ("cursor", cursor), limit=limit)
            return
        asked |= {"limit": limit or _LIMIT, "cursor": cursor}
        answer = service.get(*path, "records", **asked)
    if json_:
        print_json(answer)
        return
    print_records(answer["items"], empty="no records yet")
    print_more(answer)


def series_command(
    context: typer.Context,
    dataflow: DataflowName,
    flow: FlowName,
    column: Column = None,
    limit: Limit = 20,
    json_: AsJson = False,
) -> None:
    """Show the newest increments of a flow with their sizes, and figures of a numeric column."""
    at = ("dataflows", dataflow, "flows", flow, "series")
    answer = fetch(context, json_, *at, column=column, limit=limit)
    figures = ("read", "nulls", "least", "most", "mean", "total") if column else ()
    columns = {name: name for name in ("index", "records", *figures)}
    print_items(answer["items"], columns, empty="no increments yet")


Index = Annotated[int, typer.Argument(min=0, help="Index of the increment, from 0.")]

About = Annotated[
    bool,
    typer.Option(
        "--about", help="Show the origin and the files of the increment instead of its records."
    ),
]


def increment_command(
    context: typer.Context,
    dataflow: DataflowName,
    flow: FlowName,
    index: Index,
    limit: Limit = 20,
    cursor: Cursor = None,
    about: About = False,
    json_: AsJson = False,
) -> None:
    """Print the records of one increment of a flow, in their order."""
    if about:
        _print_about(context, (dataflow, flow, index), as_json=json_)
        return
    path = ("dataflows", dataflow, "increments", flow, str(index), "records")
    answer = fetch(context, json_, *path, limit=limit, cursor=cursor)
    columns = ", ".join(f"{column['name']} {column['type']}" for column in answer["columns"])
    print_text(f"{flow}/{index}: {columns}", "bold")
    print_records(answer["items"], empty="no records")
    print_more(answer)


def _print_about(context: typer.Context, at: tuple[str, str, int], *, as_json: bool) -> None:
    dataflow, flow, index = at
    answer = fetch(context, as_json, "dataflows", dataflow, "increments", flow, str(index))
    print_text(f"{flow}/{index}: arrived {clock(answer['created_at'])}", "bold")
    for name, value in answer["origin"].items():
        print_text(f"{name}: {value if isinstance(value, str) else json.dumps(value)}")
    columns: dict[str, Cell] = {"file": "path", "records": "records", "size": (bytes_text, "bytes")}
    print_items(answer["files"], columns, empty="no files")
