"""The command `cbp increment`: the records of one increment."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from controller.cli.records.flows import FlowName
from controller.cli.session import AsJson, Cursor, DataflowName, Limit, fetch
from controller.terminal import (
    bytes_text,
    clock,
    print_more,
    print_records,
    print_table,
    print_text,
)

__all__ = ["increment_command"]

Index = Annotated[int, typer.Argument(min=0, help="Its index, from 0.", show_default=False)]


About = Annotated[
    bool, typer.Option("--about", help="Where it came from, and its files, instead of records.")
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
    rows = [(one["path"], one["records"], bytes_text(one["bytes"])) for one in answer["files"]]
    print_table(("file", "records", "size"), rows, empty="no files")
