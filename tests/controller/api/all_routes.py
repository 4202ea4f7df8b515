"""Every route of the application, as the application itself lists them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

from fastapi import FastAPI
from fastapi.routing import iter_route_contexts

from controller.api.routing.scope_check import ScopedRoute, need_of, operation_id
from tests.controller.api.fake_service import Service

__all__ = ["ONLY_AUTHENTICATED", "THE_PAGE", "Route", "filled_in", "routes", "whole_app"]

ONLY_AUTHENTICATED = {("GET", "/api/v1/openapi.json"), ("HEAD", "/api/v1/openapi.json")}
"""Routes that the framework makes; the guard asks for some credential."""

THE_PAGE = "/ui/"
"""The files of the page, which hold no data."""

_NAMES = {
    "name": "clicks",
    "stage": "count",
    "state": "counts",
    "flow": "count.totals",
    "source": "urls",
    "run": "r3",
    "priority": "high",
    "verification": "v0",
    "index": "0",
    "example": "crawl_queue",
    "table": "count.counts",
    "guide": "start",
    "token": "ci",
    "session": "s0",
}


class Route(NamedTuple):
    """One method of one path; `scope` is `None` for a public one.

    Attributes:
        any_dataflow: Tokens that are limited to dataflows are let in without a look at the path.
    """

    method: str
    path: str
    action: str
    scope: str | None
    changes: bool
    any_dataflow: bool


def filled_in(path: str) -> str:
    """Return a path with names in place of its parameters."""
    return path.format_map(_Names(_NAMES))


class _Names(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return "x1"


@cache
def whole_app() -> FastAPI:
    """Return an application over fakes, with all its routes."""
    return Service(Path("unused")).app


@cache
def routes() -> tuple[Route, ...]:
    """Return every route that callers can reach, by path and method."""
    actual = []
    for context in iter_route_contexts(whole_app().routes):
        path, route = context.path or "", context.original_route
        for method in sorted(context.methods or ()):
            if (method, path) in ONLY_AUTHENTICATED or f"{path}/".startswith(THE_PAGE):
                continue
            assert isinstance(route, ScopedRoute), f"{method} {path} is not made by `router`"
            need = need_of(route.endpoint)
            scope = None if need.scope is None else need.scope.value
            changes = need.changes and method != "GET"
            made = Route(method, path, operation_id(route), scope, changes, need.any_dataflow)
            actual.append(made)
    return tuple(sorted(actual))
