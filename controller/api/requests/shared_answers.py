"""Answers that concurrent requests share, or all requests between two changes of the store.

An answer is shared by requests that arrived before its computation began; a later request waits for
the next answer. The text of a `lasting` answer (`controller.api.routing.scope_check`) is reused
until the store reports a change; the README says what that saves. Only answers with status 200, in
JSON and without headers of their own are shared. Errors are not shared.

Invariant: no answer is older than its request
(tests/controller/api/requests/test_shared_answers.py).

`KeptSummaries` keeps summaries of dataflows for later answers. A summary is reused while its inputs
are the same: the revision of the dataflow, and what only the service has in memory. Values that
change by themselves, such as an age, are computed again
(tests/controller/api/figures/test_overview.py).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from datetime import datetime
from http import HTTPStatus

from fastapi import Response

from controller.api.answers.schemas import DataflowSummary

JSON = "application/json"
_OF_TEXT = {"content-length", "content-type"}
BYTES_MAX = 16 << 20

Made = tuple[Response, bool]
"""An answer, and whether it lasts until the store changes."""

_Place = tuple[asyncio.AbstractEventLoop, Hashable]


@dataclass(slots=True, eq=False)
class _Making:
    """An answer that is being computed now, or will be computed next.

    Attributes:
        over: Set once the answer is complete, or has failed.
        body: The text of the answer; `None` if it cannot be shared.
        next: The next answer, for requests that arrived after this one began.
    """

    over: asyncio.Event = field(default_factory=asyncio.Event)
    body: bytes | None = None
    next: _Making | None = None


class SharedAnswers:
    """Answers by a key of the caller, which contains all that an answer depends on, except time.

    Used in the event loop of one server; several loops share only lasting answers.

    Args:
        stamp: Returns the present stamp of the store, as `Store.stamp` does.
        bytes_max: When kept answers exceed this size, all are dropped.
    """

    def __init__(self, stamp: Callable[[], Hashable | None], *, bytes_max: int = BYTES_MAX) -> None:
        self._stamp, self._bytes_max = stamp, bytes_max
        self._making: dict[_Place, _Making] = {}
        self._kept: tuple[Hashable | None, dict[Hashable, bytes]] = (None, {})
        self._bytes = 0

    async def answer(
        self, key: Hashable, make: Callable[[], Awaitable[Made]], *, lasts: bool
    ) -> Response:
        """Return the answer to a request; raises what `make` raises.

        Args:
            make: Computes the answer, also for other requests with the same key.
            lasts: Whether an answer may last until the store changes.
        """
        if (body := self._found(key, lasts=lasts)) is not None:
            return Response(body, media_type=JSON)
        place = asyncio.get_running_loop(), key
        before, mine = self._making.get(place), _Making()
        if before is None:
            self._making[place] = mine
            return await self._make(place, mine, make, lasts=lasts)
        if before.next is not None:  # it begins after the arrival of this request
            shared = before.next
            await shared.over.wait()
            if shared.body is not None:
                return Response(shared.body, media_type=JSON)
            return (await make())[0]
        before.next = mine
        try:
            await before.over.wait()
        except BaseException:
            before.next = None
            self._end(place, mine)
            if before.over.is_set():
                self._end(place, before)
            raise
        self._making[place] = mine
        if (body := self._found(key, lasts=lasts)) is not None:
            mine.body = body
            self._end(place, mine)
            return Response(body, media_type=JSON)
        return await self._make(place, mine, make, lasts=lasts)

    async def _make(
        self, place: _Place, mine: _Making, make: Callable[[], Awaitable[Made]], *, lasts: bool
    ) -> Response:
        try:
            stamp = self._stamp() if lasts else None  # before anything is read
            response, lasting = await make()
            if _is_its_text(response):
                mine.body = bytes(response.body)
                if lasting and stamp is not None:
                    self._keep(stamp, place[1], mine.body)
            return response
        finally:
            self._end(place, mine)

    def _end(self, place: _Place, making: _Making) -> None:
        """Wake requests that wait for an answer; forget the answer unless a next one is wanted."""
        making.over.set()
        if making.next is None and self._making.get(place) is making:
            del self._making[place]

    def _found(self, key: Hashable, *, lasts: bool) -> bytes | None:
        seen, bodies = self._kept
        if not lasts or key not in bodies:
            return None
        return bodies[key] if self._stamp() == seen else None

    def _keep(self, stamp: Hashable, key: Hashable, body: bytes) -> None:
        if len(body) > self._bytes_max // 16:
            return
        if stamp != self._kept[0] or self._bytes > self._bytes_max:
            self._kept, self._bytes = (stamp, {}), 0
        self._kept[1][key] = body
        self._bytes += len(body)


def _is_its_text(response: Response) -> bool:
    """Return whether a response can be repeated from its text alone."""
    plain = response.media_type == JSON and set(response.headers) <= _OF_TEXT
    return plain and response.status_code == HTTPStatus.OK


KEPT_MAX = 10_000


@dataclass(frozen=True, slots=True)
class KeptSummary:
    """One summary.

    Attributes:
        made_from: All inputs of the summary, to compare them with later ones.
        oldest_at: Arrival of the oldest waiting increment; `None` if none waits.
    """

    made_from: object
    summary: DataflowSummary
    oldest_at: datetime | None


class KeptSummaries:
    """Summaries by a key of the caller; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[Hashable, KeptSummary] = {}

    def find(self, key: Hashable, made_from: object) -> KeptSummary | None:
        """Return the kept summary that was made from these inputs, if any."""
        with self._lock:
            kept = self._kept.get(key)
        return kept if kept is not None and kept.made_from == made_from else None

    def keep(self, key: Hashable, kept: KeptSummary) -> None:
        """Keep a summary instead of its predecessor; drop the oldest ones beyond a bound."""
        with self._lock:
            self._kept.pop(key, None)
            self._kept[key] = kept
            while len(self._kept) > KEPT_MAX:
                del self._kept[next(iter(self._kept))]
