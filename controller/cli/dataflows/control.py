"""The commands that steer a dataflow: pause, resume, retry, close, delete."""

from __future__ import annotations

from typing import Annotated

import typer

from controller.cli.records.applied import wait_for_stages
from controller.cli.session import AsJson, DataflowName, session
from controller.terminal import print_json, print_text

__all__ = [
    "close_command",
    "delete_command",
    "pause_command",
    "resume_command",
    "retry_command",
]

Stage = Annotated[str, typer.Argument(help="Name of the stage.", show_default=False)]
Purge = Annotated[
    bool, typer.Option("--purge", help="Remove the tables too; this cannot be undone.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def pause_command(
    context: typer.Context,
    dataflow: DataflowName,
    stage: Annotated[str | None, typer.Argument(help="Only this stage.")] = None,
    json_: AsJson = False,
) -> None:
    """Start no more runs of a dataflow, or of one stage; runs in progress finish."""
    if stage is None:
        _act(context, ("dataflows", dataflow, "pause"), f"{dataflow} is paused", json_)
    else:
        path = ("dataflows", dataflow, "stages", stage, "pause")
        _act(context, path, f"{dataflow}.{stage} is paused", json_)


def resume_command(context: typer.Context, dataflow: DataflowName, json_: AsJson = False) -> None:
    """Let a dataflow run again, and clear the failures of its stages."""
    _act(context, ("dataflows", dataflow, "resume"), f"{dataflow} runs", json_)


def retry_command(
    context: typer.Context, dataflow: DataflowName, stage: Stage, json_: AsJson = False
) -> None:
    """Let a stage that stopped after failures try once more."""
    path = ("dataflows", dataflow, "stages", stage, "retry")
    _act(context, path, f"{dataflow}.{stage} will be tried again", json_)


def close_command(
    context: typer.Context,
    dataflow: DataflowName,
    flow: Annotated[str, typer.Argument(help="`source` or `stage.output`.", show_default=False)],
    key: Annotated[
        str | None,
        typer.Option(help="Idempotency key: requests with the same key close only once."),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Return once all stages have applied the close.")
    ] = False,
    json_: AsJson = False,
) -> None:
    """Close the open frames of a flow; later records start new frames."""
    with session(context).connect() as service:
        answer = service.post("dataflows", dataflow, "flows", flow, "close", idempotency_key=key)
    if wait:
        wait_for_stages(session(context), dataflow)
    if json_:
        print_json(answer)
        return
    closed = ", ".join(answer["inputs"])
    print_text(f"{flow} is closed before increment {answer['at']}, at {closed}", "green")


def delete_command(
    context: typer.Context,
    dataflow: DataflowName,
    purge: Purge = False,
    yes: Yes = False,
    json_: AsJson = False,
) -> None:
    """Forget a dataflow; its tables stay, unless --purge is given."""
    if purge and not (yes or json_):
        typer.confirm(f"Remove {dataflow} and all of its tables?", abort=True, err=True)
    with session(context).connect() as service:
        service.delete("dataflows", dataflow, purge=str(purge).lower())
    if json_:
        print_json({"deleted": dataflow, "purged": purge})
    else:
        print_text(f"{dataflow} is deleted; its tables " + ("are removed" if purge else "stay"))


def _act(context: typer.Context, path: tuple[str, ...], done: str, as_json: bool) -> None:
    with session(context).connect() as service:
        answer = service.post(*path)
    if as_json:
        print_json(answer)
    else:
        print_text(done, "green")
