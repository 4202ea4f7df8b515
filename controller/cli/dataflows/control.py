"""The commands that steer a dataflow: pause, drain, resume, priority, retry, close, delete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from cbp.model.schedule.priority import Priority
from controller.cli.dataflows.runs import print_report
from controller.cli.records.applied import progress, wait_for_stages
from controller.cli.session import (
    AsJson,
    Cursor,
    DataflowName,
    Limit,
    Since,
    StageName,
    Until,
    Yes,
    done,
    fetch,
    session,
)
from controller.terminal import Cell, clock, print_json, print_page, print_text

Purge = Annotated[
    bool, typer.Option("--purge", help="Remove the tables too; this cannot be undone.")
]


def pause_command(
    context: typer.Context,
    dataflow: DataflowName,
    stage: Annotated[str | None, typer.Argument(help="Only this stage.")] = None,
    json_: AsJson = False,
) -> None:
    """Start no more runs of a dataflow, or of one stage, until `cbp resume`.

    Runs in progress finish.
    """
    done(context, json_, f"{_named(dataflow, stage)} is paused", lambda c: c.pause(dataflow, stage))


def drain_command(
    context: typer.Context,
    dataflow: DataflowName,
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Wait until the dataflow is drained; show the remaining work."),
    ] = False,
    json_: AsJson = False,
) -> None:
    """Take in no more files, process all queued input, then start no more runs.

    Files stay in the drop folders until `cbp resume`, and uploads are refused.
    """
    given = session(context)
    with given.client() as client:
        drained = client.drain(dataflow)
        if wait:
            with progress(given.clock, hidden=json_) as report:
                wait_for_stages(given, dataflow, report)
                while drained.desired == "draining":
                    report("waiting until the dataflow is drained")
                    given.clock.wait(given.waits.poll_seconds)
                    drained = client.dataflow(dataflow).summary
    if json_:
        print_json(drained.answer)
    else:
        is_drained = drained.desired == "drained"
        print_text(f"{dataflow} is {'drained' if is_drained else 'draining'}", "green")


def resume_command(
    context: typer.Context,
    dataflow: DataflowName,
    stage: Annotated[str | None, typer.Argument(help="Only this stage.")] = None,
    json_: AsJson = False,
) -> None:
    """Resume a dataflow with all its stages, or one stage; failure counts are reset."""
    text = f"{_named(dataflow, stage)} is resumed"
    done(context, json_, text, lambda client: client.resume(dataflow, stage))


def _named(dataflow: str, stage: str | None) -> str:
    return dataflow if stage is None else f"{dataflow}.{stage}"


def priority_command(
    context: typer.Context,
    dataflow: DataflowName,
    stage: StageName,
    priority: Annotated[Priority, typer.Argument(help="The new priority.")],
    json_: AsJson = False,
) -> None:
    """Set how soon a waiting stage gets a slot for a run: low, normal or high.

    A free slot goes to the stage that has waited longest. Waiting counts fourfold at high
    priority, and a quarter at low priority. So no stage starves. Results do not depend on
    priorities. Stages that run together have one priority.
    """
    text = f"{dataflow}.{stage} now has {priority} priority"
    done(context, json_, text, lambda client: client.prioritize(dataflow, stage, priority))


def retry_command(
    context: typer.Context,
    dataflow: Annotated[str | None, typer.Argument(help="Name of the dataflow.")] = None,
    stage: Annotated[str | None, typer.Argument(help="Name of the stage.")] = None,
    run: Annotated[
        list[str] | None,
        typer.Option(help="Try this failed run again; can be given several times."),
    ] = None,
    json_: AsJson = False,
) -> None:
    """Retry a stage that stopped after failures; or, with --run, retry failed runs.

    A paused stage is refused: use cbp resume DATAFLOW STAGE instead.
    If some of several runs are refused, each refusal is reported, and the exit status is 1.
    """
    if run and dataflow is None:
        with session(context).client() as client:
            items = client.retry_runs(run)
        print_report(items, done="will be retried", as_json=json_)
        return
    if run or dataflow is None or stage is None:
        raise typer.BadParameter("name a dataflow and a stage, or runs with --run")  # noqa: EM101
    text = f"{dataflow}.{stage} will be retried"
    done(context, json_, text, lambda client: client.retry(dataflow, stage))


def close_command(
    context: typer.Context,
    dataflow: DataflowName,
    flow: Annotated[
        str | None,
        typer.Argument(metavar="FLOW", help="`source` or `stage.output`; not needed with --list."),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(help="Idempotency key: repeated requests with the same key close only once."),
    ] = None,
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Return once all stages have read the closed frames."),
    ] = False,
    list_: Annotated[
        bool,
        typer.Option("--list", help="List when frames were closed, newest first."),
    ] = False,
    since: Since = None,
    until: Until = None,
    limit: Limit = 20,
    cursor: Cursor = None,
    json_: AsJson = False,
) -> None:
    """Close the open frames of a flow; later records start new frames."""
    if list_:
        asked = {"since": since, "until": until, "limit": limit, "cursor": cursor}
        _list_closes(context, dataflow, asked, as_json=json_)
        return
    if flow is None:
        raise typer.BadParameter("is missing", param_hint="FLOW")
    given = session(context)
    with given.client() as client:
        answer = client.close_frames(dataflow, flow, key=key)
    if wait:
        with progress(given.clock, hidden=json_) as report:
            wait_for_stages(given, dataflow, report)
    if json_:
        print_json(answer)
        return
    closed = ", ".join(answer["inputs"])
    print_text(
        f"closed the open frames of {flow} for {closed}; later records, from increment "
        f"{answer['at']} on, start new frames",
        "green",
    )


def _list_closes(
    context: typer.Context, dataflow: str, asked: Mapping[str, Any], *, as_json: bool
) -> None:
    answer = fetch(context, as_json, "dataflows", dataflow, "punctuations", **asked)
    columns: dict[str, Cell] = {
        "number": "number",
        "flow": "flow",
        "before increment": "at",
        "by": "reason",
        "closed at": (clock, "closed_at"),
    }
    print_page(answer, columns, empty="no frame has been closed yet")


def delete_command(
    context: typer.Context,
    dataflow: DataflowName,
    purge: Purge = False,
    yes: Yes = False,
    json_: AsJson = False,
) -> None:
    """Delete a dataflow; its tables are kept, unless --purge is given."""
    if purge and not (yes or json_):
        typer.confirm(f"Remove {dataflow} and all of its tables?", abort=True, err=True)
    with session(context).client() as client:
        client.delete(dataflow, purge=purge)
    if json_:
        print_json({"deleted": dataflow, "purged": purge})
    else:
        print_text(f"{dataflow} is deleted; its tables " + ("are removed" if purge else "stay"))
