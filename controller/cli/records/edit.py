"""The command `cbp edit`: correct records of a state, with a reason.

cbp edit clicks count.counts url=a --set n=5 --reason "counted twice"
cbp edit clicks count.counts url=a --delete --reason "a test"
cbp edit clicks count.counts --file right.json --reason "see ticket 12"
cbp edit clicks count.counts url=a --set n=5 --dry-run
cbp edit clicks --list
"""

from __future__ import annotations

import getpass
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from cbp.client import Correction, CorrectionPreview
from cbp.client.record_calls import Corrections
from cbp.errors.counts import format_count
from controller.cli.options import (
    DataflowName,
    DryRun,
    Null,
    Period,
    Reason,
    pair,
    require_reason,
    stage_and_state,
)
from controller.cli.session import Session
from controller.terminal import Cell, clock, print_items, print_table, print_text

StateName = Annotated[
    str | None,
    typer.Argument(metavar="[STAGE.STATE]", help="Name of the state; not needed with --list."),
]
Key = Annotated[
    list[str] | None, typer.Argument(metavar="COLUMN=VALUE...", help="Key of the records.")
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="COLUMN=VALUE to set in each record of the key; COLUMN= sets null."),
]
Delete = Annotated[bool, typer.Option("--delete", help="Remove the records of the key.")]
File = Annotated[
    Path | None,
    typer.Option(
        exists=True,
        dir_okay=False,
        help='File of corrections as JSON: {"corrections": [{"key", "set" or "records"}, ...]}.',
    ),
]
List = Annotated[bool, typer.Option("--list", help="List the corrections that were made.")]


def edit_command(
    session: Session,
    dataflow: DataflowName,
    name: StateName = None,
    key: Key = None,
    null: Null = None,
    set_: Set = None,
    delete: Delete = False,
    file: File = None,
    reason: Reason = "",
    list_: List = False,
    period: Period = Period(),
    dry_run: DryRun = False,
) -> None:
    """Correct records of a state.

    A correction is a separate epoch, which is published when this command returns.
    """
    client = session.client
    if list_:
        _print_list(session, list(client.corrections(dataflow, **period)))
        return
    table = name or ""
    stage_and_state(table)
    require_reason(reason, dry_run)
    asked = _corrections(key or [], null or [], set_ or [], delete=delete, file=file)
    if dry_run:
        _print_preview(session, client.plan_edit(dataflow, table, asked))
        return
    made = client.edit(dataflow, table, asked, reason=reason, by=getpass.getuser())
    where = f"{made.stage}.{made.state}, epoch {made.epoch}"
    session.report(made, f"{format_count(made.keys, 'key')} corrected: {where}")


def _corrections(
    key: list[str], null: list[str], set_: list[str], *, delete: bool, file: Path | None
) -> Corrections:
    if (bool(set_), delete, file is not None).count(True) != 1:
        raise typer.BadParameter("expected exactly one of --set, --delete and --file")  # noqa: EM101
    if file is not None:
        return file
    named: dict[str, str | None] = {**dict.fromkeys(null), **dict(pair(text) for text in key)}
    if delete:
        return [{"key": named, "records": []}]
    return [{"key": named, "set": {column: value or None for column, value in map(pair, set_)}}]


def _print_preview(session: Session, shown: CorrectionPreview) -> None:
    session.exit_if_json(shown)
    rows = [
        (json.dumps(one.key, ensure_ascii=False), _records(one.before), _records(one.after))
        for one in shown.items
    ]
    print_table(("key", "before", "after"), rows, empty="no key")
    if shown.keys > len(rows):
        print_text(f"Only the first {len(rows)} of {shown.keys} keys are shown.")
    print_text("Nothing was changed. Run again without --dry-run to apply the correction.")


def _records(records: list[dict[str, Any]]) -> str:
    return "\n".join(json.dumps(one, ensure_ascii=False) for one in records) or "no record"


def _print_list(session: Session, items: list[Correction]) -> None:
    session.exit_if_json({"items": [one.answer for one in items]})
    columns: dict[str, Cell] = {
        "at": (clock, "at"),
        "state": lambda one: (
            f"{one['stage']}.{one['state']}" if one["state"] else f"{one['stage']}: given back"
        ),
        "keys": "keys",
        "epoch": lambda one: f"{one['epoch']}{' (undone)' if one['undone'] else ''}",
        "by": "by",
        "reason": "reason",
    }
    print_items((one.answer for one in items), columns, empty="no corrections")
