"""The commands `cbp runs` and `cbp cancel`: the runs of all dataflows, newest first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from cbp.client import BulkItem
from cbp.client.errors import ServiceProblemError
from cbp.errors import NotFoundError
from controller.cli.session import AsJson, Cursor, Limit, Since, Until, complete_dataflows, session
from controller.client.service_client import ServiceClient
from controller.terminal import (
    Cell,
    age,
    print_items,
    print_json,
    print_more,
    print_table,
    print_text,
)

RunIds = Annotated[list[str], typer.Argument(help="Ids of the runs.")]
Stage = Annotated[str | None, typer.Option(help="Only this stage.")]
Status = Annotated[
    str | None, typer.Option(help="Only runs that are INTENDED, COMMITTED or FAILED.")
]
Failed = Annotated[bool, typer.Option("--failed", help="Only failed runs.")]
Epoch = Annotated[int | None, typer.Option(min=0, help="Only attempts of this epoch.")]
ErrorCode = Annotated[str | None, typer.Option(help="Only runs that ended with this error.")]


def runs_command(
    context: typer.Context,
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN|DATAFLOW]",
            help="Id of the run to show, or name of the dataflow whose runs to list.",
            autocompletion=complete_dataflows,
        ),
    ] = None,
    dataflow: Annotated[str | None, typer.Option(help="Only this dataflow.")] = None,
    stage: Stage = None,
    status: Status = None,
    failed: Failed = False,
    epoch: Epoch = None,
    error_code: ErrorCode = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = 20,
    cursor: Cursor = None,
    json_: AsJson = False,
) -> None:
    """List runs, newest first, of all dataflows or of one; or show one run."""
    with session(context).connect() as service:
        shown = None if run is None else _run_of(service, run)
        if shown is not None:
            answer = shown
        else:
            answer = service.get(
                "runs",
                dataflow=dataflow if run is None else run,
                stage=stage,
                status="FAILED" if failed else status,
                epoch=epoch,
                error_code=error_code,
                since=since,
                until=until,
                limit=limit,
                cursor=cursor,
            )
    if json_:
        print_json(answer)
    elif shown is not None:
        _print_run(answer)
    else:
        _print_runs(answer)


def _run_of(service: ServiceClient, name: str) -> dict[str, Any] | None:
    """Return the run of this id; `None` if there is none, so that a dataflow may be meant."""
    try:
        run: dict[str, Any] = service.get("runs", name)
    except ServiceProblemError as error:
        if error.error_code != NotFoundError.code:
            raise
        return None
    return run


def cancel_command(context: typer.Context, runs: RunIds, json_: AsJson = False) -> None:
    """Ask runs to stop; their input stays queued.

    If some of several runs are refused, each refusal is reported, and the exit status is 1.
    """
    with session(context).client() as client:
        if len(runs) > 1:
            items = client.cancel_runs(runs)
            print_report(items, done="asked to stop", as_json=json_)
            return
        run = client.cancel_run(runs[0])
    if json_:
        print_json(run.answer)
    else:
        ended = run.status != "INTENDED"
        late = f"had finished already, with status {run.status}"
        print_text(f"run {runs[0]} {late if ended else 'was asked to stop'}")


def print_report(items: Sequence[BulkItem], *, done: str, as_json: bool) -> None:
    """Print the result for each run of a request for many; exit with 1 if any was refused."""
    if as_json:
        print_json({"items": [item.answer for item in items]})
    else:
        rows = [(item.id, done if item.error is None else item.error["message"]) for item in items]
        print_table(("run", "report"), rows, empty="no runs")
    if any(item.error is not None for item in items):
        raise typer.Exit(1)


def print_phases(run: dict[str, Any]) -> None:
    """Print the timeline of a run, if it is known."""
    rows = [
        (one["name"], age(one["begin_seconds"]), _length(one), "" if one["end_seconds"] else "now")
        for one in run["phases"]
    ]
    if rows:
        print_table(("phase", "after", "took", ""), rows, empty="")


def _length(phase: dict[str, Any]) -> str:
    end = phase["end_seconds"]
    return "-" if end is None else f"{end - phase['begin_seconds']:.3f} s"


def _print_runs(answer: dict[str, Any]) -> None:
    columns: dict[str, Cell] = {
        "run": "id",
        "dataflow": "dataflow",
        "stage": ("+".join, "stages"),
        "epoch": "epoch",
        "status": "status",
        "try": "attempt",
        "in": lambda run: _figure(run, "records_in"),
        "groups": lambda run: _figure(run, "groups"),
        "out": lambda run: _figure(run, "records_out"),
        "lane": (lambda lanes: ", ".join(lanes) or "-", "lanes"),
        "waited": (age, "waited_seconds"),
        "took": (age, "seconds"),
        "why": (lambda error: (error or {}).get("error_code", ""), "error"),
    }
    optional = ("lane", "waited", "groups", "try", "in", "out")
    print_items(answer["items"], columns, empty="no runs yet", optional=optional)
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
    print_phases(run)
    print_table(("figure", "value"), sorted(run["figures"].items()), empty="no figures")


def _figure(run: dict[str, Any], name: str) -> Any:
    value = run["figures"].get(name)
    return "-" if value is None else int(value)
