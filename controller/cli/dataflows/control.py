"""The commands that steer a dataflow: pause, drain, resume, priority, retry, close, delete."""

from __future__ import annotations

from typing import Annotated

import typer

from cbp.model.schedule.priority import Priority
from controller.cli.dataflows.runs import print_report
from controller.cli.options import DataflowName, Listing, StageName, Yes
from controller.cli.records.applied import progress, wait_for_stages
from controller.cli.session import Session
from controller.terminal import Cell, clock, print_page

OneStage = Annotated[str | None, typer.Argument(help="Only this stage.")]
Purge = Annotated[
    bool,
    typer.Option(
        "--purge", help="Remove its tables and the logs of its runs, too; this cannot be undone."
    ),
]


def pause_command(session: Session, dataflow: DataflowName, stage: OneStage = None) -> None:
    """Start no more runs of a dataflow, or of one stage, until `cbp resume`.

    Runs in progress finish.
    """
    session.report(session.client.pause(dataflow, stage), f"{_named(dataflow, stage)} is paused")


def drain_command(
    session: Session,
    dataflow: DataflowName,
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Wait until the dataflow is drained; show the remaining work."),
    ] = False,
) -> None:
    """Take in no more files, process all queued input, then start no more runs.

    Files stay in the drop folders until `cbp resume`, and uploads are refused.
    """
    drained = session.client.drain(dataflow)
    if wait:
        with progress(session) as report:
            wait_for_stages(session, dataflow, report)
            while drained.desired == "draining":
                report("waiting until the dataflow is drained")
                session.clock.wait(session.waits.poll_seconds)
                drained = session.client.dataflow(dataflow).summary
    state = "drained" if drained.desired == "drained" else "draining"
    session.report(drained, f"{dataflow} is {state}")


def resume_command(session: Session, dataflow: DataflowName, stage: OneStage = None) -> None:
    """Resume a dataflow with all its stages, or one stage; failure counts are reset."""
    session.report(session.client.resume(dataflow, stage), f"{_named(dataflow, stage)} is resumed")


def _named(dataflow: str, stage: str | None) -> str:
    return dataflow if stage is None else f"{dataflow}.{stage}"


def priority_command(
    session: Session,
    dataflow: DataflowName,
    stage: StageName,
    priority: Annotated[Priority, typer.Argument(help="The new priority.")],
) -> None:
    """Set how soon a waiting stage gets a slot for a run: low, normal or high.

    A free slot goes to the stage that has waited longest. Waiting counts fourfold at high
    priority, and a quarter at low priority. So no stage starves. Results do not depend on
    priorities. Stages that run together have one priority.
    """
    changed = session.client.prioritize(dataflow, stage, priority)
    session.report(changed, f"{dataflow}.{stage} now has {priority} priority")


def retry_command(
    session: Session,
    dataflow: Annotated[str | None, typer.Argument(help="Name of the dataflow.")] = None,
    stage: Annotated[str | None, typer.Argument(help="Name of the stage.")] = None,
    run: Annotated[
        list[str] | None,
        typer.Option(help="Try this failed run again; can be given several times."),
    ] = None,
) -> None:
    """Retry a stage that stopped after failures; or, with --run, retry failed runs.

    A paused stage is refused: use cbp resume DATAFLOW STAGE instead.
    If some of several runs are refused, each refusal is reported, and the exit status is 1.
    """
    if run and dataflow is None:
        print_report(session, session.client.retry_runs(run), done="will be retried")
        return
    if run or dataflow is None or stage is None:
        raise typer.BadParameter("name a dataflow and a stage, or runs with --run")  # noqa: EM101
    session.report(session.client.retry(dataflow, stage), f"{dataflow}.{stage} will be retried")


def close_command(
    session: Session,
    dataflow: DataflowName,
    flow: Annotated[
        str | None,
        typer.Argument(
            metavar="FLOW", help="Flow: `source` or `stage.output`; not needed with --list."
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(help="Idempotency key: repeated requests with the same key close only once."),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Return once all stages have read the closed frames.")
    ] = False,
    list_: Annotated[
        bool, typer.Option("--list", help="List when frames were closed, newest first.")
    ] = False,
    listing: Listing = Listing(),
) -> None:
    """Close the open frames of a flow; later records start new frames."""
    if list_:
        _list_closes(session, dataflow, listing)
        return
    if flow is None:
        raise typer.BadParameter("name a flow, or use --list", param_hint="FLOW")  # noqa: EM101
    answer = session.client.close_frames(dataflow, flow, key=key)
    if wait:
        with progress(session) as report:
            wait_for_stages(session, dataflow, report)
    text = (
        f"closed the open frames of {flow} for {', '.join(answer['inputs'])}; later records, from "
        f"increment {answer['at']} on, start new frames"
    )
    session.report(answer, text)


def _list_closes(session: Session, dataflow: str, listing: Listing) -> None:
    answer = session.fetch("dataflows", dataflow, "punctuations", **listing)
    columns: dict[str, Cell] = {
        "number": "number",
        "flow": "flow",
        "before increment": "at",
        "by": "reason",
        "closed at": (clock, "closed_at"),
    }
    print_page(answer, columns, empty="no frame has been closed yet")


def delete_command(
    session: Session, dataflow: DataflowName, purge: Purge = False, yes: Yes = False
) -> None:
    """Delete a dataflow; its tables are kept, unless --purge is given."""
    if purge and not (yes or session.as_json):
        typer.confirm(f"Remove {dataflow} and all of its tables?", abort=True, err=True)
    session.client.delete(dataflow, purge=purge)
    text = f"{dataflow} is deleted; its tables " + ("are removed" if purge else "stay")
    session.report({"deleted": dataflow, "purged": purge}, text, "")
