"""Counts of requests by route and status, for metrics.

A route is its template below `/api/v1` (`/runs/{run}`), so that the number of labels has a bound.
Requests that match no route are counted together.
"""

from __future__ import annotations

import json
import threading
from collections import Counter, defaultdict
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cbp.clock import MACHINE

_NO_ROUTE = "none"
_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"})


class RequestCounts:
    """The counts; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, str, str]] = Counter()
        self._seconds: defaultdict[tuple[str, str], float] = defaultdict(float)

    def add(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one request."""
        method = method if method in _METHODS else "other"
        with self._lock:
            self._requests[method, route, str(status)] += 1
            self._seconds[method, route] += seconds

    def take(self, counts: Callable[[int], bool]) -> bytes:
        """Return the counts of some statuses, for `merge` in another process, and reset all."""
        with self._lock:
            requests = [one for one in self._requests.items() if counts(int(one[0][2]))]
            counted = (requests, [*self._seconds.items()])
            self._requests.clear()
            self._seconds.clear()
        return json.dumps(counted).encode()

    def merge(self, counted: bytes) -> None:
        """Add the counts of another process; see `take`."""
        requests, seconds = json.loads(counted)
        with self._lock:
            for (method, route, status), number in requests:
                self._requests[method, route, status] += number
            for (method, route), more in seconds:
                self._seconds[method, route] += more

    def all(self) -> tuple[dict[tuple[str, str, str], int], dict[tuple[str, str], float]]:
        """Return (method, route, status) -> requests, and (method, route) -> seconds."""
        with self._lock:
            return dict(self._requests), dict(self._seconds)


class RequestCounter:
    """ASGI middleware that counts requests; the outermost one. Labels leave out the prefix."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        counts: RequestCounts,
        prefix: str = "",
        seconds: Callable[[], float] = MACHINE.seconds,
    ) -> None:
        self._app, self._counts, self._prefix, self._seconds = app, counts, prefix, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request; count it, and the time until the head of its answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = self._seconds()

        async def counting(message: Message) -> None:
            if message["type"] == "http.response.start":
                path = getattr(scope.get("route"), "path", None) or _NO_ROUTE
                route = path.removeprefix(self._prefix)
                seconds = self._seconds() - began
                self._counts.add(scope["method"], route, message["status"], seconds)
            await send(message)

        await self._app(scope, receive, counting)
