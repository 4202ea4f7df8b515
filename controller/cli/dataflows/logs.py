"""The commands `cbp logs` and `cbp events`: the log of a run, and what changed in the service.

Events are a stream as in the HTML standard, section 9.2, "Server-sent events".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Annotated, Any

import typer

from cbp.client.errors import ResourceMissingError, ServiceUnreachableError
from cbp.client.rest import RestClient
from cbp.clock import MACHINE
from cbp.errors import NotFoundError
from controller.cli.options import Limit
from controller.cli.session import Session
from controller.terminal import clock, print_table, print_text

RETRY_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a stream, with the stream's last id; `data`: `None` if only the id changed."""

    event: str
    id: str
    data: Any = None


def messages(lines: Iterable[str]) -> Iterator[Message]:
    """Yield the messages of a stream; an incomplete last message is dropped."""
    id_, event, data = "", "message", list[str]()
    for line in lines:
        if not line:
            yield Message(event, id_, json.loads("\n".join(data)) if data else None)
            event, data = "message", []
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "id":
            id_ = value
        elif name == "event":
            event = value
        elif name == "data":
            data.append(value)


def follow_events(
    service: RestClient,
    *,
    after: str | None = None,
    dataflow: str | None = None,
    wait: Callable[[float], object] = MACHINE.wait,
) -> Generator[Message, None, None]:
    """Yield `changed` and `reset` forever; reconnects with the last id whenever a stream ends.

    Raises `ServiceUnreachableError` if the service cannot be reached at first; later it waits for
    the service.
    """
    began = False
    while True:
        try:
            with service.stream_lines("events", after=after, dataflow=dataflow) as lines:
                began = True
                for message in messages(lines):
                    after = message.id or after
                    if message.event in ("changed", "reset"):
                        yield message
        except ServiceUnreachableError:
            if not began:
                raise
        wait(RETRY_SECONDS)


_RUN = re.compile(r"[0-9a-f]{20}")
_AGAIN_SECONDS = 1.0
_PLACE = ("time", "level", "event", "dataflow", "stage", "epoch", "run", "logger")


def logs_command(
    session: Session,
    of: Annotated[
        str,
        typer.Argument(
            metavar="RUN|DATAFLOW[.STAGE]",
            help="Id of a run, or name of a dataflow or a stage, such as weblog or weblog.paths.",
        ),
    ],
    stage: Annotated[
        str | None, typer.Argument(help="The stage, unless it is part of the first argument.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Keep printing new lines, also those of newer runs.")
    ] = False,
    limit: Limit = 100,
) -> None:
    """Show the last lines of the log of a run, or of the newest run of a stage or dataflow."""
    if stage is not None:
        if "." in of or _RUN.fullmatch(of):
            message = (
                f"expected the name of a dataflow before {stage!r}, but {of!r} names a run or a "
                "stage"
            )
            raise typer.BadParameter(message)
        of = f"{of}.{stage}"
    run = _newest(session, of)
    answer = session.rest.get("runs", run, "log", limit=limit)
    if follow:
        for line in _follow(session, of, run, answer):
            print_text(json.dumps(line) if session.as_json else _text(line))
        return
    session.exit_if_json(answer, is_whole=True)
    for line in answer["items"]:
        print_text(_text(line))
    if not answer["items"]:
        print_text("no lines: this instance keeps no log of this run")


def _follow(
    session: Session, of: str, run: str, answer: dict[str, Any]
) -> Generator[dict[str, Any], None, None]:
    """Yield the lines of an answer, then forever all later lines, also those of newer runs.

    Several runs of a dataflow can be under way. Each is read until it has ended and one more round
    brings no line, or until the service no longer knows it.
    """
    yield from answer["items"]
    service, is_run = session.rest, _RUN.fullmatch(of) is not None
    places, ended, newest = {run: answer["cursor"]}, set[str](), run
    while True:
        for newer in [] if is_run else _later(session, of, newest):
            places[newer], newest = None, newer
        for one, place in list(places.items()):
            try:
                had_ended = service.get("runs", one)["finished_at"] is not None
                count = 0
                for page in _pages(service, one, place):
                    yield from page["items"]
                    count += len(page["items"])
                    places[one] = page["cursor"]
            except ResourceMissingError:
                if is_run:
                    raise
                count, had_ended = 0, True
                ended.add(one)
            if one in ended and not count and not is_run:
                del places[one]
                ended.remove(one)
            elif had_ended:
                ended.add(one)
        session.clock.wait(_AGAIN_SECONDS)


def _pages(service: RestClient, run: str, place: str | None) -> Iterator[dict[str, Any]]:
    """Yield pages of a run's log from a place on; the last one is empty."""
    while True:
        page = service.get("runs", run, "log", cursor=place, oldest=place is None)
        yield page
        place = page["cursor"]
        if not page["items"]:
            return


def _runs(session: Session, of: str, limit: int | None = None) -> Iterator[str]:
    """Yield the ids of the runs that an argument names, newest first; later ids are larger."""
    dataflow, _, stage = of.partition(".")
    for page in session.pages("runs", dataflow=dataflow, stage=stage or None, limit=limit):
        yield from (str(one["id"]) for one in page["items"])


def _later(session: Session, of: str, run: str) -> list[str]:
    """Return the runs that began after one, oldest first."""
    return [*takewhile(lambda id_: id_ > run, _runs(session, of))][::-1]


def _newest(session: Session, of: str) -> str:
    """Return the id of the run that the argument names."""
    if _RUN.fullmatch(of):
        return of
    for run in _runs(session, of, limit=1):
        return run
    raise NotFoundError(kind="run", name=of)


def _text(line: dict[str, Any]) -> str:
    more = "  ".join(f"{name}={line[name]}" for name in line if name not in _PLACE)
    place = f"{line.get('dataflow')}.{line.get('stage')}/{line.get('epoch')}"
    return f"{line['time']}  {line['level']:<8}{place}  {line['event']}  {more}".rstrip()


def events_command(
    session: Session,
    follow: Annotated[bool, typer.Option("--follow", help="Keep printing new events.")] = False,
    after: Annotated[str | None, typer.Option(help="Begin after the event with this id.")] = None,
    dataflow: Annotated[str | None, typer.Option(help="Only this dataflow.")] = None,
    limit: Limit = 20,
) -> None:
    """List events, oldest first; with --follow, keep printing new ones, one per line."""
    if not follow:
        answer = session.fetch("events", "recent", after=after, dataflow=dataflow, limit=limit)
        rows = [_row(item) for item in answer["items"]]
        columns = ("id", "at", "what", "where", "subject", "count")
        print_table(columns, rows, empty="no events", optional=("count", "id"))
        return
    for message in follow_events(session.rest, after=after, dataflow=dataflow):
        if session.as_json:
            print_text(json.dumps({"event": message.event, **message.data}))
        elif message.event == "reset":
            print_text("some events are no longer kept; continuing with new events")
        else:
            print_text("  ".join(map(str, _row(message.data))))


def _row(event: dict[str, Any]) -> tuple[Any, ...]:
    place = ".".join(part for part in (event["dataflow"], event["stage"] or event["flow"]) if part)
    at = clock(event["at"])
    return (event["id"], at, event["kind"], place or "-", event["subject"], event["count"])
