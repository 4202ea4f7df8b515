"""The index of routes: quicker than asking all of them, and never another route."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.routing import BaseRoute, Match

from controller.api.app import describe_api
from controller.api.routing.read_routes import IndexedRouter, RouteIndex
from tests.controller.api.all_routes import filled_in, whole_app


@cache
def _all() -> tuple[BaseRoute, ...]:
    return tuple(whole_app().routes)


def _first(routes: Iterable[BaseRoute], path: str, method: str) -> BaseRoute | None:
    scope = {"type": "http", "path": path, "method": method}
    return next((one for one in routes if one.matches(scope)[0] is Match.FULL), None)


_PARTS = sorted(
    {part for path in describe_api()["paths"] for part in path.split("/") if "{" not in part}
)
_paths = st.lists(st.sampled_from([*_PARTS, "x1", "", "%2F", "\n"]), max_size=9).map("/".join)


@given(_paths, st.sampled_from(["GET", "POST", "DELETE", "PUT"]))
def test_the_route_is_the_one_that_asking_all_would_find(path: str, method: str) -> None:
    """For any path, known or not, the first candidate that matches is the first route that does."""
    chosen = RouteIndex(_all()).candidates(path)
    assert _first(chosen, path, method) is _first(_all(), path, method)


def test_every_route_is_found_by_its_own_path() -> None:
    """No route is unreachable, and few are asked: that is what the index is for."""
    index = RouteIndex(_all())
    for route in _all():
        path = filled_in(getattr(route, "path", "").replace(":path", ""))
        candidates = index.candidates(path)
        assert route in candidates
        assert len(candidates) < 8


def test_the_application_uses_it() -> None:
    """An application without the index would be right, and slow."""
    assert isinstance(whole_app().router, IndexedRouter)


@pytest.mark.parametrize(
    ("template", "path"),
    [("/a/{b}-{c}", "/a/1-2"), ("/a/{rest:path}", "/a/x/y/z"), ("/a/x{b}", "/a/xy")],
)
def test_what_is_no_plain_parameter_is_asked(template: str, path: str) -> None:
    """A part with text beside its parameter, or a parameter of many parts, may match much."""
    router = IndexedRouter()
    router.add_api_route(template, lambda: None)
    (route,) = router.routes
    assert _first([route], path, "GET") is route
    assert RouteIndex([route]).candidates(path) == [route]
    assert not RouteIndex([route]).candidates("/b/x")
