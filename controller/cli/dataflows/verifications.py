"""The commands `cbp verifications` and `cbp differences`: what earlier verifications found.

cbp verifications clicks       the last ones, newest first
cbp differences v0123456789ab  record by record, value by value
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from controller.cli.session import AsJson, Cursor, DataflowName, Limit, fetch, session
from controller.terminal import age, clock, print_json, print_more, print_table, print_text

__all__ = ["differences_command", "verifications_command"]

Id = Annotated[
    str, typer.Argument(metavar="VERIFICATION", help="Id of the verification.", show_default=False)
]
OfTable = Annotated[
    str | None,
    typer.Option("--table", help="Show only this table, such as state/count.counts."),
]


def verifications_command(
    context: typer.Context,
    dataflow: DataflowName,
    cancel: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Cancel this verification.", show_default=False),
    ] = None,
    json_: AsJson = False,
) -> None:
    """List the last verifications of a dataflow, newest first; the last 20 outlive a restart."""
    with session(context).connect() as service:
        if cancel is not None:
            answer = service.post("verifications", cancel, "cancel")
            print_json(answer) if json_ else print_text(f"{cancel} is cancelled")
            return
        answer = service.get("dataflows", dataflow, "verifications")
    if json_:
        print_json(answer)
        return
    rows = [
        (
            one["id"],
            clock(one["began_at"]),
            one["status"],
            age(one["seconds"]),
            sum(table["differences"] for table in one["tables"]),
        )
        for one in answer["items"]
    ]
    columns = ("id", "began", "result", "took", "differing keys")
    print_table(columns, rows, empty=f"none yet; begin with: cbp verify {dataflow}")


def differences_command(
    context: typer.Context,
    verification: Id,
    table: OfTable = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    json_: AsJson = False,
) -> None:
    """Show the keys that differ, with what each column should hold and what it holds."""
    answer = fetch(
        context,
        json_,
        "verifications",
        verification,
        "differences",
        table=table,
        limit=limit,
        cursor=cursor,
    )
    if not answer["items"]:
        print_text("no differing key is kept of this verification", "dim")
    for one in answer["items"]:
        key = ", ".join(
            f"{name}={value}" for name, value in zip(one["key_columns"], one["key"], strict=True)
        )
        print_text(f"{one['table']}: {key}", "bold")
        print_table(("", *one["columns"]), _rows(one), empty="")
    print_more(answer)


def _rows(one: dict[str, Any]) -> list[tuple[str, ...]]:
    return [
        (side, *record)
        for side in ("expected", "found")
        for record in one[side] or [["nothing", *[""] * (len(one["columns"]) - 1)]]
    ]
