"""What the audit log says of a request, and what it never says."""

from __future__ import annotations

import json
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import pytest

from cbp.errors import OperatingError
from tests.controller.api.all_routes import filled_in, routes
from tests.controller.api.app_transport import TOKEN
from tests.controller.api.clicks import DOCUMENT
from tests.controller.api.fake_service import Service
from tests.controller.api.security.callers import MARKED, bearer, cookie_of, make_token, sign_in


def entries(service: Service, **query: str) -> list[dict[str, Any]]:
    """Return the audit log, newest first, without the makings of this module's tokens."""
    with service.client() as client:
        answer = client.get("/api/v1/audit", params={"limit": "500", **query})
    assert answer.status_code == 200, answer.text
    return [
        one
        for one in answer.json()["items"]
        if one["action"] not in ("tokens_create", "sessions_make_code")
    ]


def test_a_change_says_who_what_and_with_which_outcome(filled: Service) -> None:
    """By a token and on the page; the answer's id leads to it."""
    token = make_token(filled, "ci", "operator")
    with filled.client(token=token) as client:
        path = "/api/v1/dataflows/clicks/stages/count/pause"
        answer = client.post(path, headers={"X-CBP-User": "ada@desk"})
    (entry,) = entries(filled)
    assert entry["request"] == answer.headers["x-request-id"]
    assert (entry["actor"], entry["session"], entry["user"]) == ("token:ci", None, "ada@desk")
    assert (entry["action"], entry["dataflow"]) == ("dataflows_pause_stage", "clicks")
    assert (entry["target"], entry["outcome"]) == ({"stage": "count"}, "done")
    assert (entry["scope"], entry["status"], entry["count"]) == ("operator", 200, 1)
    with filled.client(token=token) as client:
        client.put("/api/v1/dataflows/clicks/stages/count/priority/low")
    entry = entries(filled)[0]
    assert entry["action"] == "dataflows_set_priority"
    assert entry["target"] == {"stage": "count", "priority": "low"}
    cookie = cookie_of(sign_in(filled))
    with filled.client(token=None) as client:
        client.post("/api/v1/dataflows/clicks/resume", headers={**cookie, **MARKED})
    resumed, signed_in = entries(filled)[:2]
    assert (resumed["actor"], resumed["action"]) == ("token-file", "dataflows_resume")
    assert signed_in["action"] == "sessions_sign_in"
    assert resumed["session"] == signed_in["session"] is not None


def test_a_reason_is_kept(filled: Service) -> None:
    """A roll-back is kept with its reason and its author, as the request names them."""
    with filled.client() as client:
        query = {"to": "0", "by": "ada", "reason": "a wrong file"}
        client.post("/api/v1/dataflows/clicks/rollback", params=query)
    (entry,) = entries(filled)
    assert (entry["reason"], entry["user"]) == ("a wrong file", "ada")


def test_a_failed_change_has_its_error(filled: Service) -> None:
    """What was tried is logged, too."""
    with filled.client() as client:
        client.post("/api/v1/dataflows/nobody/pause")
    (entry,) = entries(filled)
    assert (entry["outcome"], entry["status"], entry["error_code"]) == ("failed", 404, "not_found")


def test_an_unforeseen_error_is_audited(filled: Service) -> None:
    """An action that broke in the middle may have changed something."""
    filled.controller.fails_with = ZeroDivisionError("x")
    with filled.client() as client:
        client.post("/api/v1/dataflows", json=DOCUMENT)
    (entry,) = entries(filled)
    assert (entry["status"], entry["error_code"]) == (500, "internal_error")


def test_what_changes_nothing_is_no_entry(filled: Service) -> None:
    """Reads, checks, dry runs, and what no route takes."""
    with filled.client() as client:
        client.get("/api/v1/dataflows")
        client.post("/api/v1/dataflows/validate", json=DOCUMENT)
        client.put("/api/v1/dataflows/clicks", params={"dry_run": "true"}, json=DOCUMENT)
        client.post("/api/v1/nothing")
        client.put("/api/v1/dataflows/clicks", json=DOCUMENT)
    assert [entry["action"] for entry in entries(filled)] == ["dataflows_change"]


def test_no_query_hides_a_change(filled: Service) -> None:
    """A route without dry runs ignores `dry_run`, and so does the log."""
    with filled.client() as client:
        client.post("/api/v1/dataflows/clicks/pause", params={"dry_run": "true"})
    assert [entry["action"] for entry in entries(filled)] == ["dataflows_pause"]


def test_refusals_are_counted(filled: Service) -> None:
    """One entry for each kind, with their number; nobody fills the log from outside."""
    token = make_token(filled, "v", "viewer")
    with filled.client(token=token) as client:
        for _ in range(20):
            client.delete("/api/v1/dataflows/clicks")
    with filled.client(token="wrong") as client:
        for n in range(30):
            client.get(f"/api/v1/dataflows/d{n}")
    actual = {(e["actor"], e["action"], e["error_code"]): e["count"] for e in entries(filled)}
    assert actual == {
        ("token:v", "dataflows_delete", "scope_too_low"): 20,
        ("", "", "unauthenticated"): 30,
    }
    with filled.client() as client:
        shown = client.get("/api/v1/metrics").text.splitlines()
    assert 'cbp_refused_requests_total{error_code="scope_too_low"} 20.0' in shown
    assert 'cbp_refused_requests_total{error_code="unauthenticated"} 30.0' in shown


def test_the_log_is_filtered_and_paged(filled: Service) -> None:
    """On the server."""
    token = make_token(filled, "ci", "operator")
    with filled.client(token=token) as client:
        client.post("/api/v1/dataflows/clicks/pause")
        client.post("/api/v1/dataflows/nobody/pause")
    assert len(entries(filled, actor="token:ci")) == 2
    assert [e["outcome"] for e in entries(filled, dataflow="nobody")] == ["failed"]
    assert entries(filled, action="dataflows_resume") == []
    assert entries(filled, until="2020-01-01T00:00:00Z") == []
    with filled.client() as client:
        first = client.get("/api/v1/audit", params={"limit": 1}).json()
        second = client.get("/api/v1/audit", params={"limit": 1, "cursor": first["cursor"]}).json()
        assert first["items"][0]["number"] > second["items"][0]["number"]
        assert client.get("/api/v1/audit?since=2026-13-01").status_code == 422
    assert entries(filled, since="9000-01-01") == []


def test_an_answer_comes_though_it_cannot_be_audited(filled: Service) -> None:
    """What was done is done; the log of the process says that the entry is missing."""
    filled.store.fails_with = OperatingError("the disk is full")
    with filled.client() as client:
        assert client.post("/api/v1/dataflows/clicks/pause").status_code == 200
        filled.store.fails_with = None
        assert "cbp_unstored_audit_entries_total 1.0" in client.get("/api/v1/metrics").text


@pytest.mark.parametrize("route", [r for r in routes() if r.changes], ids=lambda r: r.action)
def test_every_change_is_audited_under_its_own_name(tmp_path: Path, route: Any) -> None:
    """Whatever route: a request that reaches it leaves one entry, done or failed."""
    service = Service(tmp_path)
    service.fill()
    with service.client() as client:
        client.request(route.method, filled_in(route.path), headers=MARKED)
    service.access.audit.flush()
    assert [entry.action for entry in service.store.entries] == [route.action]


def test_no_secret_is_in_any_output(filled: Service, logs: list[MutableMapping[str, Any]]) -> None:
    """Tokens, codes and cookies, right and wrong, sent wherever one can send them."""
    token = make_token(filled, "ci", "admin")
    with filled.client() as client:
        code = client.post("/api/v1/session/codes").json()["code"]
    wrong_code, wrong_token = "canary-code", "cbp_canary00_" + "canary" * 7
    cookie = cookie_of(sign_in(filled))
    secrets = [
        TOKEN,
        token.split("_", 2)[2],
        code,
        wrong_code,
        "canary" * 7,
        cookie["Cookie"].partition("=")[2],
    ]
    said = []
    with filled.client(token=None) as client:
        for body in ({"code": wrong_code}, {"token": wrong_token}, {"code": code}, {"tokn": token}):
            answer = client.post("/api/v1/session", json=body, headers=MARKED)
            said.append(answer.text)
        for secret in (token, wrong_token):
            for headers in (bearer(TOKEN), bearer(secret), {**cookie, **MARKED}):
                for method, path in (
                    ("DELETE", f"/api/v1/tokens/{secret}"),
                    ("POST", f"/api/v1/tokens/{secret}/rotate"),
                    ("POST", f"/api/v1/dataflows/{secret}/pause"),
                    ("GET", f"/api/v1/runs?token={secret}"),
                    ("GET", f"/api/v1/{secret}"),
                ):
                    said.append(client.request(method, path, headers=headers).text)
    with filled.client() as client:
        for route in routes():
            if route.method == "GET" and route.path != "/api/v1/events":
                said.append(client.get(filled_in(route.path)).text)
        # What someone writes as a reason is theirs to write; the audit log masks it.
        client.post("/api/v1/dataflows/clicks/pause", params={"reason": token})
    everything = "\n".join([*said, json.dumps([str(entry) for entry in logs])])
    everything += repr(filled.store.entries) + repr(filled.store.__dict__)
    for secret in secrets:
        at = everything.find(secret)
        assert at < 0, everything[max(0, at - 300) : at + 20]


def test_a_registration_names_its_dataflow(filled: Service) -> None:
    """Though the address does not; also one that is refused."""
    with filled.client() as client:
        client.post("/api/v1/dataflows", json={**DOCUMENT, "name": "others"})
        client.post("/api/v1/dataflows", json=DOCUMENT)
    actual = [(one["dataflow"], one["outcome"]) for one in entries(filled)]
    assert actual == [("clicks", "failed"), ("others", "done")]
