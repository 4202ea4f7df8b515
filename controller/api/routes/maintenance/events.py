"""Events: what changes, as a stream that clients follow, and the newest ones as a list.

The stream is fed by `controller.events`.

The stream reports that something changed, but not the new value, which clients read again. Each
event has an id. A client that reconnects with the last id that it received (`Last-Event-ID`, or
`after`) gets all later events. If they are no longer kept, the stream begins with `reset`.

Guaranteed: a stream ends within a heartbeat after its token was revoked or its session has ended
(tests/controller/events/test_events.py). This costs one look-up for each stream and heartbeat, so
at most `CBP_EVENT_STREAMS_MAX` in 15 seconds.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from datetime import datetime
from functools import partial
from typing import Annotated

from fastapi import Depends, Header, Query, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import Field
from starlette.concurrency import run_in_threadpool

from cbp.errors import OperatingError
from controller.api.answers.schemas import Model, Page, PageQuery
from controller.api.routing.cursors import page_size
from controller.api.routing.dependencies import AccessDep, EventFeedDep, SettingsDep, StoreDep
from controller.api.routing.router_factory import Scope, needs, problems, router
from controller.api.security.callers import is_still_valid
from controller.events import EventFeed, EventsGoneError
from controller.store.base import EventCursor, EventKind, EventRecord

routes = router("events")

RETRY_MS = 2_000
"""How long a client waits before it connects again."""

STREAM_SECONDS = 900.0
"""A stream ends after this time, and its client connects again."""

_AFTER = "Id of an event: only later events are sent."
_DATAFLOW = "Only events of this dataflow, and those that concern no dataflow."


class EventOut(Model):
    """Something that changed."""

    id: str = Field(description="Rises with every event; opaque.")
    kind: EventKind
    dataflow: str = Field(description="The dataflow; empty if the event concerns none.")
    stage: str = Field(description="The stage that leads the run; empty if there is none.")
    flow: str = Field(
        description="The source or flow of a file or increment; empty if there is none."
    )
    subject: str = Field(
        description="Id of the changed run, claim, increment (`flow/index`) and so on."
    )
    count: int = Field(
        description="Number of things that changed together; `subject` is the last of them."
    )
    at: datetime


class EventQuery(PageQuery):
    """Which events to list."""

    after: str | None = Field(None, max_length=100, description=_AFTER)
    dataflow: str | None = Field(None, max_length=200, description=_DATAFLOW)


async def _stream(
    feed: EventFeedDep,
    store: StoreDep,
    dataflow: Annotated[str | None, Query(max_length=200, description=_DATAFLOW)] = None,
    after: Annotated[str | None, Query(max_length=100, description=_AFTER)] = None,
    last_event_id: Annotated[str | None, Header(max_length=100)] = None,
) -> AsyncIterator[tuple[EventFeed, EventCursor, str]]:
    """Yield the feed, the place at which a stream begins, and its first event, if any."""
    # A dependency, since an error in the route itself would be raised after the status was sent.
    if dataflow is not None:
        await run_in_threadpool(store.dataflow, dataflow)
    given = last_event_id or after
    place = EventCursor.parse(given) if given else None
    mark = "" if place is not None else "reset" if given else "begin"
    with feed.stream():
        yield feed, place or await feed.newest(), mark


@routes.get("/events", response_class=EventSourceResponse, responses=problems(404))
@needs(Scope.VIEWER)
async def follow(
    request: Request,
    access: AccessDep,
    stream: Annotated[tuple[EventFeed, EventCursor, str], Depends(_stream)],
    dataflow: Annotated[str | None, Query(max_length=200, description=_DATAFLOW)] = None,
) -> AsyncIterable[ServerSentEvent]:
    """Follow changes as server-sent events.

    The stream begins with `begin` if no id was given, or with `reset` if events after the id are no
    longer kept: then read everything again. Each `changed` is one change. A comment is sent every
    15 seconds to keep the connection alive. The stream ends after some minutes, when the service
    stops, and when the token or the session ends; reconnect with the last id.
    """
    feed, place, mark = stream
    if mark:
        yield _mark(mark, place)
    ends = asyncio.get_running_loop().time() + STREAM_SECONDS
    may_go_on = partial(is_still_valid, request.scope, access.authentication)
    with suppress(OperatingError):  # the store does not answer: a client that reconnects gets 503
        while True:
            try:
                async with aclosing(_changes(feed, place, dataflow, ends, may_go_on)) as changes:
                    async for change in changes:
                        yield change
            except EventsGoneError:
                place = await feed.newest()
                yield _mark("reset", place)
            else:
                return


@routes.get("/events/recent", responses=problems(404, 410))
@needs(Scope.VIEWER, read_anywhere=True, lasting=True)
def recent(store: StoreDep, settings: SettingsDep, query: EventQuery = Query()) -> Page[EventOut]:
    """List events, oldest first: those after `after`, or otherwise the newest ones.

    Send the answer's `cursor` as `after` of the next request.
    """
    if query.dataflow is not None:
        store.dataflow(query.dataflow)
    limit, after = page_size(settings, query), query.after or query.cursor
    if after is None:
        events = store.recent_events(query.dataflow, limit=limit)
    else:
        place = EventCursor.parse(after)
        behind = place and store.events_after(place, query.dataflow, limit=limit)
        if behind is None:
            raise EventsGoneError(after)
        events = behind
    cursor = str(events[-1].cursor) if events else after
    return Page(items=[_shown(event) for event in events], cursor=cursor)


async def _changes(
    feed: EventFeed,
    place: EventCursor,
    dataflow: str | None,
    ends: float,
    may_go_on: Callable[[], Awaitable[bool]],
) -> AsyncGenerator[ServerSentEvent]:
    """Yield the events of a dataflow and, during silences, the position of the stream."""
    clock = asyncio.get_running_loop().time
    spoke, asked = clock(), -math.inf
    async with aclosing(feed.follow(place)) as events:
        async for event in events:
            now = clock()
            if now >= ends:
                return
            if event is None or now - asked >= feed.heartbeat_seconds:
                if not await may_go_on():
                    return
                asked = now
            place = place if event is None else event.cursor
            if event is not None and dataflow in (None, event.event.dataflow or dataflow):
                yield ServerSentEvent(event="changed", id=str(place), data=_shown(event))
            elif event is None or now - spoke >= feed.heartbeat_seconds:
                # An id alone: a client that reconnects skips events that it did not ask for.
                yield ServerSentEvent(id=str(place), comment="alive")
            else:
                continue
            spoke = now


def _mark(kind: str, place: EventCursor) -> ServerSentEvent:
    return ServerSentEvent(event=kind, id=str(place), data={"id": str(place)}, retry=RETRY_MS)


def _shown(record: EventRecord) -> EventOut:
    return EventOut.of(record, record.event, id=str(record.cursor))
