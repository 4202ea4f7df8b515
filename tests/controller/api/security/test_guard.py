"""What is refused before any route: forged Host and Origin headers, and what can be read twice."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from controller.api.security.guard import ONCE, SECURITY_HEADERS
from tests.controller.api.all_routes import filled_in, routes
from tests.controller.api.app_transport import TOKEN
from tests.controller.api.fake_service import Service
from tests.controller.api.security.callers import MARKED, cookie_of, make_token, sign_in


def test_refused_requests_change_nothing(filled: Service) -> None:
    """A request without the token does not reach the controller."""
    with filled.client(token=None) as client:
        client.delete("/api/v1/dataflows/clicks")
        client.post("/api/v1/runs/r3/cancel")
    assert filled.controller.asked == []


def test_every_line_of_a_request_names_its_caller(filled: Service) -> None:
    """The token, and the session if there is one; the next request does not inherit them."""
    by_token = {"Authorization": f"Bearer {make_token(filled, 'ci', 'viewer')}"}
    by_session = {**cookie_of(sign_in(filled)), **MARKED}
    wrong = {"Authorization": "Bearer wrong"}

    async def ask() -> list[httpx.Response]:
        transport = httpx.ASGITransport(filled.app)
        async with httpx.AsyncClient(transport=transport, base_url=filled.settings.url) as client:
            return [
                await client.get("/api/v1/dataflows/nobody", headers=headers)
                for headers in (by_token, by_session, {}, wrong)
            ]

    with capture_logs([merge_contextvars]) as logs:
        answer, *_ = asyncio.run(ask())  # all in one task: each sees what the one before it left
    first, second, *by_nobody = (one for one in logs if one["event"] == "request refused")
    assert first["actor"] == "token:ci"
    assert first["request"] == answer.headers["x-request-id"]
    assert "session" not in first
    assert (second["actor"], len(second["session"])) == ("token-file", 8)
    assert [("actor" in one, "session" in one) for one in by_nobody] == [(False, False)] * 2


def test_a_caller_sends_so_many_requests_a_second(tmp_path: Path) -> None:
    """The next one is answered with 429 and when to come back; health and other tokens go on."""
    service = Service(tmp_path, requests_per_second_max=3)
    service.fill()
    other = make_token(service, "ci", "viewer")
    with service.client() as client, service.client(token=other) as second:
        answers = [client.get("/api/v1/dataflows") for _ in range(60)]
        refused = next(one for one in answers if one.status_code == 429)
        assert answers[0].status_code == 200
        assert refused.json()["error_code"] == "too_many_requests"
        assert refused.headers["retry-after"] == "1"
        assert client.get("/api/v1/health/live").status_code == 200
        assert second.get("/api/v1/dataflows").status_code == 200


def test_an_idempotency_key_has_the_same_limit_everywhere(service: Service) -> None:
    """A client that makes keys of 255 characters can send them to every route that takes one."""
    longest = {
        f"{method} {path}": parameter["schema"]["anyOf"][0]["maxLength"]
        for path, methods in service.app.openapi()["paths"].items()
        for method, operation in methods.items()
        for parameter in operation.get("parameters", ())
        if parameter["name"].lower() == "idempotency-key"
    }
    assert len(longest) == 9
    assert set(longest.values()) == {255}, longest


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "", "localhost.", "[::1"]
)
def test_a_foreign_host_header_is_refused(service: Service, host: str) -> None:
    """A name that was rebound to this machine gets nothing, health included."""
    with service.client() as client:
        answer = client.get("/api/v1/health/live", headers={"Host": host})
    refused = host != "[::1"
    assert (answer.status_code == 400) is refused
    if refused:
        assert answer.json()["error_code"] == "host_refused"
        assert answer.json()["details"] == {"host": host}


@pytest.mark.parametrize(
    "host", ["localhost:8420", "127.0.0.1", "[::1]:8420", "LOCALHOST", "127.0.0.1:9"]
)
def test_the_loopback_names_are_known(service: Service, host: str) -> None:
    """Clients on this machine get in under every loopback name and through any port."""
    with service.client() as client:
        assert client.get("/api/v1/dataflows", headers={"Host": host}).status_code == 200


def test_a_service_for_other_machines_knows_addresses_but_no_names(tmp_path: Path) -> None:
    """Rebinding needs a name, so an address is let in when it listens everywhere."""
    service = Service(tmp_path, host="0.0.0.0", allow_remote=True)
    with service.client() as client:
        path = "/api/v1/dataflows"
        assert client.get(path, headers={"Host": "192.0.2.7:8420"}).status_code == 200
        assert client.get(path, headers={"Host": "evil.example"}).status_code == 400


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://evil.example", 403),
        ("null", 403),
        ("http://127.0.0.1:9999", 403),
        ("http://127.0.0.1:8420.evil.example", 403),
        ("http://127.0.0.1:8420", 200),
    ],
)
def test_pages_of_other_origins_are_refused(service: Service, origin: str, status: int) -> None:
    """A forged form of another page is refused even with the token."""
    with service.client() as client:
        answer = client.get("/api/v1/dataflows", headers={"Origin": origin})
    assert answer.status_code == status
    if status == 403:
        assert answer.json()["error_code"] == "origin_refused"
        assert answer.json()["details"] == {"origin": origin}
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("path", ["/", "/nothing", "/api/v1/health/live", "/api/v1/dataflows/x"])
def test_every_answer_has_the_security_headers(service: Service, path: str) -> None:
    """Good answers and refusals alike."""
    with service.client() as client:
        headers = client.get(path).headers
    assert {name: headers.get(name) for name in SECURITY_HEADERS} == SECURITY_HEADERS


def test_an_unforeseen_error_is_told_without_its_text(
    service: Service, logs: list[MutableMapping[str, Any]]
) -> None:
    """The client learns that it failed; the text, which may hold anything, stays in the log."""
    service.controller.fails_with = ZeroDivisionError("the password is swordfish")
    with service.client() as client:
        answer = client.post("/api/v1/dataflows", json={"name": "x"})
    assert answer.status_code == 500
    assert answer.json()["error_code"] == "internal_error"
    assert "swordfish" not in answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"
    (alarm,) = [entry for entry in logs if entry["log_level"] == "error"]
    assert isinstance(alarm["exc_info"].__cause__, ZeroDivisionError)


@pytest.mark.parametrize(
    ("number", "status", "code"),
    [
        (errno.EROFS, 503, "operating_failure"),
        (errno.EACCES, 503, "operating_failure"),
        (errno.ENOSPC, 503, "disk_full"),
        (errno.EPIPE, 500, "internal_error"),
    ],
)
def test_what_the_disk_refuses_is_no_mistake_of_the_service(
    number: int, status: int, code: str, service: Service
) -> None:
    """A read-only disk is named; nobody is asked for a bug report."""
    service.controller.fails_with = OSError(number, os.strerror(number), "/data/x")
    with service.client() as client:
        answer = client.post("/api/v1/dataflows", json={"name": "x"})
    assert (answer.status_code, answer.json()["error_code"]) == (status, code)
    assert ("report the bug" in answer.text) == (code == "internal_error")
    assert ("/data/x" in answer.text) == (code != "internal_error")


def test_a_refusal_is_no_alarm(service: Service, logs: list[MutableMapping[str, Any]]) -> None:
    """What a client does wrong is logged as information, without what it sent."""
    with service.client(token="swordfish") as client:
        client.get("/api/v1/dataflows?secret=hunter2")
    assert [entry["log_level"] for entry in logs] == ["info"]
    assert "swordfish" not in str(logs)
    assert "hunter2" not in str(logs)


def test_the_settings_show_no_token(filled: Service) -> None:
    """No route gives the token away."""
    with filled.client() as client:
        for route in routes():
            answer = client.request(route.method, filled_in(route.path))
            assert TOKEN not in answer.text


def test_every_route_has_a_bound_of_its_body(filled: Service) -> None:
    """Also a route that does not read the body itself, announced or in chunks."""
    with filled.client() as client:
        most = filled.settings.body_bytes_max
        for body in (b"x" * (most + 1), iter([b"x" * most, b"x"])):
            for path in ("/api/v1/dataflows/clicks/verifications", "/api/v1/dataflows/validate"):
                headers = {"content-type": "application/json"}
                answer = client.post(path, content=body, headers=headers)
                assert (answer.status_code, answer.json()["error_code"]) == (413, "body_too_large")
                assert answer.json()["details"]["setting"] == "CBP_BODY_BYTES_MAX"
                body = iter([b"x" * most, b"x"]) if not isinstance(body, bytes) else body


@pytest.mark.parametrize("coding", ["gzip", "br", "x", "gzip, identity"])
def test_a_compressed_body_is_refused_before_it_is_read(filled: Service, coding: str) -> None:
    """It would be stored as it came, under a name that says something else."""
    asked = [("POST", "/dataflows"), ("POST", "/dataflows/clicks/sources/urls/files?name=a.jsonl")]
    with filled.client() as client:
        for method, path in asked:
            headers = {"Content-Encoding": coding}
            answer = client.request(method, f"/api/v1{path}", content=b"\x1f\x8b", headers=headers)
            assert answer.status_code == 415
            assert answer.json()["error_code"] == "content_encoding_unsupported"
        plain = client.get("/api/v1/dataflows", headers={"Content-Encoding": "Identity"})
    assert plain.status_code == 200


@pytest.mark.parametrize("header", sorted({*ONCE} - {"origin"}))
def test_a_header_that_is_meant_once_is_refused_twice(filled: Service, header: str) -> None:
    """Otherwise who reads the first and who reads the last do different things."""
    values = {"authorization": f"Bearer {TOKEN}", "content-encoding": "identity"}
    with filled.client(token=None) as client:
        told = [] if header == "authorization" else [("Authorization", f"Bearer {TOKEN}")]
        twice = [(header, values.get(header, "a/b"))] * 2
        answer = client.get("/api/v1/dataflows", headers=[*told, *twice])
    assert (answer.status_code, answer.json()["error_code"]) == (400, "request_refused")
    assert header in answer.json()["message"]


@pytest.mark.parametrize("name", ["%ff", "%fe.jsonl", "%ed%a0%80", "a%c3"])
def test_a_query_that_is_not_utf_8_is_refused(filled: Service, name: str) -> None:
    """Its bytes would be replaced, so that two names are one file, and the second is lost."""
    path = f"/api/v1/dataflows/clicks/sources/urls/files?name={name}"
    with filled.client() as client:
        answer = client.post(path, content=b'{"url": "a"}\n')
        assert client.get("/api/v1/dataflows?limit=1&x=%C3%A9").status_code != 400
    assert (answer.status_code, answer.json()["error_code"]) == (400, "request_refused")
    assert "UTF-8" in answer.json()["message"]


def test_a_cursor_of_corrections_is_one_that_was_given(filled: Service) -> None:
    """Any other text would give a page of whatever is smaller."""
    with filled.client() as client:
        answer = client.get("/api/v1/dataflows/clicks/corrections?cursor=zzzz")
    assert (answer.status_code, answer.json()["error_code"]) == (422, "cursor_invalid")
