"""The commands `cbp runs`, `cbp cancel` and `cbp stack`: runs, and the code they execute now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from cbp.client import BulkItem
from cbp.client.errors import ServiceProblemError
from cbp.client.rest import RestClient
from cbp.errors import NotFoundError
from controller.cli.options import Listing, complete_dataflows
from controller.cli.session import Session
from controller.terminal import Cell, age, clock, print_items, print_more, print_table, print_text

RunIds = Annotated[list[str], typer.Argument(help="Ids of the runs.")]
Stage = Annotated[str | None, typer.Option(help="Only this stage.")]
Status = Annotated[
    str | None, typer.Option(help="Only runs that are INTENDED, COMMITTED or FAILED.")
]
Failed = Annotated[bool, typer.Option("--failed", help="Only failed runs.")]
Epoch = Annotated[int | None, typer.Option(min=0, help="Only attempts of this epoch.")]
ErrorCode = Annotated[str | None, typer.Option(help="Only runs that ended with this error.")]


def runs_command(
    session: Session,
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
    listing: Listing = Listing(),
) -> None:
    """List runs, newest first, of all dataflows or of one; or show one run."""
    if run is not None and (shown := _find_run(session.rest, run)) is not None:
        session.exit_if_json(shown)
        _print_run(shown)
        return
    answer = session.fetch(
        "runs",
        dataflow=dataflow if run is None else run,
        stage=stage,
        status="FAILED" if failed else status,
        epoch=epoch,
        error_code=error_code,
        **listing,
    )
    _print_runs(answer)


def _find_run(service: RestClient, name: str) -> dict[str, Any] | None:
    """Return the run of this id; `None` if there is none, so that a dataflow may be meant."""
    try:
        run: dict[str, Any] = service.get("runs", name)
    except ServiceProblemError as error:
        if error.error_code != NotFoundError.code:
            raise
        return None
    return run


def cancel_command(session: Session, runs: RunIds) -> None:
    """Ask runs to stop; their input stays queued.

    If some of several runs are refused, each refusal is reported, and the exit status is 1.
    """
    if len(runs) > 1:
        print_report(session, session.client.cancel_runs(runs), done="asked to stop")
        return
    run = session.client.cancel_run(runs[0])
    late = f"had finished already, with status {run.status}"
    fate = "was asked to stop" if run.status == "INTENDED" else late
    session.report(run, f"run {runs[0]} {fate}", "")


def stack_command(
    session: Session,
    of: Annotated[
        str,
        typer.Argument(
            metavar="RUN|DATAFLOW",
            help="Id of a run, or name of a dataflow: all of its runs that are under way.",
            autocompletion=complete_dataflows,
        ),
    ],
) -> None:
    """Show in which lines of code a run is now, for a run that takes longer than expected.

    The run continues, and no values are shown. Spark's own workers cannot be inspected. If a run
    cannot be inspected, the reason is printed; the exit status is 1 if none of the runs can be.
    """
    if (run := _find_run(session.rest, of)) is not None:
        runs, stacks = [run], [session.rest.get("runs", run["id"], "stack")]
    else:
        runs = session.rest.get("runs", dataflow=of, status="INTENDED")["items"]
        stacks = [_stack_of(session.rest, one) for one in runs]
    status = int(bool(stacks) and all("error" in stack for stack in stacks))
    session.exit_if_json({"items": stacks}, status=status)
    if not stacks:
        print_text(f"no run of {of} is under way")
    for one, stack in zip(runs, stacks, strict=True):
        _print_stack(one, stack)
    if status:
        raise typer.Exit(status)


def _stack_of(service: RestClient, run: dict[str, Any]) -> dict[str, Any]:
    """Return the stack of a run, or with `error` why it cannot be shown."""
    try:
        stack: dict[str, Any] = service.get("runs", run["id"], "stack")
    except ServiceProblemError as error:
        code, message = error.error_code, error.message
        return {"run": run["id"], "error": {"error_code": code, "message": message}}
    return stack


def _print_stack(run: dict[str, Any], stack: dict[str, Any]) -> None:
    """Print the calls of each process, from the author's code on; the last line runs now."""
    stages, since = "+".join(run["stages"]), clock(run["started_at"])
    head = f"{run['dataflow']}.{stages} epoch {run['epoch']}, run {run['id']}"
    if "error" in stack:
        print_text(f"{head}: since {since}")
        print_text(f"  {stack['error']['message']}", "yellow")
        return
    if stack["status"] != "INTENDED":
        print_text(f"{head}: has ended ({stack['status']})")
        return
    print_text(f"{head}: since {since}, in phase {stack['phase'] or 'start'}")
    if not stack["processes"]:
        print_text("  no worker process executes it now")
    for process in stack["processes"]:
        calls = process["calls"]
        first = next((at for at, one in enumerate(calls) if one["authors"]), 0)
        print_text(f"  process {process['pid']}:")
        if not calls:
            print_text(
                "    did not answer in time: it is starting or stopped, it waits in a system "
                "call for a device, or its code handles SIGURG"
            )
        elif not calls[first]["authors"]:
            print_text("    is in the service's own code, not in the code of the stage:")
        for call in calls[first:]:
            style = "yellow" if call["authors"] else ""
            print_text(f"    {call['file']}:{call['line']} in {call['function']}", style)


def print_report(session: Session, items: Sequence[BulkItem], *, done: str) -> None:
    """Print the result for each run of a request about many; exit with 1 if any was refused."""
    status = int(any(item.error is not None for item in items))
    session.exit_if_json({"items": [item.answer for item in items]}, status=status)
    rows = [(item.id, done if item.error is None else item.error["message"]) for item in items]
    print_table(("run", "report"), rows, empty="no runs")
    if status:
        raise typer.Exit(status)


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
