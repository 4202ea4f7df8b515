"""A stream of events and the credential of its client, over fakes: what no silence may hide."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from cbp.errors import OperatingError
from controller.access.authentication import REMEMBERED_SECONDS
from controller.api.routes.maintenance.events import STREAM_SECONDS
from controller.events import EventFeed, FeedLimits
from controller.store.access import TokenRecord
from controller.store.base import Event, EventCursor, EventRecord
from tests.controller.api.app_transport import TOKEN
from tests.controller.api.fake_service import Service
from tests.controller.api.security.callers import bearer, cookie_of, make_token, sign_in
from tests.simulated_time import play

EVENTS_MAX = 50


class BusyFeed:
    """Has one event after the other, without a silence; a heartbeat is due at each of them.

    Args:
        then: Called after each event.
    """

    heartbeat_seconds = 0.0
    streams = 0

    def __init__(self, then: Callable[[int], None]) -> None:
        self._then = then

    @contextmanager
    def stream(self) -> Iterator[None]:
        yield

    async def newest(self) -> EventCursor:
        return EventCursor(0, 1)

    async def follow(self, _place: EventCursor) -> AsyncGenerator[EventRecord]:
        for number in range(1, EVENTS_MAX + 1):
            yield EventRecord(number, number, Event(kind="stage.waiting", dataflow="clicks"))
            self._then(number)


def events_of(service: Service, headers: dict[str, str], then: Callable[[int], None]) -> int:
    """Follow a busy feed to the end of the stream; return how many events came."""
    service.app.state.parts.events = BusyFeed(then)
    with service.client(token=None) as client:
        answer = client.get("/api/v1/events", headers=headers)
    assert answer.status_code == 200
    return answer.text.count("event: changed")


def test_a_busy_stream_ends_when_its_token_is_revoked(filled: Service) -> None:
    """It never hears a silence, so the time since the last question counts."""
    secret = make_token(filled, "t")

    def revoke(number: int) -> None:
        if number == 5:
            filled.access.tokens.revoke("t")

    assert events_of(filled, bearer(secret), revoke) == 5


@pytest.mark.parametrize("by", ["token", "session"])
def test_a_stream_ends_when_its_credential_expires(by: str, filled: Service) -> None:
    """By the clock, though nobody ended it."""
    secret = make_token(filled, "t", expires_days=1)
    headers = bearer(secret) if by == "token" else cookie_of(sign_in(filled))

    def wait(number: int) -> None:
        if number == 5:
            filled.clock.move(days=2)

    assert events_of(filled, headers, wait) == 5


def test_following_is_no_use_of_a_session(filled: Service) -> None:
    """A page that is left open and asks nothing becomes idle, and its stream ends with it."""
    cookie = cookie_of(sign_in(filled))
    idle = timedelta(minutes=filled.settings.session_idle_minutes)

    def wait(_number: int) -> None:
        filled.clock.move(seconds=idle.total_seconds() / 10)

    assert events_of(filled, cookie, wait) == 10


def test_a_store_that_does_not_answer_ends_no_stream(
    filled: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is known of the token, and the client would only come again."""
    secret = make_token(filled, "t")
    asked = 0

    def fail(_sha256: str) -> TokenRecord | None:
        nonlocal asked
        asked += 1
        raise OperatingError("the database is away")

    def break_store(number: int) -> None:
        filled.clock.move(seconds=REMEMBERED_SECONDS)
        if number == 5:
            monkeypatch.setattr(filled.store, "find_token", fail)

    assert events_of(filled, bearer(secret), break_store) == EVENTS_MAX
    assert asked == EVENTS_MAX - 5


class QuietStore:
    """Has no event and gets none."""

    def newest_event(self) -> EventRecord:
        return EventRecord(1, 1, Event(kind="stream.began"))

    def events_after(self, *_: object, **__: object) -> list[EventRecord]:
        return []


def test_a_quiet_stream_shows_that_it_lives_and_ends(filled: Service) -> None:
    """A sign of life in each heartbeat, for proxies; then its client connects again."""
    limits = FeedLimits()
    headers = bearer(make_token(filled, "t"))
    filled.app.state.parts.events = EventFeed(QuietStore(), limits)  # type: ignore[arg-type]

    async def follow() -> tuple[str, float]:
        transport = httpx.ASGITransport(filled.app)
        client = httpx.AsyncClient(transport=transport, base_url=filled.settings.url, timeout=None)
        async with client:
            answer = await client.get("/api/v1/events", headers=headers)
            return answer.text, asyncio.get_running_loop().time()

    text, seconds = play(follow())
    assert text.count("event: begin") == 1
    assert STREAM_SECONDS <= seconds <= STREAM_SECONDS + limits.heartbeat_seconds
    signs = text.count(": alive")
    assert abs(signs - STREAM_SECONDS / limits.heartbeat_seconds) <= 1


class SilentFeed(BusyFeed):
    """A feed whose store does not answer, from its first or its second question on."""

    def __init__(self, *, begins: bool) -> None:
        super().__init__(lambda _: None)
        self._begins = begins

    async def newest(self) -> EventCursor:
        if not self._begins:
            raise OperatingError("the database does not answer")
        return await super().newest()

    async def follow(self, place: EventCursor) -> AsyncGenerator[EventRecord]:
        async for event in super().follow(place):
            yield event
            raise OperatingError("the database does not answer")


def test_a_stream_without_its_store_is_refused_or_ends(tmp_path: Path) -> None:
    """Before the first event with 503; later the stream ends, and no error reaches the server."""
    service = Service(tmp_path)
    for begins, status, events in ((False, 503, 0), (True, 200, 1)):
        service.app.state.parts.events = SilentFeed(begins=begins)

        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(service.app, raise_app_exceptions=True)
            url = service.settings.url
            async with httpx.AsyncClient(transport=transport, base_url=url) as client:
                return await client.get("/api/v1/events", headers=bearer(TOKEN))

        answer = asyncio.run(ask())
        assert (answer.status_code, answer.text.count("event: changed")) == (status, events)
