"""The command `cbp state`: look up state records by key."""

from __future__ import annotations

from typing import Annotated

import typer

from controller.cli.client import NULL_PARAMETER
from controller.cli.listings import print_records
from controller.cli.output import print_json
from controller.cli.session import AsJson, DataflowName, session

__all__ = ["pair", "state_command"]

StateName = Annotated[str, typer.Argument(metavar="STAGE.STATE", show_default=False)]
Key = Annotated[
    list[str], typer.Argument(metavar="COLUMN=VALUE...", help="The key.", show_default=False)
]
Null = Annotated[list[str] | None, typer.Option("--null", help="A key column that is null.")]


def state_command(
    context: typer.Context,
    dataflow: DataflowName,
    name: StateName,
    key: Key,
    null: Null = None,
    json_: AsJson = False,
) -> None:
    """Look up the state records of one key: cbp state clicks count.counts url=a."""
    stage, dot, state = name.partition(".")
    if not dot:
        raise typer.BadParameter("expected STAGE.STATE, such as count.counts")  # noqa: EM101
    query = [pair(text) for text in key if text]
    query += [(NULL_PARAMETER, column) for column in null or ()]
    with session(context).connect() as service:
        answer = service.get_pairs("dataflows", dataflow, "state", stage, state, query=query)
    if json_:
        print_json(answer)
    else:
        print_records(answer["items"], empty="no record")


def pair(text: str) -> tuple[str, str]:
    """Return the column and the value of `column=value`; refuses anything else."""
    column, equals, value = text.partition("=")
    if not equals:
        message = f"expected COLUMN=VALUE, got {text!r}"
        raise typer.BadParameter(message)
    return column, value
