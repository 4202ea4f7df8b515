"""The commands `cbp runs` and `cbp cancel`: the runs of all dataflows, newest first."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from controller.cli.session import AsJson, Cursor, Limit, session
from controller.terminal import age, print_json, print_more, print_table, print_text

__all__ = ["cancel_command", "runs_command"]

RunId = Annotated[str, typer.Argument(help="Id of the run.", show_default=False)]
Stage = Annotated[str | None, typer.Option(help="Only this stage.")]
Status = Annotated[
    str | None, typer.Option(help="Only runs that are INTENDED, COMMITTED or FAILED.")
]


def runs_command(
    context: typer.Context,
    run: Annotated[str | None, typer.Argument(help="Id of the run to show.")] = None,
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
    """Ask a run to stop; its input stays queued."""
    with session(context).connect() as service:
        answer = service.post("runs", run, "cancel")
    if json_:
        print_json(answer)
    else:
        print_text(f"run {run} was asked to stop")


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
