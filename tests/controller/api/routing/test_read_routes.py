"""Routes that a process which only reads serves: a list that grows by hand only."""

from __future__ import annotations

from controller.access.scopes import Scope
from controller.api.routing.read_routes import served_by_readers
from tests.controller.api.all_routes import filled_in, routes, whole_app

SERVED = {
    "claims_list_claims",
    "dataflows_list_dataflows",
    "events_recent",
    "flows_read",
    "increments_list_increments",
    "increments_read",
    "increments_show",
    "runs_list_runs",
    "runs_show",
    "snapshots_take",
    "state_look_up",
    "state_page",
}
"""Each of these was looked at: it needs the store, tables, registered code, and `PresentState`."""


def test_only_these_routes_are_served_elsewhere() -> None:
    """A route that needs another part of the service's memory would answer wrongly, in silence."""
    serves = served_by_readers(whole_app().routes)
    served = {one for one in routes() if one.method == "GET" and serves(filled_in(one.path))}
    assert {one.action for one in served} == SERVED
    assert all(one.scope == Scope.VIEWER.value for one in served)


def test_no_other_path_is_served() -> None:
    """The page, the document, and what no route knows are the service's."""
    serves = served_by_readers(whole_app().routes)
    for path in ("/", "/ui/", "/ui/assets/x.js", "/api/v1/openapi.json", "/api/v1/runs/", "/x"):
        assert not serves(path)
