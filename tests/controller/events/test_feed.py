"""The feed: each client gets each event once and in order, from the ring or from the store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread

from controller.events import EventFeed, EventsGoneError, EventStreamsExhaustedError, FeedLimits
from controller.store.base import Event, EventRecord, Store, open_store
from tests import simulated_time

WAIT_SECONDS = 120.0
LIMITS = FeedLimits(streams_max=3, poll_seconds=0.001, heartbeat_seconds=60.0, ring=8, page=3)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(open_store(f"sqlite:///{tmp_path}/cbp.db")) as store:
        yield store


def tell(store: Store, begin: int, end: int) -> None:
    """Store events with these numbers, each in a transaction of its own."""
    for number in range(begin, end):
        store.announce(Event(kind="stage.waiting", subject=str(number)))


async def take(events: AsyncIterator[EventRecord | None], count: int) -> list[int]:
    """Return the numbers of the next events; heartbeats count for nothing."""
    taken: list[int] = []
    async with asyncio.timeout(WAIT_SECONDS):
        while len(taken) < count:
            event = await anext(events)
            taken += [] if event is None else [int(event.event.subject)]
    return taken


def test_every_client_gets_every_event_once_and_in_order(store: Store) -> None:
    """Also one that reads slowly, beyond the ring, and one that comes later."""

    async def play() -> list[list[int]]:
        feed = EventFeed(store, LIMITS)
        place = await feed.newest()
        with feed.stream(), feed.stream(), feed.stream():
            quick, slow, late = (feed.follow(place) for _ in range(3))
            async with aclosing(quick), aclosing(slow), aclosing(late):
                tell(store, 0, 2)
                seen = [await take(quick, 2), await take(slow, 1)]
                for begin in range(2, 40, 2):
                    tell(store, begin, begin + 2)
                    seen[0] += await take(quick, 2)
                seen[1] += await take(slow, 39)
                return [*seen, await take(late, 40)]

    assert simulated_time.play(play()) == [list(range(40))] * 3


def test_a_client_resumes_behind_the_last_event_that_it_got(store: Store) -> None:
    """A connection that breaks anywhere loses nothing and repeats nothing."""

    async def play() -> list[int]:
        feed, seen = EventFeed(store, LIMITS), list[int]()
        place = await feed.newest()
        tell(store, 0, 20)
        while len(seen) < 20:
            with feed.stream():
                async with aclosing(feed.follow(place)) as events:
                    event = await anext(events)  # and the connection breaks
                    assert event is not None
                    seen.append(int(event.event.subject))
                    place = event.cursor
        return seen

    assert simulated_time.play(play()) == list(range(20))


def test_a_client_behind_which_events_are_gone_is_told(store: Store) -> None:
    """Even if that happens while it follows: it never goes on over a gap."""

    async def play() -> None:
        feed = EventFeed(store, LIMITS)
        place = await feed.newest()
        with feed.stream():
            tell(store, 0, 1)
            async with aclosing(feed.follow(place)) as events:
                assert await take(events, 1) == [0]
                tell(store, 1, 30)
                async with aclosing(feed.follow(await feed.newest())) as quick:
                    tell(store, 30, 31)
                    await take(quick, 1)  # the ring is behind the first client now
                store.forget_events(keep=2, before_ms=0)
                with pytest.raises(EventsGoneError) as told:
                    await take(events, 30)
                assert told.value.code == "events_gone"

    simulated_time.play(play())


def test_a_client_hears_a_heartbeat(store: Store) -> None:
    """A proxy between them does not take a quiet stream for a dead one."""

    async def play() -> list[float]:
        feed, clock = EventFeed(store, FeedLimits()), asyncio.get_running_loop().time
        with feed.stream():
            async with aclosing(feed.follow(await feed.newest())) as events:
                began = clock()
                return [clock() - began for _ in range(3) if await anext(events) is None]

    assert simulated_time.play(play()) == [15, 30, 45]


def test_there_are_only_so_many_clients(store: Store) -> None:
    """One more is refused with a code, and let in once another has gone."""

    async def play() -> None:
        feed = EventFeed(store, FeedLimits(streams_max=1))
        with feed.stream():
            with pytest.raises(EventStreamsExhaustedError) as refused, feed.stream():
                pass
            assert refused.value.code == "event_streams_exhausted"
        with feed.stream():
            assert feed.streams == 1
        assert feed.streams == 0

    simulated_time.play(play())


def test_a_stop_ends_every_stream(store: Store) -> None:
    """A stop of the service does not wait for its clients."""

    async def play() -> list[Any]:
        feed = EventFeed(store, LIMITS)
        place = await feed.newest()

        async def listen() -> list[Any]:
            with feed.stream():
                return [event async for event in feed.follow(place)]

        clients = [asyncio.create_task(listen()) for _ in range(2)]
        while feed.streams < 2:
            await simulated_time.sleep(0)
        await to_thread.run_sync(feed.stop)
        async with asyncio.timeout(WAIT_SECONDS):
            return await asyncio.gather(*clients, listen())

    assert simulated_time.play(play()) == [[]] * 3


def test_clients_share_one_reader(store: Store) -> None:
    """The store is asked as often for a hundred clients as for one, and not at all for none."""
    asked = list[str]()

    class Counting:
        def newest_event(self) -> EventRecord:
            asked.append("newest")
            return store.newest_event()

        def events_after(self, *given: Any, **more: Any) -> Any:
            asked.append("after")
            return store.events_after(*given, **more)

    async def play() -> None:
        feed: Any = EventFeed(Counting(), FeedLimits(poll_seconds=60.0))  # type: ignore[arg-type]
        place = store.newest_event().cursor
        tasks = []
        for _ in range(20):
            stream = feed.stream()
            stream.__enter__()
            tasks.append(asyncio.create_task(anext(feed.follow(place))))
        while not asked or feed._newest is None:
            await simulated_time.sleep(0.001)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    simulated_time.play(play())
    assert asked.count("newest") == 1
    assert asked.count("after") <= 20, "each client once, before the first look was done"
