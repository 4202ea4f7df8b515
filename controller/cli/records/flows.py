"""The commands on the contents of flows: `cbp increments`, `records`, `series`, `increment`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any

import typer

from cbp.errors.counts import format_count
from controller.cli.options import (
    AsCsv,
    DataflowName,
    FilePaging,
    Limit,
    Listing,
    Paging,
    SnapshotMoment,
    pairs,
)
from controller.cli.paging import print_csv
from controller.cli.session import Session
from controller.terminal import (
    Cell,
    bytes_text,
    clock,
    print_items,
    print_more,
    print_page,
    print_records,
    print_text,
)

FlowName = Annotated[str, typer.Argument(help="Name of the flow: `source` or `stage.output`.")]
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
Flow = Annotated[str | None, typer.Option(help="Only this flow: `source` or `stage.output`.")]


def increments_command(
    session: Session,
    dataflow: DataflowName,
    flow: Flow = None,
    listing: Listing = Listing(),
    grid: Grid = False,
    not_applied: NotApplied = False,
) -> None:
    """List the increments of a dataflow, newest first; with --grid, by stage."""
    at = ("dataflows", dataflow, "increments")
    if grid or not_applied:
        page = {"limit": min(listing.limit, GRID_ROWS_MAX), "cursor": listing.cursor}
        shown = "true" if not_applied else None
        _print_grid(session.fetch(*at, "grid", flow=flow, **page, not_applied=shown))
        return
    answer = session.fetch(*at, flow=flow, **listing)
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
    session: Session,
    dataflow: DataflowName,
    flow: FlowName,
    page: FilePaging = FilePaging(),
    moment: SnapshotMoment = SnapshotMoment(),
    newest: Newest = False,
    csv: AsCsv = False,
) -> None:
    """Print the records of a flow, oldest first: all so far, or those of a snapshot.

    With --csv, all records are printed, unless you give a --limit; otherwise one page.
    """
    asked = {**moment, "newest": "true" if newest else None}
    path = ("dataflows", dataflow, "flows", flow)
    if csv:
        query = pairs({"limit": page.limit, **asked}, prefix="")
        print_csv(session, (*path, "download"), query, page)
        return
    answer = session.fetch(*path, "records", **asked, **page.shown())
    print_records(answer["items"], empty="no records yet")
    print_more(answer)


def series_command(
    session: Session,
    dataflow: DataflowName,
    flow: FlowName,
    column: Column = None,
    limit: Limit = 20,
) -> None:
    """Show the newest increments of a flow with their sizes, and figures of a numeric column."""
    at = ("dataflows", dataflow, "flows", flow, "series")
    answer = session.fetch(*at, column=column, limit=limit)
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
    session: Session,
    dataflow: DataflowName,
    flow: FlowName,
    index: Index,
    paging: Paging = Paging(),
    about: About = False,
) -> None:
    """Print the records of one increment of a flow, in their order."""
    at = ("dataflows", dataflow, "increments", flow, str(index))
    if about:
        _print_about(f"{flow}/{index}", session.fetch(*at))
        return
    answer = session.fetch(*at, "records", **paging)
    columns = ", ".join(f"{column['name']} {column['type']}" for column in answer["columns"])
    print_text(f"{flow}/{index}: {columns}", "bold")
    print_records(answer["items"], empty="no records")
    print_more(answer)


def _print_about(name: str, answer: Mapping[str, Any]) -> None:
    print_text(f"{name}: arrived {clock(answer['created_at'])}", "bold")
    for fact, value in answer["origin"].items():
        print_text(f"{fact}: {value if isinstance(value, str) else json.dumps(value)}")
    columns: dict[str, Cell] = {"file": "path", "records": "records", "size": (bytes_text, "bytes")}
    print_items(answer["files"], columns, empty="no files")
