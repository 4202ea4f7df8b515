"""The commands `cbp set-aside` and `cbp give-back`: records that a stage's code failed on.

cbp set-aside clicks count
cbp register clicks.yaml --keep count              # once the code is fixed
cbp give-back clicks count --dry-run
cbp give-back clicks count --reason "null hours are counted as 0"
"""

from __future__ import annotations

import getpass
import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from cbp.client import GivenBack
from cbp.errors.counts import format_count
from controller.cli.options import (
    DataflowName,
    FilePaging,
    Period,
    Reason,
    StageName,
    require_reason,
)
from controller.cli.progress import progress_bar
from controller.cli.session import Session
from controller.terminal import Cell, one_line, print_page, print_text

Code = Annotated[str | None, typer.Option(help="Only records that failed with this error code.")]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        "--plan",
        help="Call the code and show which records would fail again; change nothing.",
    ),
]


def print_set_aside(summary: Mapping[str, Any]) -> None:
    """Print how many records each stage of a dataflow has set aside, and how to list them."""
    name = summary["name"]
    for stage, records in summary["set_aside"].items():
        what = format_count(records, "record is", "records are")
        print_text(f"{name}.{stage}: {what} set aside (see: cbp set-aside {name} {stage})", "red")


def set_aside_command(
    session: Session,
    dataflow: DataflowName,
    stage: StageName,
    code: Code = None,
    period: Period = Period(),
    page: FilePaging = FilePaging(),
) -> None:
    """List records that a stage has set aside, since its code failed on them."""
    at = ("dataflows", dataflow, "stages", stage, "set-aside")
    answer = session.fetch(*at, code=code, **period, **page.shown())
    columns: dict[str, Cell] = {
        "epoch": "epoch",
        "key": (_text, "key"),
        "record": (_text, "record"),
        "from": _place,
        "error": lambda one: one_line(f"{one['code']}: {one['message']}"),
    }
    print_page(answer, columns, empty="nothing is set aside")


def give_back_command(
    session: Session,
    dataflow: DataflowName,
    stage: StageName,
    reason: Reason = "",
    dry_run: DryRun = False,
) -> None:
    """Give back the records that a stage has set aside, in order, once its code is fixed.

    The records are applied in one separate epoch. Records that fail again stay set aside, and
    the command then ends with exit status 1.
    """
    require_reason(reason, dry_run)
    with progress_bar(hidden=session.as_json) as show:
        given = session.client.give_back(
            dataflow, stage, reason=reason, by=getpass.getuser(), dry_run=dry_run, report=show
        )
    session.exit_if_json(given, status=int(bool(given.left)))
    _print_given(dataflow, given, dry_run=dry_run)
    if given.left:
        raise typer.Exit(1)


def _print_given(dataflow: str, given: GivenBack, *, dry_run: bool) -> None:
    stage, records = given.stage, format_count(given.records, "record")
    done = "would be applied" if dry_run else f"applied as epoch {given.epoch}"
    print_text(f"{dataflow}.{stage}: {records} {done}", "green" if given.records else "")
    if given.left:
        what = format_count(given.left, "record fails again", "records fail again")
        stays = "would stay" if dry_run else "stay"
        print_text(
            f"{what}, and {stays} set aside (see: cbp set-aside {dataflow} {stage})", "yellow"
        )


def _text(values: dict[str, Any] | None) -> str:
    return "-" if values is None else one_line(json.dumps(values, ensure_ascii=False))


def _place(one: dict[str, Any]) -> str:
    if one["file"] is None:
        return "a timer" if one["input"] is None else f"{one['input']}/{one['increment']}"
    return str(one["file"]) if one["line"] is None else f"{one['file']}:{one['line']}"
