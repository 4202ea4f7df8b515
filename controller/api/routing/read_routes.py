"""Routes that a process which only reads can serve, beside the one that leads and runs.

Such a process has the store, the tables and the code of translators. It does not know what only the
memory of the service's own process holds (sessions that could not be stored, counts of attempts,
what was decided last), except for what `PresentState` asks for. So a route is served there only if
it says so, with `@read_anywhere`; a new route is not.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from starlette.routing import BaseRoute, Match

from controller.api.routing.route_index import RouteIndex

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])

_ANYWHERE: set[Any] = set()
_LASTING: set[Any] = set()


def read_anywhere(endpoint: Endpoint) -> Endpoint:
    """Mark a route whose answer is made of the store, the tables and registered code alone.

    It depends on the path, the query, what the caller may touch and the moment; on no header. So
    requests that ask for the same share answers (`controller.api.requests.shared_answers`).
    """
    _ANYWHERE.add(endpoint)
    return endpoint


def is_read_anywhere(endpoint: object) -> bool:
    """Return whether a route is marked as `read_anywhere`."""
    return endpoint in _ANYWHERE


def lasting(endpoint: Endpoint) -> Endpoint:
    """Mark a route whose answer stays the same until the store changes.

    It is made of no table and shows no time that passes. A route that learns otherwise of one
    answer says so (`Exchange.passing`).
    """
    _LASTING.add(endpoint)
    return endpoint


def is_lasting(endpoint: object) -> bool:
    """Return whether a route is marked as `lasting`."""
    return endpoint in _LASTING


class ReadRoutes:
    """Knows which paths a process that only reads serves."""

    def __init__(self, routes: Iterable[BaseRoute]) -> None:
        self._index = RouteIndex(routes)

    def serve(self, path: str) -> bool:
        """Return whether a GET of this path meets a marked route."""
        scope = {"type": "http", "path": path, "method": "GET"}
        for route in self._index.candidates(path):
            if route.matches(scope)[0] is Match.FULL:
                return getattr(route, "endpoint", None) in _ANYWHERE
        return False
