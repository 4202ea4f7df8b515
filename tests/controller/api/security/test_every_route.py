"""Every route of the application by every kind of caller: deny by default.

The table of who may do what is in `deploy/README.md`; `tests/test_architecture.py` compares it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from fastapi import APIRouter

from controller.access.scopes import Scope
from controller.api.routing.router_factory import router
from controller.api.routing.scope_check import public
from controller.api.security.guard import OPEN_PATHS, SIGN_IN
from tests.controller.api.all_routes import ONLY_AUTHENTICATED, Route, filled_in, routes
from tests.controller.api.app_transport import TOKEN
from tests.controller.api.fake_service import Service
from tests.controller.api.security.callers import MARKED, bearer, cookie_of, make_token, sign_in

ROUTES = routes()
IDS = [f"{route.method} {route.path}" for route in ROUTES]
SCOPES = [scope.value for scope in Scope]

UNKNOWN: dict[str, dict[str, Any]] = {
    "none": {},
    "wrong": bearer("wrong"),
    "empty": bearer(""),
    "prefix": bearer(TOKEN[:-1]),
    "longer": bearer(f"{TOKEN}x"),
    "other scheme": {"Authorization": f"Basic {TOKEN}"},
    "non-ascii": {"Authorization": "Bearer ä".encode("latin-1")},
    "never made": bearer("cbp_12345678_" + "x" * 43),
    "foreign cookie": {"Cookie": "cbp_session_8420=x", **MARKED},
    "token as cookie": {"Cookie": f"cbp_session_8420={TOKEN}", **MARKED},
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Service:
    """Give one service for all routes."""
    made = Service(tmp_path_factory.mktemp("routes"))
    made.fill()
    return made


@pytest.fixture
def filled(service: Service) -> Service:
    """Give the service with what earlier routes took away."""
    service.store.records.clear()
    service.fill()
    service.access.authentication.forget()
    return service


@pytest.fixture(scope="module")
def outsiders(service: Service) -> dict[str, dict[str, Any]]:
    """Give headers of callers that are let in nowhere; the value of each was valid once."""
    expired = make_token(service, "expired", "admin", expires_days=1)
    revoked = make_token(service, "revoked", "admin")
    rotated = make_token(service, "rotated", "admin")
    ended = cookie_of(sign_in(service))
    orphan = cookie_of(sign_in(service, token=revoked))
    admins = bearer(TOKEN)
    with service.client() as client:
        client.delete("/api/v1/tokens/revoked", headers=admins)
        client.post("/api/v1/tokens/rotated/rotate", headers=admins)
        client.delete("/api/v1/session", headers={**ended, **MARKED, "Authorization": ""})
    with service.client(token=None) as client:
        assert client.delete("/api/v1/session", headers={**ended, **MARKED}).status_code == 204
    record = service.store.token("expired")
    expiring = replace(record, expires_at=record.created_at)
    assert service.store.replace_token(expiring, instead_of=record.sha256)
    return {
        **UNKNOWN,
        "expired": bearer(expired),
        "revoked": bearer(revoked),
        "rotated": bearer(rotated),
        "signed out": {**ended, **MARKED},
        "session of a revoked token": {**orphan, **MARKED},
    }


@pytest.fixture(scope="module")
def known(service: Service) -> dict[str, dict[str, dict[str, str]]]:
    """Give the headers of a token and of a session for each scope."""
    return {
        scope: {
            "token": {**bearer(make_token(service, f"t-{scope}", scope)), **MARKED},
            "session": {**cookie_of(sign_in(service, scope=scope)), **MARKED},
        }
        for scope in SCOPES
    }


def test_the_table_of_routes_is_not_empty() -> None:
    """The tests below see every route, those that the OpenAPI document leaves out included."""
    assert len(ROUTES) > 60
    assert {route.scope for route in ROUTES} == {None, *SCOPES}


@pytest.mark.parametrize("route", ROUTES, ids=IDS)
def test_without_a_valid_credential_no_route_answers(
    filled: Service, outsiders: dict[str, dict[str, Any]], route: Route
) -> None:
    """Whatever is sent instead of a valid one, the answer is 401; health needs none."""
    if route.scope is None and route.path != "/":
        return
    with filled.client(token=None) as client:
        for caller, headers in outsiders.items():
            answer = client.request(route.method, filled_in(route.path), headers=headers)
            assert answer.status_code == 401, caller
            assert answer.json()["error_code"] == "unauthenticated"
            assert answer.headers["www-authenticate"].startswith("Bearer")
    assert filled.controller.asked == []


@pytest.mark.parametrize("route", ROUTES, ids=IDS)
def test_a_caller_gets_as_far_as_its_scope(
    filled: Service, known: dict[str, dict[str, dict[str, str]]], route: Route
) -> None:
    """Below the scope of the route 403 with the scope that is needed; from it on no 401 or 500."""
    if route.action == "sessions_sign_out":
        return  # it would end the sessions of this table; see test_sessions.py
    with filled.client(token=None) as client:
        for scope in SCOPES:
            for kind, headers in known[scope].items():
                answer = client.request(route.method, filled_in(route.path), headers=headers)
                if route.scope is None or Scope(scope).includes(Scope(route.scope)):
                    unfit = kind == "session" and route.action == "sessions_make_code"
                    assert answer.status_code not in (401, 500), (scope, kind, answer.text)
                    assert (answer.status_code == 403) is unfit, answer.text
                    continue
                assert answer.status_code == 403, (scope, kind)
                assert answer.json()["error_code"] == "scope_too_low"
                assert answer.json()["details"] == {
                    "needed": route.scope,
                    "scope": scope,
                    "action": route.action,
                }


def test_refused_requests_change_nothing(
    filled: Service, known: dict[str, dict[str, dict[str, str]]]
) -> None:
    """A caller without the scope does not reach the controller, nor the tokens."""
    names = [token.name for token in filled.store.tokens().items]
    filled.controller.asked.clear()
    with filled.client(token=None) as client:
        for headers in known["viewer"].values():
            client.delete("/api/v1/dataflows/clicks", headers=headers)
            client.post("/api/v1/runs/r3/cancel", headers=headers)
            body = {"name": "mine", "scope": "admin"}
            client.post("/api/v1/tokens", json=body, headers=headers)
    assert filled.controller.asked == []
    assert [token.name for token in filled.store.tokens().items] == names


def test_a_caller_is_refused_before_its_body_is_judged(
    filled: Service, known: dict[str, dict[str, dict[str, str]]]
) -> None:
    """Only callers who may use the route learn what is wrong with a body."""
    headers = {**known["viewer"]["token"], "Content-Type": "application/json"}
    with filled.client(token=None) as client:
        for path in ("/api/v1/tokens", "/api/v1/dataflows", "/api/v1/runs/cancel"):
            answer = client.post(path, content=b"{", headers=headers)
            assert answer.json()["error_code"] == "scope_too_low", path


@pytest.mark.parametrize("path", ["/api/v1/nothing", "/docs", "/api/v1/dataflows/clicks/"])
def test_unknown_paths_tell_nothing_to_outsiders(filled: Service, path: str) -> None:
    """Neither that something is there, nor that nothing is."""
    with filled.client(token=None) as client:
        assert client.get(path).status_code == 401
    with filled.client() as client:
        assert client.get(path).status_code == 404


@pytest.mark.parametrize(("method", "path"), sorted(ONLY_AUTHENTICATED))
def test_the_document_needs_some_credential(filled: Service, method: str, path: str) -> None:
    """Every known caller may read it; nobody else."""
    with filled.client(token=None) as client:
        assert client.request(method, path).status_code == 401
    with filled.client() as client:
        assert client.request(method, path).status_code == 200


def test_public_routes_are_those_that_the_guard_lets_through() -> None:
    """Two lists that must agree: what the guard opens, and what routes declare."""
    declared = {(route.method, route.path) for route in ROUTES if route.scope is None}
    opened = {("GET", path) for path in OPEN_PATHS} | {SIGN_IN}
    assert declared - {("GET", "/")} == opened


def test_actions_are_unique() -> None:
    """The name of an action in the audit log is one route."""
    actions = [route.action for route in ROUTES]
    assert len(set(actions)) == len(actions), sorted(actions)


def test_a_route_without_a_scope_cannot_be_made() -> None:
    """The error says what to add, and the service does not start without it."""
    routes_of_test: APIRouter = router("test")
    with pytest.raises(LookupError, match=r"add @needs\(Scope.VIEWER\)"):

        @routes_of_test.get("/x")
        def forgotten() -> None:
            """Is never called."""

    @routes_of_test.get("/y")
    @public
    def open_to_all() -> None:
        """Is never called."""
