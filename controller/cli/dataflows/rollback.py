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

from cbp.client import Client
from cbp.errors.counts import format_count
from cbp.errors.message_limits import listed
from controller.cli.progress import progress_bar
from controller.cli.reach import print_rollback_reach
from controller.cli.session import (
    AsJson,
    DataflowName,
    DryRun,
    Since,
    Until,
    Yes,
    session,
)
from controller.terminal import (
    Cell,
    bytes_text,
    clock,
    exact_clock,
    print_items,
    print_json,
    print_more,
    print_table,
    print_text,
)

To = Annotated[
    str | None,
    typer.Option(
        help="Where to go back to: the number of a position, a stage with its last epoch to keep "
        "(count:57), a time (UTC without an offset), or the first increment that is applied again "
        "(urls/3).",
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
    context: typer.Context,
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
    since: Since = None,
    until: Until = None,
    yes: Yes = False,
    json_: AsJson = False,
) -> None:
    """Take tables, queues and epochs back to an earlier moment, and continue from there."""
    with session(context).connect() as service:
        if list_:
            answer = service.get("dataflows", dataflow, "rollbacks", since=since, until=until)
            _print_done(answer, as_json=json_)
            return
        if moments:
            later = str(drop_later).lower()
            asked: dict[str, Any] = {"since": since, "until": until, "drop_later": later}
            asked |= {"cursor": cursor, "limit": limit}
            answer = service.get("dataflows", dataflow, "rollback", "moments", **asked)
            _print_moments(answer, as_json=json_)
            return
        if to is None:
            message = f"is missing; see where a roll-back can go: cbp rollback {dataflow} --moments"
            raise typer.BadParameter(message, param_hint="--to")
        where = {"to": to, "drop_later": str(drop_later).lower(), "without": without or []}
        if files:
            page = {**where, "cursor": cursor, "limit": limit}
            answer = service.get("dataflows", dataflow, "rollback", "files", **page)
            _print_files(answer, as_json=json_)
            return
        plan: dict[str, Any] = {}
        if dry_run or not json_:
            plan = service.get("dataflows", dataflow, "rollback", **where)
        if dry_run and json_:
            print_json(plan)
        elif dry_run or not (yes or json_):
            print_rollback_reach(service, dataflow)
            _print_plan(plan)
        if dry_run:
            return
        if not reason:
            message = 'is missing; say why, such as: --reason "a bad file" (stored, see --list)'
            raise typer.BadParameter(message, param_hint="--reason")
        if not (yes or json_):
            typer.confirm(f"Roll {dataflow} back?", abort=True, err=True)
        with progress_bar(hidden=json_) as show:
            answer = (
                Client.over(service)
                .roll_back(
                    dataflow,
                    to,
                    reason=reason,
                    by=getpass.getuser(),
                    drop_later=drop_later,
                    without=without or (),
                    pause=pause,
                    report=lambda job: show(job.answer),
                )
                .answer
            )
    if json_:
        print_json(answer)
        return
    undone = ", ".join(f"{stage}: {n}" for stage, n in answer["undone"].items())
    print_text(
        f"{dataflow} is back at position {answer['position']}; epochs undone: {undone}", "green"
    )
    _print_queued_before(plan)
    _print_comes_back(plan)
    if pause:
        print_text(f"it is paused; continue with: cbp resume {dataflow}")


def replay_command(
    context: typer.Context,
    dataflow: DataflowName,
    increment: Annotated[
        str, typer.Argument(metavar="FLOW/NUMBER", help="Such as urls/3, or count.totals/57.")
    ],
    reason: Reason = "",
    dry_run: DryRun = False,
    yes: Yes = False,
    json_: AsJson = False,
) -> None:
    """Apply an increment and all later ones again, with the registered code.

    This is a roll-back to the moment before the increment arrived, or before its stage made it; the
    dataflow then continues from there.
    """
    flow, _, number = increment.rpartition("/")
    if not (flow and number.isdecimal()):
        message = f"expected FLOW/NUMBER, such as urls/3; got {increment!r}"
        raise typer.BadParameter(message)
    with session(context).connect() as service:
        plan = service.get("dataflows", dataflow, "rollback", to=increment)
        if dry_run:
            print_json(plan) if json_ else _print_plan(plan)
            return
        if not reason:
            message = (
                'is missing; say why, such as: --reason "new code" (stored with the roll-back)'
            )
            raise typer.BadParameter(message, param_hint="--reason")
        if not (yes or json_):
            _print_plan(plan)
            typer.confirm(f"Apply {increment} of {dataflow} again?", abort=True, err=True)
        with progress_bar(hidden=json_) as show:
            done = Client.over(service).replay(
                dataflow,
                flow,
                int(number),
                reason=reason,
                by=getpass.getuser(),
                report=lambda job: show(job.answer),
            )
    if json_:
        print_json(done.answer)
        return
    undone = ", ".join(f"{stage}: {n}" for stage, n in done.undone.items())
    print_text(f"{dataflow} applies {increment} again; epochs undone: {undone}", "green")


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


def _print_files(answer: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
    _print_file_table(answer["items"])
    if answer["cursor"]:
        print_text(f"more: --cursor {answer['cursor']}")


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
    """Print what --drop-later does not discard, since it had arrived before the position."""
    for source, count in plan.get("queued_before", {}).items():
        print_text(
            f"{format_count(count, 'increment')} of {source} arrived before position "
            f"{plan['rollback']['position']}, but had not been read by then, and will be applied "
            "again (to leave files out: --without)",
            "yellow",
        )


def _print_comes_back(plan: dict[str, Any]) -> None:
    """Print what earlier roll-backs took away, and this one brings back."""
    for source, indexes in plan.get("comes_back", {}).items():
        count = format_count(len(indexes), "increment")
        names = listed([f"{source}/{index}" for index in indexes])
        print_text(
            f"{count} of {source} that an earlier roll-back left out or dropped will be applied "
            f"again, because this roll-back goes back further: {names} (to leave them out again: "
            "--without)",
            "yellow",
        )


def _print_moments(answer: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
    columns: dict[str, Cell] = {
        "--to": "position",
        "after": lambda one: (
            f"{one['stage']}:{one['epoch']}" if one["stage"] else "before the first run"
        ),
        "recorded at, also for --to": (lambda at: exact_clock(at) if at else "", "at"),
    }
    print_items(answer["items"], columns, empty="no earlier moment is retained")
    print_more(answer)


def _print_done(answer: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
    columns: dict[str, Cell] = {
        "generation": "generation",
        "at": (clock, "at"),
        **{name: name for name in ("position", "by", "reason")},
    }
    print_items(answer["items"], columns, empty="no roll-backs")
