"""Finds the route of a request, and whether a process that only reads can serve it.

`RouteIndex` finds the few routes that can match a path, by the literal parts of the path. Only
these are tried, in their order, so the result is the same as if all routes were tried.

A request for a known path with another method is refused. The answer lists the methods of all
routes of the path; FastAPI's router would list those of the first one. Unknown paths are left to
FastAPI's router.

Invariant: a route that matches a path is among the candidates for it
(tests/controller/api/routing/test_route_index.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Self

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from controller.api.routing.scope_check import find_need


@dataclass(slots=True)
class _Branch:
    """The routes whose paths begin in the same way, each with its place in the order.

    Attributes:
        parameter: The branch after a part that can be anything.
        ending: Routes whose path ends here.
        open: Routes that match any rest of a path.
    """

    literal: dict[str, _Branch] = field(default_factory=dict)
    parameter: _Branch | None = None
    ending: list[tuple[int, BaseRoute]] = field(default_factory=list)
    open: list[tuple[int, BaseRoute]] = field(default_factory=list)


class RouteIndex:
    """Routes by the parts of their paths; made once, when all routes are known."""

    def __init__(self, routes: Iterable[BaseRoute]) -> None:
        self._root = _Branch()
        for place, route in enumerate(routes):
            self._add(place, route)

    def candidates(self, path: str) -> list[BaseRoute]:
        """Return the routes that can match a path, in their order."""
        chosen: list[tuple[int, BaseRoute]] = []
        _collect(self._root, path.split("/"), 0, chosen)
        chosen.sort(key=lambda one: one[0])
        return [route for _, route in chosen]

    def _add(self, place: int, route: BaseRoute) -> None:
        branch = self._root
        template = getattr(route, "path", None)
        if not isinstance(template, str):  # its paths are unknown
            branch.open.append((place, route))
            return
        for part in template.split("/"):
            if "{" not in part:
                branch = branch.literal.setdefault(part, _Branch())
            elif part[0] == "{" and part[-1] == "}" and ":" not in part:
                branch.parameter = branch.parameter or _Branch()
                branch = branch.parameter
            else:  # the parameter spans several parts, or only some of one
                branch.open.append((place, route))
                return
        branch.ending.append((place, route))


def _collect(
    branch: _Branch, parts: Sequence[str], at: int, chosen: list[tuple[int, BaseRoute]]
) -> None:
    """Add the routes below a branch that can match a path from its part `at` on."""
    chosen += branch.open
    if at == len(parts):
        chosen += branch.ending
        return
    if (behind := branch.literal.get(parts[at])) is not None:
        _collect(behind, parts, at + 1, chosen)
    if branch.parameter is not None:
        _collect(branch.parameter, parts, at + 1, chosen)


class IndexedRouter(APIRouter):
    """A router that tries only the routes that can match; see the module header."""

    _index: RouteIndex

    @classmethod
    def of(cls, router: APIRouter) -> Self:
        """Return a copy of a router, to use in its place. Add no route to either afterwards."""
        made = cls.__new__(cls)
        made.__dict__.update(router.__dict__)
        made.middleware_stack = made.app
        made._index = RouteIndex(router.routes)
        return made

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request by the first route that matches."""
        if scope["type"] == "http" and not scope.get("root_path"):
            methods: dict[str, set[str]] = {}
            for route in self._index.candidates(scope["path"]):
                match, more = route.matches(scope)
                if match is Match.FULL:
                    scope.setdefault("router", self)
                    scope.update(more)
                    await route.handle(scope, receive, send)
                    return
                if match is Match.PARTIAL:
                    path = str(getattr(route, "path", ""))
                    methods.setdefault(path, set()).update(getattr(route, "methods", None) or ())
            if methods:
                # The path with the most literal parts counts: `validate` in it is not a dataflow.
                allowed = methods[min(methods, key=lambda path: path.count("{"))]
                raise HTTPException(405, headers={"Allow": ", ".join(sorted(allowed))})
        await super().app(scope, receive, send)


def served_by_readers(routes: Iterable[BaseRoute]) -> Callable[[str], bool]:
    """Return the function that says whether a read-only process can serve a GET of a path."""
    index = RouteIndex(routes)

    def serves(path: str) -> bool:
        scope = {"type": "http", "path": path, "method": "GET"}
        for route in index.candidates(path):
            if route.matches(scope)[0] is Match.FULL:
                need = find_need(getattr(route, "endpoint", None))
                return need is not None and need.read_anywhere
        return False

    return serves
