"""The commands `cbp gc` and `cbp disk`: collect garbage, or show what goes; how much is on disk.

cbp gc --dry-run
cbp gc clicks
cbp gc clicks --reach
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cbp.errors.counts import format_count
from controller.cli.session import AsJson, DataflowName, fetch, session
from controller.terminal import bytes_text, clock, print_json, print_table, print_text

Name = Annotated[
    str | None, typer.Argument(metavar="[DATAFLOW]", help="Dataflows to collect; by default all.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", "--plan", help="Remove nothing; show what would be removed.")
]


Reach = Annotated[
    bool,
    typer.Option(
        "--reach",
        help="Remove nothing; show how far back a replace, a rebuild, a roll-back can go.",
    ),
]


def gc_command(
    context: typer.Context,
    dataflow: Name = None,
    dry_run: DryRun = False,
    reach: Reach = False,
    json_: AsJson = False,
) -> None:
    """Remove files that are no longer needed, and show why the others stay.

    The service does this by itself, in small steps. The settings keep_hours, keep_inputs_hours,
    keep_finished_hours and others say how long files stay.
    """
    answers: list[dict[str, Any]] = []
    with session(context).client() as client:
        names = [one.name for one in client.dataflows()] if dataflow is None else [dataflow]
        for name in names:
            if reach:
                answers.append(client.rest.get("dataflows", name, "reach"))
            elif dry_run:
                answers.append(client.rest.get("dataflows", name, "garbage"))
            else:
                answers.append(client.collect(name))
    if json_:
        print_json({"items": answers})
        return
    if reach:
        _print_reach(answers)
        return
    goes = "would go" if dry_run else "went"
    rows = [
        (
            answer["dataflow"],
            heap["place"],
            goes if heap["goes"] else "stays",
            "" if heap["files"] is None else heap["files"],
            "" if heap["bytes"] is None else bytes_text(heap["bytes"]),
            heap["because"],
        )
        for answer in answers
        for heap in answer["items"]
    ]
    columns = ("dataflow", "place", "", "files", "bytes", "because")
    print_table(columns, rows, empty="nothing to collect")
    _print_compactions(answers)


def _print_reach(answers: list[dict[str, Any]]) -> None:
    rows = [
        (
            answer["dataflow"],
            one["source"],
            one["increments"],
            one["first"],
            clock(one["first_at"]),
            "all" if one["complete"] else f"no: begins at {one['first']}",
        )
        for answer in answers
        for one in answer["sources"]
    ]
    columns = ("dataflow", "source", "kept", "from", "arrived", "replace, rebuild")
    print_table(columns, rows, empty="no sources")
    for answer in answers:
        oldest = answer["oldest_position"] or 0
        print_text(f"{answer['dataflow']}: a roll-back can go back to position {oldest}")


def _print_compactions(answers: list[dict[str, Any]]) -> None:
    """Print what was compacted last in each table, if anything was."""
    rows = [
        (
            answer["dataflow"],
            one["table"],
            clock(one["at"]),
            f"{one['files_before']:,} to {one['files_after']:,}",
            "-" if one["bytes_before"] is None else bytes_text(one["bytes_before"]),
            bytes_text(one["bytes_after"]),
        )
        for answer in answers
        for one in answer["compactions"]
    ]
    if rows:
        print_text("\nlast compactions", "bold")
        columns = ("dataflow", "table", "at", "files", "size before", "size after")
        print_table(columns, rows, empty="")


def disk_command(context: typer.Context, dataflow: DataflowName, json_: AsJson = False) -> None:
    """Show how many files and bytes each table takes, all its readable versions included."""
    answer = fetch(context, json_, "dataflows", dataflow, "disk")
    rows = [(one["place"], one["files"], bytes_text(one["bytes"])) for one in answer["items"]]
    print_table(("place", "files", "size"), rows, empty="nothing is on disk")
    total = f"{format_count(answer['files'], 'file')}, {bytes_text(answer['bytes'])}"
    print_text(f"{total}, measured at {clock(answer['at'])}")
