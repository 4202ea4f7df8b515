"""Commands that list: runs, increments, claims, records; and cancel."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from controller.cli import moments
from controller.cli.output import age, bytes_text, clock, print_json, print_table, print_text
from controller.cli.session import AsJson, Cursor, DataflowName, Limit, session

__all__ = [
    "cancel_command",
    "claims_command",
    "increments_command",
    "print_more",
    "print_records",
    "records_command",
    "runs_command",
]

RunId = Annotated[str, typer.Argument(help="Id of the run.", show_default=False)]
FlowName = Annotated[str, typer.Argument(help="`source` or `stage.output`.", show_default=False)]
Flow = Annotated[str | None, typer.Option(help="Only this flow: `source` or `stage.output`.")]
Stage = Annotated[str | None, typer.Option(help="Only this stage.")]
Source = Annotated[str | None, typer.Option(help="Only this source.")]
Status = Annotated[str | None, typer.Option(help="INTENDED, COMMITTED or FAILED.")]
ClaimStatus = Annotated[str | None, typer.Option(help="Such as `quarantined` or `accepted`.")]


def runs_command(
    context: typer.Context,
    run: Annotated[str | None, typer.Argument(help="Show this one.")] = None,
    dataflow: Annotated[str | None, typer.Option(help="Only this dataflow.")] = None,
    stage: Stage = None,
    status: Status = None,
    limit: Limit = 20,
    cursor: Cursor = None,
    json_: AsJson = False,
) -> None:
    """List runs, newest first, or show one of them."""
    with session(context).connect() as service:
        if run is not None:
            answer = service.get("runs", run)
        else:
            answer = service.get(
                "runs", dataflow=dataflow, stage=stage, status=status, limit=limit, cursor=cursor
            )
    if json_:
        print_json(answer)
    elif run is not None:
        _print_run(answer)
    else:
        _print_runs(answer)


def cancel_command(context: typer.Context, run: RunId, json_: AsJson = False) -> None:
    """Ask a run to stop; what it read stays queued."""
    with session(context).connect() as service:
        answer = service.post("runs", run, "cancel")
    if json_:
        print_json(answer)
    else:
        print_text(f"run {run} was asked to stop")


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


def claims_command(
    context: typer.Context,
    dataflow: DataflowName,
    source: Source = None,
    status: ClaimStatus = None,
    limit: Limit = 20,
    cursor: Cursor = None,
    json_: AsJson = False,
) -> None:
    """List the files that were met in drop folders, with the reason of those refused."""
    with session(context).connect() as service:
        answer = service.get(
            "dataflows",
            dataflow,
            "claims",
            source=source,
            status=status,
            limit=limit,
            cursor=cursor,
        )
    if json_:
        print_json(answer)
        return
    rows = [
        (
            item["source"],
            item["path"],
            item["status"],
            "-" if item["index"] is None else item["index"],
            _reason(item["reason"]),
        )
        for item in answer["items"]
    ]
    print_table(("source", "file", "status", "increment", "reason"), rows, empty="no files yet")
    print_more(answer)


def records_command(
    context: typer.Context,
    dataflow: DataflowName,
    flow: FlowName,
    limit: Limit = 20,
    cursor: Cursor = None,
    epoch: moments.Epoch = None,
    stage: moments.Stage = None,
    at: moments.At = None,
    json_: AsJson = False,
) -> None:
    """Print records of a flow, oldest first; as it is, or as a snapshot shows it."""
    asked = {"limit": limit, "cursor": cursor, **moments.moment(epoch, stage, at)}
    with session(context).connect() as service:
        answer = service.get("dataflows", dataflow, "flows", flow, "records", **asked)
    if json_:
        print_json(answer)
        return
    print_records(answer["items"], empty="no records yet")
    print_more(answer)


def print_records(items: list[dict[str, Any]], *, empty: str) -> None:
    """Print records below their column names."""
    columns = list(items[0]) if items else []
    print_table(columns, [[item.get(name) for name in columns] for item in items], empty=empty)


def _print_runs(answer: dict[str, Any]) -> None:
    columns = ("run", "dataflow", "stage", "epoch", "status", "in", "groups", "out", "took", "why")
    rows = [
        (
            item["id"],
            item["dataflow"],
            "+".join(item["stages"]),
            item["epoch"],
            item["status"],
            *(_figure(item, name) for name in ("records_in", "groups", "records_out")),
            age(item["seconds"]),
            (item["error"] or {}).get("error_code", ""),
        )
        for item in answer["items"]
    ]
    print_table(columns, rows, empty="no runs yet")
    print_more(answer)


def _print_run(run: dict[str, Any]) -> None:
    stages = "+".join(run["stages"])
    print_text(
        f"{run['dataflow']}.{stages} epoch {run['epoch']}, attempt {run['attempt']}: "
        f"{run['status']}"
    )
    if run["error"]:
        print_text(run["error"].get("message", ""), "red")
    print_table(("figure", "value"), sorted(run["figures"].items()), empty="no figures")


def _figure(run: dict[str, Any], name: str) -> Any:
    value = run["figures"].get(name)
    return "-" if value is None else int(value)


def _reason(reason: dict[str, Any] | None) -> str:
    if not reason:
        return ""
    line = f", line {reason['line']}" if reason.get("line") else ""
    return f"{reason.get('message', reason.get('code', ''))}{line}"


def print_more(answer: dict[str, Any]) -> None:
    """Tell how to get the next page, if there is one."""
    if answer["cursor"]:
        print_text(f"more with: --cursor {answer['cursor']}", "dim")
