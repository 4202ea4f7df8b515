"""The commands `cbp increments` and `cbp records`: what flows hold."""

from __future__ import annotations

from typing import Annotated

import typer

from controller.cli import session as options
from controller.cli.session import AsJson, Cursor, DataflowName, Limit, session
from controller.terminal import (
    bytes_text,
    clock,
    print_json,
    print_more,
    print_records,
    print_table,
)

__all__ = ["increments_command", "records_command"]

FlowName = Annotated[str, typer.Argument(help="`source` or `stage.output`.", show_default=False)]
Flow = Annotated[str | None, typer.Option(help="Only this flow: `source` or `stage.output`.")]


def increments_command(
    context: typer.Context,
    dataflow: DataflowName,
    flow: Flow = None,
    limit: Limit = 20,
    cursor: Cursor = None,
    json_: AsJson = False,
) -> None:
    """List the increments of a dataflow, newest first."""
    with session(context).connect() as service:
        answer = service.get(
            "dataflows", dataflow, "increments", flow=flow, limit=limit, cursor=cursor
        )
    if json_:
        print_json(answer)
        return
    rows = [
        (
            item["flow"],
            item["index"],
            item["records"],
            bytes_text(item["bytes"]),
            clock(item["created_at"]),
        )
        for item in answer["items"]
    ]
    print_table(("flow", "index", "records", "size", "arrived"), rows, empty="no increments")
    print_more(answer)


def records_command(
    context: typer.Context,
    dataflow: DataflowName,
    flow: FlowName,
    limit: Limit = 20,
    cursor: Cursor = None,
    epoch: options.Epoch = None,
    stage: options.Stage = None,
    at: options.At = None,
    json_: AsJson = False,
) -> None:
    """Print the records of a flow, oldest first: all of them, or those of a snapshot."""
    asked = {"limit": limit, "cursor": cursor, **options.moment(epoch, stage, at)}
    with session(context).connect() as service:
        answer = service.get("dataflows", dataflow, "flows", flow, "records", **asked)
    if json_:
        print_json(answer)
        return
    print_records(answer["items"], empty="no records yet")
    print_more(answer)
