"""Event feed: reads new events of the store once, for all clients of this instance.

    store <--(every `poll_seconds`, while a client follows)-- feed --> ring of the newest events
                                                                '--> wakes the clients

A client has a position in the stream instead of a queue. It reads events from the ring, or from the
store if it has fallen behind the ring. So a slow client uses no memory.

Guaranteed: each client gets every event once, in order, or an error if some are gone
(tests/controller/events/test_feed.py).
Absent on purpose: threads; the feed lives in the event loop of the server.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import structlog
from starlette.concurrency import run_in_threadpool

from cbp.errors import OperatingError
from controller.store.base import EventCursor, EventRecord, Store


class EventStreamsExhaustedError(OperatingError, code="event_streams_exhausted"):
    """The limit of clients that follow the events is reached."""

    def __init__(self, streams_max: int) -> None:
        message = (
            f"{streams_max} clients already follow the events of this instance. Close one, use "
            "another instance, or raise CBP_EVENT_STREAMS_MAX and restart the service"
        )
        super().__init__(message, streams_max=streams_max)


class EventsGoneError(OperatingError, code="events_gone", retryable=False):
    """Events after a place in the stream are no longer kept, or never were."""

    def __init__(self, after: str) -> None:
        message = (
            f"the events after {after[:40]!r} are no longer kept. Read everything again, then "
            "follow from the newest event (omit `after`)"
        )
        super().__init__(message, after=after[:40])


_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class FeedLimits:
    """Limits of a feed: its number of clients, and the longest time without a message to one.

    `ring` is how many of the newest events are kept in memory, `page` how many one read of the
    store returns.
    """

    streams_max: int = 100
    poll_seconds: float = 0.5
    heartbeat_seconds: float = 15.0
    ring: int = 1_000
    page: int = 200


class EventFeed:
    """Feeds the clients of one instance; used in one event loop, except for `stop`.

    `streams` is the number of clients that follow now.
    """

    def __init__(self, store: Store, limits: FeedLimits) -> None:
        self._store, self._limits = store, limits
        self.streams = 0
        self._ring: list[EventRecord] = []
        # Everything after this place is in the ring.
        self._ring_begin: EventCursor | None = None
        self._newest: EventCursor | None = None
        self._changed = asyncio.Event()
        self._poller: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = False

    @property
    def heartbeat_seconds(self) -> float:
        """Longest time without a message to a client."""
        return self._limits.heartbeat_seconds

    def stop(self) -> None:
        """End all streams, and refuse new ones; any thread or signal handler may call it."""
        self._stopped = True
        loop = self._loop  # read once: another thread may replace it
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._wake)

    @contextmanager
    def stream(self) -> Iterator[None]:
        """Count a client while it follows; raise `EventStreamsExhaustedError` at the limit."""
        if self.streams >= self._limits.streams_max:
            raise EventStreamsExhaustedError(self._limits.streams_max)
        self.streams += 1
        try:
            yield
        finally:
            self.streams -= 1
            if not self.streams:
                self._end_poller()

    async def newest(self) -> EventCursor:
        """Return the place after the newest event."""
        return (await run_in_threadpool(self._store.newest_event)).cursor

    async def follow(self, place: EventCursor) -> AsyncGenerator[EventRecord | None]:
        """Yield the events after a place, and `None` after each silence; ends with a stop.

        Raises `EventsGoneError` if events after the place are no longer kept.
        """
        self._begin_poller()
        while not self._stopped:
            changed = self._changed
            events = await self._after(place)
            for event in events:
                place = event.cursor
                yield event
            if not events and not self._stopped and not await self._heard(changed):
                yield None

    async def _after(self, place: EventCursor) -> list[EventRecord]:
        if place == self._newest:
            return []
        begin = bisect_right(self._ring, place.number, key=lambda event: event.id)
        before = self._ring[begin - 1].cursor if begin else self._ring_begin
        if place == before:
            return self._ring[begin : begin + self._limits.page]
        events = await run_in_threadpool(self._store.events_after, place, limit=self._limits.page)
        if events is None:
            raise EventsGoneError(str(place))
        return events

    async def _heard(self, changed: asyncio.Event) -> bool:
        """Wait for new events; return whether there were any before the next heartbeat."""
        try:
            await asyncio.wait_for(changed.wait(), self._limits.heartbeat_seconds)
        except TimeoutError:
            return False
        return True

    def _begin_poller(self) -> None:
        loop = asyncio.get_running_loop()
        if self._poller is None or self._poller.done() or self._loop is not loop:
            self._loop = loop
            self._ring.clear()
            self._ring_begin = self._newest = None
            self._changed = asyncio.Event()
            self._poller = loop.create_task(self._poll())

    def _end_poller(self) -> None:
        if self._poller is not None and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._poller.cancel)
        self._poller = None

    async def _poll(self) -> None:
        silent = False
        while not self._stopped:
            try:
                more = await self._read()
                silent = False
            except Exception as error:  # the store may recover; meanwhile clients get heartbeats
                more = False
                if not silent:
                    _log.warning("events.unreadable", exc_info=error)
                silent = True
            if not more:
                await asyncio.sleep(self._limits.poll_seconds)

    async def _read(self) -> bool:
        """Read new events into the ring; return whether there may be more."""
        events: list[EventRecord] | None = None
        if self._newest is not None:
            events = await run_in_threadpool(
                self._store.events_after, self._newest, limit=self._limits.page
            )
        if events is None:  # the first read, or the database was replaced
            self._ring.clear()
            self._ring_begin = self._newest = await self.newest()
            self._wake()
            return False
        if events:
            self._ring += events
            over = len(self._ring) - self._limits.ring
            if over > 0:
                self._ring_begin = self._ring[over - 1].cursor
                del self._ring[:over]
            self._newest = events[-1].cursor
            self._wake()
        return len(events) == self._limits.page

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
