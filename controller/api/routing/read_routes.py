"""Routes that a process which only reads can serve, beside the one that leads and runs.

Such a process has the store, the tables and the code of translators. It does not know what only the
memory of the service's own process holds (sessions that could not be stored, counts of attempts,
what was decided last), except for what `PresentState` asks for. So a route is served there only if
it says so, with `@read_anywhere`; a new route is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from starlette.routing import BaseRoute, Match

from controller.api.routing.route_index import RouteIndex

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])

_ANYWHERE: set[Any] = set()
_LASTING: set[Any] = set()
_OF_STORE: set[Any] = set()


def read_anywhere(endpoint: Endpoint) -> Endpoint:
    """Mark a route whose answer depends only on the store, the tables and registered code.

    It also depends on the path, the query, the dataflows that the caller may access, and the
    time, but on no header. So equal requests share answers
    (`controller.api.requests.shared_answers`).
    """
    _ANYWHERE.add(endpoint)
    return endpoint


def is_read_anywhere(endpoint: object) -> bool:
    """Return whether a route is marked as `read_anywhere`."""
    return endpoint in _ANYWHERE


def lasting(endpoint: Endpoint) -> Endpoint:
    """Mark a route whose answer stays the same until the store changes.

    It reads no table and shows no changing time. A route marks exceptions with `Exchange.passing`.
    """
    _LASTING.add(endpoint)
    return endpoint


def is_lasting(endpoint: object) -> bool:
    """Return whether a route is marked as `lasting`."""
    return endpoint in _LASTING


def of_store(endpoint: Endpoint) -> Endpoint:
    """Mark a route whose answer is made from the store and memory, and from no table.

    Separate threads make such answers (`controller.api.routing.short_path`): many clients share
    each of them, so they must not wait for look-ups. Lasting routes are such routes, too.
    """
    _OF_STORE.add(endpoint)
    return endpoint


def is_of_store(endpoint: object) -> bool:
    """Return whether a route is marked as `of_store` or as `lasting`."""
    return endpoint in _OF_STORE or endpoint in _LASTING


class ReadRoutes:
    """Finds out whether a read-only process can serve a path."""

    def __init__(self, routes: Iterable[BaseRoute]) -> None:
        self._index = RouteIndex(routes)

    def serve(self, path: str) -> bool:
        """Return whether a GET of this path matches a marked route."""
        scope = {"type": "http", "path": path, "method": "GET"}
        for route in self._index.candidates(path):
            if route.matches(scope)[0] is Match.FULL:
                return getattr(route, "endpoint", None) in _ANYWHERE
        return False
