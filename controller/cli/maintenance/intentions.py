"""The commands `cbp intentions` and `cbp recoveries`: what is open, and what recovery did.

    cbp intentions clicks            committed and not yet published, by stage and epoch
    cbp recoveries --dataflow clicks what the last recoveries of the service did

`cbp recover` shows what a service that does not run would have to recover.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from controller.cli.session import AsJson, Cursor, DataflowName, Limit, fetch
from controller.terminal import age, clock, print_more, print_table

__all__ = ["intentions_command", "recoveries_command"]

OfStage = Annotated[
    str | None, typer.Option("--stage", help="Only of this stage.", show_default=False)
]
OfDataflow = Annotated[
    str | None, typer.Option("--dataflow", help="Only of this dataflow.", show_default=False)
]


def intentions_command(
    context: typer.Context,
    dataflow: DataflowName,
    stage: OfStage = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    json_: AsJson = False,
) -> None:
    """Show what is committed and not yet published: readers of the tables do not see it."""
    answer = fetch(
        context, json_, "dataflows", dataflow, "intentions", stage=stage, limit=limit, cursor=cursor
    )
    rows = [
        (
            one["stage"],
            one["epoch"],
            clock(one["since"]),
            one["records"],
            one["because"] or "waits for the next publication",
        )
        for one in answer["items"]
    ]
    columns = ("stage", "epoch", "committed", "records", "state")
    print_table(columns, rows, empty="nothing is open: the tables show every committed run")
    print_more(answer)


def recoveries_command(
    context: typer.Context, dataflow: OfDataflow = None, json_: AsJson = False
) -> None:
    """Show what the last recoveries of the service did, newest first."""
    answer = fetch(context, json_, "recoveries", dataflow=dataflow)
    rows = [
        (clock(one["at"]), one["term"], age(one["seconds"]), _words(one)) for one in answer["items"]
    ]
    print_table(("at", "term", "took", "what was done"), rows, empty="no recovery is noted")


def _words(note: dict[str, Any]) -> str:
    parts = [f"{one['dataflow']}: {_of_dataflow(one)}" for one in note["dataflows"]]
    parts += [f"removed {path}" for path in note["removed"]]
    return "; ".join(parts) or "nothing was left to do"


def _of_dataflow(one: dict[str, Any]) -> str:
    parts = [f"redid {r['stage']} {r['first']} to {r['last']}" for r in one["redone"]]
    if one["interrupted"]:
        parts.append(f"{', '.join(one['interrupted'])} run again")
    if one["position"] is not None:
        parts.append(f"began at position {one['position']}")
    if one["generation"] is not None:
        parts.append(f"finished roll-back {one['generation']}")
    if one["problem"]:
        parts.append(one["problem"])
    return ", ".join(parts)
