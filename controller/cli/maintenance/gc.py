"""The commands `cbp gc` and `cbp disk`: remove garbage, or show it; disk usage; reach of input.

cbp gc --dry-run
cbp gc clicks
cbp gc clicks --reach
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cbp.errors.counts import format_count
from controller.cli.options import DataflowName
from controller.cli.session import Session
from controller.terminal import Cell, bytes_text, clock, print_items, print_text

Name = Annotated[
    str | None, typer.Argument(metavar="[DATAFLOW]", help="Dataflow to collect; by default all.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", "--plan", help="Remove nothing; show what would be removed.")
]
Reach = Annotated[
    bool,
    typer.Option(
        "--reach",
        help="Remove nothing; show how far back you can replace files, rebuild or roll back.",
    ),
]


def gc_command(
    session: Session, dataflow: Name = None, dry_run: DryRun = False, reach: Reach = False
) -> None:
    """Remove files that are no longer needed, and show why the others stay.

    The service does this automatically, in small steps. The settings keep_hours, keep_inputs_hours,
    keep_finished_hours and others set how long files are kept.
    """
    client, answers = session.client, list[dict[str, Any]]()
    names = [one.name for one in client.dataflows()] if dataflow is None else [dataflow]
    for name in names:
        if reach or dry_run:
            what = "reach" if reach else "garbage"
            answers.append(client.rest.get("dataflows", name, what))
        else:
            answers.append(client.collect(name))
    session.exit_if_json({"items": answers})
    if reach:
        _print_reach(answers)
        return
    goes = "would be removed" if dry_run else "removed"
    columns: dict[str, Cell] = {
        "dataflow": "dataflow",
        "place": "place",
        "": (lambda one: goes if one else "kept", "goes"),
        "files": (lambda count: "" if count is None else count, "files"),
        "bytes": (lambda size: "" if size is None else bytes_text(size), "bytes"),
        "because": "because",
    }
    print_items(_of_each(answers, "items"), columns, empty="nothing to collect")
    _print_compactions(answers)


def _of_each(answers: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """Return the items of the list `name` in all answers, each with its answer's dataflow."""
    return [{**one, "dataflow": answer["dataflow"]} for answer in answers for one in answer[name]]


def _print_reach(answers: list[dict[str, Any]]) -> None:
    columns: dict[str, Cell] = {
        "dataflow": "dataflow",
        "source": "source",
        "kept": "increments",
        "from": "first",
        "arrived": (clock, "first_at"),
        "replace, rebuild": lambda one: (
            "possible" if one["complete"] else "not if all input is needed"
        ),
    }
    print_items(_of_each(answers, "sources"), columns, empty="no sources")
    for answer in answers:
        oldest = answer["oldest_position"] or 0
        print_text(f"{answer['dataflow']}: a roll-back can go back to position {oldest}")


def print_input_reach(session: Session, dataflow: str, source: str = "") -> None:
    """Print on stderr how far back input is kept, since corrections and rebuilds read it.

    Args:
        source: The corrected source; `""` means all sources.
    """
    if session.as_json:
        return
    for one in session.rest.get("dataflows", dataflow, "reach")["sources"]:
        if one["increments"] and source in ("", one["source"]):
            kept = format_count(one["increments"], "increment")
            text, style = f"{one['source']}: all input is kept ({kept})", ""
            if not one["complete"]:
                style = "yellow"
                text = (
                    f"{one['source']}: input is kept from increment {one['first']:,} on ({kept}, "
                    f"the first from {clock(one['first_at'])}); operations that need all input "
                    "are refused"
                )
            print_text(text, style, on_stderr=True)


def _print_compactions(answers: list[dict[str, Any]]) -> None:
    """Print what was compacted last in each table, if anything was."""
    if compactions := _of_each(answers, "compactions"):
        print_text("\nlast compactions", "bold")
        columns: dict[str, Cell] = {
            "dataflow": "dataflow",
            "table": "table",
            "at": (clock, "at"),
            "files": lambda one: f"{one['files_before']:,} to {one['files_after']:,}",
            "size before": (lambda size: "-" if size is None else bytes_text(size), "bytes_before"),
            "size after": (bytes_text, "bytes_after"),
        }
        print_items(compactions, columns)


def disk_command(session: Session, dataflow: DataflowName) -> None:
    """Show how many files and bytes each table takes, including all its readable versions."""
    answer = session.fetch("dataflows", dataflow, "disk")
    columns: dict[str, Cell] = {"place": "place", "files": "files", "size": (bytes_text, "bytes")}
    print_items(answer["items"], columns, empty="nothing is on disk")
    total = f"{format_count(answer['files'], 'file')}, {bytes_text(answer['bytes'])}"
    print_text(f"{total}, measured at {clock(answer['at'])}")
