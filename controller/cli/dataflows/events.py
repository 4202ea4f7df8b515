"""The command `cbp events`: what changed, as a list or as it happens."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from controller.cli.session import AsJson, Limit, session
from controller.client.event_stream import follow_events
from controller.terminal import clock, print_json, print_table, print_text

__all__ = ["events_command"]


def events_command(
    context: typer.Context,
    follow: Annotated[bool, typer.Option("--follow", help="Go on as it happens.")] = False,
    after: Annotated[
        str | None, typer.Option(help="Begin behind the event with this id.", show_default=False)
    ] = None,
    dataflow: Annotated[str | None, typer.Option(help="Only this dataflow.")] = None,
    limit: Limit = 20,
    json_: AsJson = False,
) -> None:
    """List what changed, oldest first; with --follow, go on as it happens, one line each."""
    with session(context).connect() as service:
        if not follow:
            answer = service.get("events", "recent", after=after, dataflow=dataflow, limit=limit)
            _print_events(answer, json_)
            return
        for message in follow_events(service, after=after, dataflow=dataflow):
            if json_:
                print_text(json.dumps({"event": message.event, **message.data}))
            elif message.event == "reset":
                print_text("some events are not kept any more; go on from the newest one")
            else:
                print_text("  ".join(map(str, _row(message.data))))


def _print_events(answer: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
    columns = ("id", "at", "what", "where", "subject", "count")
    rows = [_row(item) for item in answer["items"]]
    print_table(columns, rows, empty="no events", optional=("count", "id"))


def _row(event: dict[str, Any]) -> tuple[Any, ...]:
    place = ".".join(part for part in (event["dataflow"], event["stage"] or event["flow"]) if part)
    at = clock(event["at"])
    return (event["id"], at, event["kind"], place or "-", event["subject"], event["count"])
