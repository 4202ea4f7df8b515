"""The command `cbp rollback`: take a dataflow back to an earlier moment.

cbp rollback clicks --moments
cbp rollback clicks --to count:57 --dry-run
cbp rollback clicks --to 2026-11-21T10:00+00:00 --reason "a bad file"
cbp rollback clicks --to count:57 --without bad.jsonl --reason "a bad file"
cbp rollback clicks --to count:57 --files
cbp rollback clicks --list

The service does the work: `controller.loop.recovery.rollback`.
"""

from __future__ import annotations

import getpass
from typing import Annotated, Any

import typer

from cbp.client import Rollback
from cbp.errors.counts import format_count
from cbp.errors.message_limits import listed
from controller.cli.options import DataflowName, DryRun, Period, Yes
from controller.cli.progress import progress_bar
from controller.cli.session import Session
from controller.terminal import (
    Cell,
    bytes_text,
    clock,
    exact_clock,
    print_items,
    print_page,
    print_table,
    print_text,
)

To = Annotated[
    str | None,
    typer.Option(
        help="Where to go back to: the number of a position, a stage with its last epoch to keep "
        "(count:57), a time (UTC if no offset is given), or the first increment that is applied "
        "again (urls/3)."
    ),
]
Reason = Annotated[str, typer.Option(help="Reason; required, except with --dry-run.")]
DropLater = Annotated[
    bool,
    typer.Option(
        "--drop-later",
        help="Discard later increments and closes instead of queueing them again. With --moments: "
        "only points that a roll-back with --drop-later can reach.",
    ),
]
Without = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILE",
        help="Leave out this file, and apply all others again. A file's name, SOURCE/NAME, or an "
        "increment as SOURCE/NUMBER; can be given several times.",
    ),
]
Pause = Annotated[bool, typer.Option("--pause", help="Leave the dataflow paused afterwards.")]
List = Annotated[bool, typer.Option("--list", help="List the roll-backs that were done.")]
Moments = Annotated[
    bool, typer.Option("--moments", help="List the roll-back points, newest first.")
]
Files = Annotated[
    bool, typer.Option("--files", help="Change nothing; list the files that would be undone.")
]
Cursor = Annotated[
    str | None, typer.Option(help="Cursor of the previous page of --moments or --files.")
]
Limit = Annotated[
    int, typer.Option(min=1, max=500, help="Maximum number of roll-back points, or of files.")
]


def rollback_command(
    session: Session,
    dataflow: DataflowName,
    to: To = None,
    reason: Reason = "",
    drop_later: DropLater = False,
    without: Without = None,
    pause: Pause = False,
    dry_run: DryRun = False,
    list_: List = False,
    moments: Moments = False,
    files: Files = False,
    cursor: Cursor = None,
    limit: Limit = 50,
    period: Period = Period(),
    yes: Yes = False,
) -> None:
    """Take tables, queues and epochs back to an earlier moment, and continue from there."""
    rest, at = session.rest, ("dataflows", dataflow, "rollback")
    later, page = str(drop_later).lower(), {"cursor": cursor, "limit": limit}
    if list_:
        _print_done(session.fetch("dataflows", dataflow, "rollbacks", **period))
        return
    if moments:
        _print_moments(session.fetch(*at, "moments", drop_later=later, **period, **page))
        return
    if to is None:
        message = f"name a roll-back point; to list them: cbp rollback {dataflow} --moments"
        raise typer.BadParameter(message, param_hint="--to")
    where = {"to": to, "drop_later": later, "without": without or []}
    if files:
        answer = session.fetch(*at, "files", **where, **page)
        _print_file_table(answer["items"])
        if answer["cursor"]:
            print_text(f"more: --cursor {answer['cursor']}")
        return
    plan: dict[str, Any] = {}
    if dry_run or not session.as_json:
        plan = rest.get(*at, **where)
    if dry_run:
        session.exit_if_json(plan)
    if dry_run or not (yes or session.as_json):
        oldest = rest.get("dataflows", dataflow, "reach")["oldest_position"] or 0
        print_text(f"a roll-back can go back to position {oldest}", on_stderr=True)
        _print_plan(plan)
    if dry_run:
        return
    _require_reason(reason, 'such as: --reason "a bad file" (stored, see --list)')
    if not (yes or session.as_json):
        typer.confirm(f"Roll {dataflow} back?", abort=True, err=True)
    with progress_bar(hidden=session.as_json) as show:
        done = session.client.roll_back(
            dataflow,
            to,
            reason=reason,
            by=getpass.getuser(),
            drop_later=drop_later,
            without=without or (),
            pause=pause,
            report=show,
        )
    text = f"{dataflow} is back at position {done.position}; epochs undone: {_undone(done)}"
    session.report(done, text)
    _print_queued_before(plan)
    _print_comes_back(plan)
    if pause:
        print_text(f"it is paused; continue with: cbp resume {dataflow}")


def replay_command(
    session: Session,
    dataflow: DataflowName,
    increment: Annotated[
        str, typer.Argument(metavar="FLOW/NUMBER", help="Such as urls/3, or count.totals/57.")
    ],
    reason: Reason = "",
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Apply an increment and all later ones again, with the registered code.

    This is a roll-back to the moment before the increment arrived, or before its stage made it; the
    dataflow then continues from there.
    """
    flow, _, number = increment.rpartition("/")
    if not (flow and number.isdecimal()):
        message = f"expected FLOW/NUMBER, such as urls/3; got {increment!r}"
        raise typer.BadParameter(message)
    plan = session.rest.get("dataflows", dataflow, "rollback", to=increment)
    if dry_run:
        session.exit_if_json(plan)
        _print_plan(plan)
        return
    _require_reason(reason, 'such as: --reason "new code" (stored with the roll-back)')
    if not (yes or session.as_json):
        _print_plan(plan)
        typer.confirm(f"Apply {increment} of {dataflow} again?", abort=True, err=True)
    with progress_bar(hidden=session.as_json) as show:
        by, index = getpass.getuser(), int(number)
        done = session.client.replay(dataflow, flow, index, reason=reason, by=by, report=show)
    session.report(done, f"{dataflow} applies {increment} again; epochs undone: {_undone(done)}")


def _require_reason(reason: str, example: str) -> None:
    if not reason:
        raise typer.BadParameter(f"a reason is required, {example}", param_hint="--reason")  # noqa: EM102


def _undone(done: Rollback) -> str:
    return ", ".join(f"{stage}: {n}" for stage, n in done.undone.items())


def _print_plan(plan: dict[str, Any]) -> None:
    rollback = plan["rollback"]
    undone = f"{plan['records_undone']:,}"
    print_text(f"back to position {rollback['position']}; records undone: {undone}")
    stages = [(s, epoch, rollback["undone"].get(s, 0)) for s, epoch in rollback["epochs"].items()]
    print_table(("stage", "next epoch", "epochs undone"), stages, empty="no stages")
    columns: dict[str, Cell] = {
        "table": "table",
        "records now": "records_now",
        "records then": "records_then",
        "bytes now": (bytes_text, "bytes_now"),
        "bytes then": (bytes_text, "bytes_then"),
    }
    print_items(plan["tables"], columns, empty="no tables")
    print_table(("input", "increments queued"), list(plan["queued"].items()), empty="no inputs")
    if plan["closes_again"]:
        closes = format_count(plan["closes_again"], "later close is", "later closes are")
        print_text(f"{closes} kept and applied again")
    if rollback["closes_dropped"]:
        closes = format_count(rollback["closes_dropped"], "later close is", "later closes are")
        print_text(f"{closes} discarded", "yellow")
    for source, count in rollback["dropped"].items():
        print_text(f"discarded: {format_count(count, 'increment')} of {source}", "yellow")
    for source, indexes in rollback["left_out"].items():
        print_text(f"left out: {format_count(len(indexes), 'increment')} of {source}", "yellow")
    _print_queued_before(plan)
    _print_comes_back(plan)
    _print_first_files(plan)
    for one in plan.get("corrections", ()):
        where = f"{one['stage']}.{one['state']}"
        what = f"the correction of {format_count(one['keys'], 'key')} of {where}"
        if not one["state"]:
            what = f"the return of {format_count(one['keys'], 'record')} to {one['stage']}"
        print_text(f"undoes {what}, made at {clock(one['at'])}: {one['reason']}", "yellow")


def _print_first_files(plan: dict[str, Any]) -> None:
    """Print the first files whose effect is undone, and how many there are."""
    total, more = plan["files_total"], plan["files_total"] - len(plan["files"])
    if total:
        print_text(f"\n{format_count(total, 'file is', 'files are')} undone", "bold")
        _print_file_table(plan["files"])
    if more:
        print_text(f"and {more:,} more (to list all: --files)")


def _print_file_table(files: list[dict[str, Any]]) -> None:
    columns: dict[str, Cell] = {
        "source": "source",
        "increment": "index",
        "file": (lambda name: name or "no longer known", "name"),
        "accepted at": (clock, "accepted_at"),
        "then": (lambda again: "applied again" if again else "dropped", "again"),
    }
    print_items(files, columns, empty="no file is undone")


def _print_queued_before(plan: dict[str, Any]) -> None:
    """Print the increments that --drop-later keeps, since they arrived before the position."""
    for source, count in plan.get("queued_before", {}).items():
        print_text(
            f"{format_count(count, 'increment')} of {source} arrived before position "
            f"{plan['rollback']['position']}, but had not been read by then, and will be applied "
            "again (to leave files out: --without)",
            "yellow",
        )


def _print_comes_back(plan: dict[str, Any]) -> None:
    """Print the increments that earlier roll-backs removed and this one restores."""
    for source, indexes in plan.get("comes_back", {}).items():
        count = format_count(len(indexes), "increment")
        names = listed([f"{source}/{index}" for index in indexes])
        print_text(
            f"{count} of {source} that an earlier roll-back left out or dropped will be applied "
            f"again, because this roll-back goes back further: {names} (to leave them out again: "
            "--without)",
            "yellow",
        )


def _print_moments(answer: dict[str, Any]) -> None:
    columns: dict[str, Cell] = {
        "--to": "position",
        "after": lambda one: (
            f"{one['stage']}:{one['epoch']}" if one["stage"] else "before the first run"
        ),
        "recorded at (--to takes this, too)": (lambda at: exact_clock(at) if at else "", "at"),
    }
    print_page(answer, columns, empty="no earlier moment is retained")


def _print_done(answer: dict[str, Any]) -> None:
    columns: dict[str, Cell] = {
        "generation": "generation",
        "at": (clock, "at"),
        **{name: name for name in ("position", "by", "reason")},
    }
    print_items(answer["items"], columns, empty="no roll-backs")
