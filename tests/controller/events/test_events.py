"""The event stream over real sockets, with real runs behind it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from cbp.client.errors import ServiceProblemError
from controller.cli.dataflows.logs import Message, follow_events, messages
from controller.cli.main import app as commands
from controller.cli.session import Session
from controller.client.service_client import ServiceClient
from controller.events import EventFeed, FeedLimits
from controller.settings import Settings
from controller.store.base import Event
from tests.controller.served import served
from tests.controller.small_app import TOKEN
from tests.controller.world import until

RUN = ["file.arrived", "file.claimed", "increment.arrived", "run.started", "run.ended"]


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Settings, Any]]:
    with served(tmp_path_factory.mktemp("events"), event_streams_max=3) as (settings, app, _):
        yield settings, app


def drop(client: ServiceClient, name: str) -> None:
    """Upload a file, which becomes an increment and a run."""
    body = b'{"url": "/"}\n'
    client.post("dataflows", "urls", "sources", "visits", "files", content=body,
                query={"name": name})  # fmt: skip


def until_run_ends(stream: Iterator[Message]) -> list[Message]:
    """Return the next messages, up to the end of a run."""
    seen = []
    for message in stream:
        seen.append(message)
        if message.data["kind"] == "run.ended":
            return seen
    raise AssertionError(seen)


def test_a_client_that_comes_again_and_again_misses_nothing(serving: tuple[Settings, Any]) -> None:
    """Its connection breaks after every event; what it got is what the store holds, once each."""
    settings, _ = serving
    seen = list[dict[str, Any]]()
    with ServiceClient(settings) as client:
        place = client.get("events", "recent", limit=1)["cursor"]
        began = place
        for number in range(3):
            drop(client, f"again-{number}.jsonl")
            while not seen or seen[-1]["kind"] != "run.ended":
                with closing(follow_events(client, after=place)) as stream:
                    message = next(stream)
                assert message.event == "changed"
                place = message.id
                seen.append(message.data)
            seen.append({"kind": ""})
        stored = client.get("events", "recent", after=began, limit=100)["items"]
    told = [event for event in seen if event["kind"]]
    assert [event["id"] for event in told] == [event["id"] for event in stored][: len(told)]
    kinds = [event["kind"] for event in told]
    assert [kind for kind in kinds if kind in RUN].count("run.ended") == 3
    assert [event["subject"] for event in told if event["kind"] == "run.ended"] == [
        event["subject"] for event in told if event["kind"] == "run.started"
    ]


def test_a_stream_tells_of_its_dataflow_alone(serving: tuple[Settings, Any]) -> None:
    """Events of another dataflow do not come, and its own come in order; nothing is repeated."""
    settings, app = serving
    store = app.state.parts.store
    with ServiceClient(settings) as client:
        after = client.get("events", "recent", limit=1)["cursor"]
        with closing(follow_events(client, after=after, dataflow="urls")) as stream:
            store.announce(Event(kind="stage.waiting", dataflow="other"))
            drop(client, "alone.jsonl")
            seen = until_run_ends(stream)
    assert {message.data["dataflow"] for message in seen} == {"urls"}
    assert [m.data["kind"] for m in seen if m.data["kind"] in RUN] == [RUN[0], *RUN[1:]]


@pytest.mark.part(every=3)
@pytest.mark.parametrize("after", ["1-1", "99999999-1", "no id at all"])
def test_a_place_that_is_not_known_begins_with_a_reset(
    serving: tuple[Settings, Any], after: str
) -> None:
    """Too old, of a database before, or nonsense: the client has to read everything anew."""
    settings, _ = serving
    with ServiceClient(settings) as client:
        with closing(follow_events(client, after=after)) as stream:
            assert next(stream).event == "reset"
            drop(client, f"after-{after[:2]}.jsonl")
            assert until_run_ends(stream)[-1].event == "changed"
        with pytest.raises(ServiceProblemError) as gone:
            client.get("events", "recent", after=after)
        assert gone.value.error_code == "events_gone"


def test_the_header_of_a_browser_wins_over_the_address(serving: tuple[Settings, Any]) -> None:
    """A browser comes again to the address that it first called, with the last id in a header."""
    settings, app = serving
    store = app.state.parts.store
    store.announce(*(Event(kind="stage.waiting", subject=s) for s in ("x", "y")))
    first, second = (str(one.cursor) for one in store.recent_events(limit=2))
    headers = {"Authorization": f"Bearer {TOKEN}", "Last-Event-ID": first}
    url = f"{settings.url}/api/v1/events"
    with httpx.stream("GET", url, params={"after": "1-1"}, headers=headers) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        message = next(messages(response.iter_lines()))
    assert (message.id, message.data["subject"]) == (second, "y")


@pytest.fixture
def beating(tmp_path: Path) -> Iterator[Settings]:
    """A service whose streams have ten heartbeats a second."""
    with served(tmp_path) as (settings, app, _):
        parts = app.state.parts
        parts.events = EventFeed(parts.store, FeedLimits(heartbeat_seconds=0.1))
        try:
            yield settings
        finally:
            parts.events.stop()


def heartbeats(lines: Iterator[str]) -> Iterator[int]:
    """Yield at each heartbeat how many there were."""
    return (number for number, _ in enumerate(line for line in lines if line == ": alive"))


@pytest.mark.part(every=3)
@pytest.mark.parametrize("by", ["token", "session", "token of a session"])
def test_a_stream_ends_soon_after_its_credential(by: str, beating: Settings) -> None:
    """Revoked or signed out: within a heartbeat, and not after the time that a stream may last.

    A stream beside it goes on.
    """
    settings = beating
    with ServiceClient(settings) as admin, httpx.Client(base_url=settings.url) as client:
        secret = admin.post_json("tokens", value={"name": "t", "scope": "viewer"})["secret"]
        headers = {"Authorization": f"Bearer {secret}"}
        if "session" in by:
            body = {"token": secret}
            signed_in = client.post("/api/v1/session", json=body, headers={"X-CBP-Request": "1"})
            headers = {}
            assert signed_in.status_code == 201
        with (
            client.stream("GET", "/api/v1/events", headers=headers) as response,
            admin.stream_lines("events") as other_lines,
        ):
            assert response.status_code == 200
            lines, beside = response.iter_lines(), heartbeats(other_lines)
            for count in (heartbeats(lines), beside):
                while next(count) < 3:  # it goes on while nothing has ended
                    pass
            if by == "session":
                (session,) = admin.get("sessions")["items"]
                admin.delete("sessions", session["id"])
            else:
                admin.delete("tokens", "t")
            left = 0
            for line in lines:
                left += line.startswith((": alive", "event:"))
                assert left < 100, "it goes on"
            before = next(beside)
            assert next(beside) == before + 1


def test_too_many_streams_are_refused_before_they_begin(serving: tuple[Settings, Any]) -> None:
    """With a code and a time to come again; the others go on."""
    settings, app = serving
    with ServiceClient(settings) as client:
        opened = [client.stream_lines("events") for _ in range(3)]
        # An iterator that is let go closes its stream.
        streams = [messages(one.__enter__()) for one in opened]
        assert [next(stream).event for stream in streams] == ["begin"] * 3
        with pytest.raises(ServiceProblemError) as refused:
            next(follow_events(client))
        assert refused.value.error_code == "event_streams_exhausted"
        for one in opened:
            one.__exit__(None, None, None)
        until(lambda: app.state.parts.events.streams == 0)


def test_a_stop_ends_the_streams(tmp_path: Path) -> None:
    """The service does not wait for those who follow, and breaks off nobody: a stream ends."""
    with (
        served(tmp_path) as (settings, app, server),
        ServiceClient(settings) as client,
        client.stream_lines("events") as lines,
    ):
        stream = messages(lines)
        assert next(stream).event == "begin"
        app.state.begin_stop()
        server.should_exit = True
        assert len([*stream]) < 100, "it ended"


def test_the_command_lists_and_follows(serving: tuple[Settings, Any]) -> None:
    """`cbp events` shows what the route answers, as a table and as JSON."""
    settings, _ = serving
    with ServiceClient(settings) as client:
        answer = client.get("events", "recent", limit=5, dataflow="urls")
    given = ["events", "--limit", "5", "--dataflow", "urls"]
    as_json = CliRunner().invoke(commands, [*given, "--json"], obj=Session(settings))
    assert json.loads(as_json.stdout) == answer
    table = CliRunner().invoke(commands, given, obj=Session(settings))
    assert answer["items"][-1]["kind"] in table.stdout


def test_messages_are_read_as_the_standard_says() -> None:
    """Comments are left out, data of several lines is joined, an id alone moves the place on."""
    lines = [": alive", "id: 1-2", "", "event: changed", "id: 3-4", "data: {", 'data: "a": 1}', "",
             "event: changed", "data: {}"]  # fmt: skip
    assert list(messages(lines)) == [
        Message("message", "1-2"),
        Message("changed", "3-4", {"a": 1}),
    ]
