"""The commands `cbp replace` and `cbp retract`: correct what a source took in.

cbp replace clicks urls tuesday.jsonl right.jsonl --dry-run
cbp replace clicks urls tuesday.jsonl right.jsonl --reason "a bad clock"
cbp retract clicks urls tuesday.jsonl --reason "a test"
"""

from __future__ import annotations

import getpass
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from cbp.errors.counts import format_count
from controller.cli.records.applied import Applied
from controller.cli.session import AsJson, DataflowName, session
from controller.terminal import print_json, print_text

__all__ = ["replace_command", "retract_command"]

SourceName = Annotated[str, typer.Argument(help="Name of the source.", show_default=False)]
FileName = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the file as taken in.", show_default=False)
]
NewFile = Annotated[
    Path,
    typer.Argument(
        exists=True, dir_okay=False, help="The file that takes its place.", show_default=False
    ),
]
Reason = Annotated[str, typer.Option(help="Reason; stored for good.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", "--plan", help="Show what would change, and change nothing.")
]
Wait = Annotated[bool, typer.Option("--wait", help="Return once all stages have followed.")]


def replace_command(
    context: typer.Context,
    dataflow: DataflowName,
    source: SourceName,
    name: FileName,
    file: NewFile,
    reason: Reason = "",
    dry_run: DryRun = False,
    wait: Wait = False,
    json_: AsJson = False,
) -> None:
    """Replace a file of a source: only what differs is applied, and what is gone is taken back.

    Refused if a stage cannot follow; then nothing changes.
    """
    _correct(
        context, (dataflow, source, name), file, reason, dry_run=dry_run, wait=wait, as_json=json_
    )


def retract_command(
    context: typer.Context,
    dataflow: DataflowName,
    source: SourceName,
    name: FileName,
    reason: Reason = "",
    dry_run: DryRun = False,
    wait: Wait = False,
    json_: AsJson = False,
) -> None:
    """Take back all records of a file of a source.

    Refused if a stage cannot follow; then nothing changes.
    """
    _correct(
        context, (dataflow, source, name), None, reason, dry_run=dry_run, wait=wait, as_json=json_
    )


def _correct(
    context: typer.Context,
    named: tuple[str, str, str],
    file: Path | None,
    reason: str,
    *,
    dry_run: bool,
    wait: bool,
    as_json: bool,
) -> None:
    if not reason and not dry_run:
        raise typer.BadParameter("say why", param_hint="--reason")
    (dataflow, source, name), given = named, session(context)
    verb = "retractions" if file is None else "replacements"
    path = ("dataflows", dataflow, "sources", source, verb)
    sent: dict[str, Any] = {}
    if file is not None:
        sent = {"content": file.read_bytes(), "content_type": "application/octet-stream"}
    applied = Applied(given, dataflow, source) if wait and not dry_run else None
    with given.connect() as service:
        if dry_run:
            shown = service.post(*path, "preview", query={"name": name}, **sent)
            print_json(shown) if as_json else print_text(_would_change(shown))
            return
        answer = service.post(
            *path,
            query={"name": name, "reason": reason, "by": getpass.getuser()},
            idempotency_key=uuid.uuid4().hex,  # a repeated request replaces only once
            **sent,
        )
    if applied is not None:
        (answer,) = applied.wait_for_claims([answer], hidden=as_json)
        applied.wait_for_stages(hidden=as_json)
    if as_json:
        print_json(answer)
    else:
        what = "is taken back" if file is None else f"is replaced by {file}"
        print_text(f"{name} of {source} {what}: claim {answer['id']}, {answer['status']}", "green")


def _would_change(shown: Mapping[str, Any]) -> str:
    """Return a preview in words."""
    groups = [
        f"{format_count(count, 'group')} of {stage}"
        for stage, count in sorted(shown["groups"].items())
    ]
    records = (
        f"{format_count(shown['records_came'], 'record')} would come, "
        f"{format_count(shown['records_gone'], 'record')} would be taken back"
    )
    return f"{records}; {', '.join(groups) or 'no group'} would be computed anew"
