"""The command `cbp rebuild`: build all tables again beside the present ones, then swap them in.

cbp rebuild clicks clicks.yaml        builds, shows what differs, and asks
cbp rebuild clicks                    the same with the present version and the code that it was
                                      registered with, to replace damaged tables
cbp rebuild clicks --seed urls=/old   reads these files in place of removed input
cbp rebuild clicks --swap             swaps in the new tables, once they are ready
cbp rebuild clicks --cancel
cbp rebuild clicks --back             shows the tables from before the swap again
cbp rebuild clicks --list

The service does the work: `controller.loop.rebuild.build_beside`.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cbp.client import Client, RebuildJob, TableDifference
from cbp.errors import NotFoundError
from controller.cli.dataflows.register import document_of
from controller.cli.maintenance.gc import print_input_reach
from controller.cli.options import DataflowName, Period
from controller.cli.progress import progress_bar
from controller.cli.session import Session
from controller.terminal import Cell, clock, print_items, print_table, print_text

Document = Annotated[
    str | None,
    typer.Argument(
        help="JSON or YAML file of a new version to build, with the code that is on disk now. By "
        "default, the registered version is built with its registered code."
    ),
]
Swap = Annotated[bool, typer.Option("--swap", help="Swap in the tables that are ready.")]
Cancel = Annotated[
    bool,
    typer.Option(
        "--cancel",
        help="Cancel the rebuild that is under way, or end the alert about one that failed.",
    ),
]
Back = Annotated[
    bool,
    typer.Option(
        "--back",
        help="Show the tables from before the last swap again; needs the code of their version.",
    ),
]
List = Annotated[bool, typer.Option("--list", help="List the rebuilds and their progress.")]
Seed = Annotated[
    list[str] | None,
    typer.Option(
        metavar="SOURCE=PATH",
        help="A Parquet file, a folder of such files, or a Delta table on the service's machine, "
        "to read instead of the removed input of the source.",
    ),
]
ErrorCode = Annotated[
    str | None, typer.Option(help="With --list: only rebuilds with this error code.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Swap without asking.")]


def rebuild_command(
    session: Session,
    dataflow: DataflowName,
    document: Document = None,
    swap: Swap = False,
    cancel: Cancel = False,
    back: Back = False,
    list_: List = False,
    seed: Seed = None,
    error_code: ErrorCode = None,
    period: Period = Period(),
    yes: Yes = False,
) -> None:
    """Rebuild all tables from retained input, beside the present ones, and swap them in.

    Until the swap, readers see the present tables, which are still updated. The swap replaces all
    of them at one time. The rebuild works half of the time (CBP_REBUILD_SHARE), and continues after
    a restart of the service. The old tables are kept for a day (CBP_KEEP_HOURS): --back shows them
    again.
    """
    client = session.client
    if back:
        version = client.swap_back(dataflow)
        text = f"{dataflow} shows its tables from before the swap, at version {version}"
        session.report({"dataflow": dataflow, "version": version}, text)
        return
    if list_:
        at = ("dataflows", dataflow, "rebuilds")
        _print_jobs(session.fetch(*at, error_code=error_code, **period))
        return
    with progress_bar(hidden=session.as_json) as show:
        if cancel:
            job = client.cancel_rebuild(dataflow, _to_cancel(client, dataflow))
        elif swap:
            job = client.swap(dataflow, _under_way(client, dataflow), report=show)
        else:
            print_input_reach(session, dataflow)
            made = None if document is None else document_of(document)
            job = client.rebuild(dataflow, made, seed=seed or (), report=show)
    if job.status == "ready" and not session.as_json:
        _print_differences(job)
        if yes or (not swap and _wants_swap()):
            with progress_bar(hidden=False) as show:
                job = client.swap(dataflow, job, report=show)
    session.exit_if_json(job)
    if job.status == "ready":
        print_text(
            f"the new tables are ready. Swap them in with: cbp rebuild {dataflow} --swap (or "
            "discard them with --cancel)"
        )
    elif job.status == "swapped":
        print_text(f"{dataflow} shows the new tables, at version {job.version}", "green")
        print_text(
            f"the old tables are kept for some time; to show them again: cbp rebuild {dataflow} "
            "--back"
        )
    else:
        print_text(f"the rebuild {job.step}; nothing has changed")


def _wants_swap() -> bool:
    """Ask whether to swap; no answer, as without a terminal, means no."""
    try:
        return typer.confirm("Swap the new tables in?", err=True)
    except typer.Abort:
        return False


def _under_way(client: Client, dataflow: str) -> RebuildJob:
    """Return the rebuild that has not ended; raises `NotFoundError` if all have."""
    for one in client.rebuilds(dataflow):
        if not one.ended:
            return one
    hint = f"begin one: cbp rebuild {dataflow}"
    raise NotFoundError(kind="unfinished rebuild of", name=dataflow, hint=hint)


def _to_cancel(client: Client, dataflow: str) -> RebuildJob:
    """Return the rebuild that is under way, or the newest one, if that failed."""
    newest = next(iter(client.rebuilds(dataflow)), None)
    if newest is not None and newest.status == "failed":
        return newest
    return _under_way(client, dataflow)


def _print_differences(job: RebuildJob) -> None:
    rows = [(one.table, one.before, one.after, *_differences(one)) for one in job.tables]
    columns = ("table", "records now", "then", "added", "gone", "changed")
    print_table(columns, rows, empty="no tables")
    if not job.exact:
        print_text(
            "the dataflow did not become idle, so some differences come from input that only the "
            "present or only the new tables had applied when they were compared",
            "yellow",
        )


def _differences(table: TableDifference) -> tuple[Any, Any, Any]:
    """Return how many records were added, removed and changed, or why none were compared."""
    if table.because:
        return table.because, "", ""
    return table.added, table.gone, table.changed


def _print_jobs(answer: dict[str, Any]) -> None:
    columns: dict[str, Cell] = {
        "rebuild": "id",
        "version": "version",
        "status": "status",
        "began at": (clock, "began_at"),
        "by": "by",
        "ended at": (lambda at: "" if at is None else clock(at), "ended_at"),
        "ended by": "ended_by",
    }
    print_items(answer["items"], columns, empty="no rebuilds")
    for one in answer["items"]:
        if one["error"] is not None:
            print_text(f"{one['id']} {one['step']}: {one['error']['detail']}", "yellow")
    if answer["back_until"]:
        print_text(f"the last swap can be undone until {clock(answer['back_until'])} (--back)")
