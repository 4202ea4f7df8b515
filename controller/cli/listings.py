"""Commands that list runs, increments, claims, sources and records, and that cancel a run."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from controller.cli import moments
from controller.cli.output import (
    age,
    bytes_text,
    clock,
    one_line,
    print_json,
    print_table,
    print_text,
)
from controller.cli.reasons import reason_text
from controller.cli.session import AsJson, Cursor, DataflowName, Limit, session

__all__ = [
    "cancel_command",
    "claims_command",
    "increments_command",
    "print_more",
    "print_records",
    "records_command",
    "runs_command",
    "sources_command",
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
            one_line(item["path"]),
            item["status"],
            "-" if item["index"] is None else item["index"],
            reason_text(item["reason"]) or _same(item["same_as"]),
        )
        for item in answer["items"]
    ]
    print_table(("source", "file", "status", "increment", "reason"), rows, empty="no files yet")
    print_more(answer)


def sources_command(context: typer.Context, dataflow: DataflowName, json_: AsJson = False) -> None:
    """Show what lies in the drop folder of each source, and what is not going to be taken in."""
    with session(context).connect() as service:
        answer = service.get("dataflows", dataflow, "sources")
    if json_:
        print_json(answer)
        return
    rows = [
        (
            item["name"],
            item["waiting"],
            bytes_text(item["waiting_bytes"]),
            item["unclaimed"],
            (item["trouble"] or {}).get("error", {}).get("message") or item["warning"] or "-",
        )
        for item in answer["items"]
    ]
    print_table(("source", "waiting", "size", "not taken in", "why"), rows, empty="no sources")
    lying = [
        (item["name"], one_line(one["name"]), clock(one["since"]), one["why"])
        for item in answer["items"]
        for one in item["oldest_unclaimed"]
    ]
    if lying:
        print_table(("source", "not taken in", "since", "why"), lying, empty="")
    gone = [
        (
            item["name"],
            one_line(one["name"]),
            clock(one["since"]),
            one["claim"],
            "yes" if one["lost"] else "no",
        )
        for item in answer["items"]
        for one in item["gone"]
    ]
    if gone:
        print_table(("source", "gone", "claimed", "claim", "was acknowledged"), gone, empty="")


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
    """Print records as a table with their column names."""
    columns = list(items[0]) if items else []
    print_table(columns, [[item.get(name) for name in columns] for item in items], empty=empty)


def _print_runs(answer: dict[str, Any]) -> None:
    where = ("run", "dataflow", "stage", "epoch", "status")
    columns = (*where, "in", "groups", "out", "lane", "took", "why")
    rows = [
        (
            item["id"],
            item["dataflow"],
            "+".join(item["stages"]),
            item["epoch"],
            item["status"],
            *(_figure(item, name) for name in ("records_in", "groups", "records_out")),
            ", ".join(item["lanes"]) or "-",
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
    if run["lanes"]:
        print_text(f"lane: {', '.join(run['lanes'])}")
    if run["error"]:
        print_text(run["error"].get("message", ""), "red")
    print_table(("figure", "value"), sorted(run["figures"].items()), empty="no figures")


def _figure(run: dict[str, Any], name: str) -> Any:
    value = run["figures"].get(name)
    return "-" if value is None else int(value)


def _same(same: dict[str, Any] | None) -> str:
    """Return in words which earlier file this one equals."""
    if not same:
        return ""
    at = "" if same.get("index") is None else f" (increment {same['index']})"
    if same["by"] == "name_and_content":
        return f"the same name and content came before{at}"
    return f"has the content of {one_line(same['file'])}{at}"


def print_more(answer: dict[str, Any]) -> None:
    """Print how to get the next page, if there is one."""
    if answer["cursor"]:
        print_text(f"more with: --cursor {answer['cursor']}", "dim")
