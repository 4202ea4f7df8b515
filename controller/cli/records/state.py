"""The command `cbp state`: look up state records by key, or page through all of them."""

from __future__ import annotations

from typing import Annotated

import typer

from controller.cli.session import (
    AsJson,
    At,
    Cursor,
    DataflowName,
    Epoch,
    Limit,
    Stage,
    moment,
    session,
)
from controller.client.service_client import NULL_PARAMETER
from controller.terminal import print_json, print_more, print_records

__all__ = ["pair", "state_command"]

StateName = Annotated[str, typer.Argument(metavar="STAGE.STATE", show_default=False)]
Key = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="COLUMN=VALUE...", help="The key; without it, all records.", show_default=False
    ),
]
Null = Annotated[list[str] | None, typer.Option("--null", help="A key column whose value is null.")]


def state_command(
    context: typer.Context,
    dataflow: DataflowName,
    name: StateName,
    key: Key = None,
    null: Null = None,
    limit: Limit = 20,
    cursor: Cursor = None,
    epoch: Epoch = None,
    stage: Stage = None,
    at: At = None,
    json_: AsJson = False,
) -> None:
    """Look up the state records of one key: cbp state clicks count.counts url=a.

    Without a key, print all records of one snapshot, page by page.
    """
    of, dot, state = name.partition(".")
    if not dot:
        raise typer.BadParameter("expected STAGE.STATE, such as count.counts")  # noqa: EM101
    path = ("dataflows", dataflow, "state", of, state)
    query = [pair(text) for text in key or () if text]
    query += [(NULL_PARAMETER, column) for column in null or ()]
    with session(context).connect() as service:
        if query:
            when = moment(epoch, stage, at, prefix="_")
            query += [(name, str(value)) for name, value in when.items() if value is not None]
            answer = service.get_pairs(*path, query=query)
        else:
            asked = {"limit": limit, "cursor": cursor, **moment(epoch, stage, at)}
            answer = service.get(*path, "records", **asked)
    if json_:
        print_json(answer)
        return
    print_records(answer["items"], empty="no record")
    if not query:
        print_more(answer)


def pair(text: str) -> tuple[str, str]:
    """Return the column and the value of `column=value`; raises if the text has another form."""
    column, equals, value = text.partition("=")
    if not equals:
        message = f"expected COLUMN=VALUE, got {text!r}"
        raise typer.BadParameter(message)
    return column, value
