"""Signing in and out, and requests that another page made a browser send."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from controller.access.rate_limits import ATTEMPTS_MAX
from tests.controller.api.app_transport import TOKEN
from tests.controller.api.fake_service import Service
from tests.controller.api.security.callers import MARKED, bearer, cookie_of, make_token, sign_in

PAUSE = "/api/v1/dataflows/clicks/pause"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.fixture
def browser(filled: Service) -> httpx.Client:
    """A client without a token."""
    return filled.client(token=None)


def desired(service: Service) -> str:
    return service.store.records["clicks"].desired


def new_code(service: Service, **query: str) -> str:
    with service.client() as client:
        code: str = client.post("/api/v1/session/codes", params=query).json()["code"]
    return code


def test_a_link_signs_in_once(filled: Service, browser: httpx.Client) -> None:
    """The cookie is for this service alone, and no script can read it; the code is used up."""
    body = {"code": new_code(filled, scope="operator")}
    answer = browser.post("/api/v1/session", json=body, headers=MARKED)
    assert answer.status_code == 201
    assert answer.json()["scope"] == "operator"
    parts = [part.strip().lower() for part in answer.headers["set-cookie"].split(";")]
    assert parts[0].startswith("cbp_session_8420=")
    assert {"httponly", "samesite=strict", "path=/", "max-age=43200"} <= set(parts)
    assert "secure" not in parts
    assert "domain" not in str(parts)
    again = filled.client(token=None).post("/api/v1/session", json=body, headers=MARKED)
    assert (again.status_code, again.json()["error_code"]) == (403, "code_refused")
    assert "set-cookie" not in again.headers


def test_a_pasted_token_signs_in(filled: Service, browser: httpx.Client) -> None:
    """With the token's scope; a wrong one is refused."""
    token = make_token(filled, "v", "viewer")
    for given, scope in ((TOKEN, "admin"), (token, "viewer")):
        answer = browser.post("/api/v1/session", json={"token": given}, headers=MARKED)
        assert (answer.status_code, answer.json()["scope"]) == (201, scope)
    wrong = browser.post("/api/v1/session", json={"token": "wrong"}, headers=MARKED)
    assert (wrong.status_code, wrong.json()["error_code"]) == (401, "unauthenticated")


@pytest.mark.parametrize("body", [{}, {"code": "a", "token": "b"}, {"code": ""}, {"x": 1}, []])
def test_signing_in_needs_one_credential(browser: httpx.Client, body: Any) -> None:
    """Not none, not two; and the answer repeats nothing."""
    assert browser.post("/api/v1/session", json=body, headers=MARKED).status_code == 422


def test_guesses_are_limited_by_address(filled: Service, browser: httpx.Client) -> None:
    """After some wrong ones a right one waits, too; the answer says how long."""
    code = new_code(filled)
    for n in range(ATTEMPTS_MAX):
        body = {"code": f"guess-{n}"} if n % 2 else {"token": f"guess-{n}"}
        assert browser.post("/api/v1/session", json=body, headers=MARKED).status_code != 429
    right = {"code": code}
    answer = browser.post("/api/v1/session", json=right, headers=MARKED)
    assert (answer.status_code, answer.json()["error_code"]) == (429, "too_many_attempts")
    assert 1 <= int(answer.headers["retry-after"]) <= 60
    filled.clock.move(seconds=60)
    assert browser.post("/api/v1/session", json=right, headers=MARKED).status_code == 201


def test_the_page_asks_who_it_is(filled: Service, browser: httpx.Client) -> None:
    """Scope, token and end, of a session and of a token alike."""
    cookie = cookie_of(sign_in(filled, scope="operator"))
    told = browser.get("/api/v1/session", headers=cookie).json()
    assert (told["actor"], told["scope"], told["idle_minutes"]) == ("token-file", "operator", 120)
    assert told["session"]
    limited = make_token(filled, "drop", "operator", dataflows=["clicks"])
    told = browser.get("/api/v1/session", headers=bearer(limited)).json()
    assert (told["actor"], told["session"], told["dataflows"]) == ("token:drop", None, ["clicks"])


def test_signing_out_ends_the_session(filled: Service, browser: httpx.Client) -> None:
    """At the service, not only in the browser; a token has nothing to sign out from."""
    cookie = cookie_of(sign_in(filled))
    answer = browser.delete("/api/v1/session", headers={**cookie, **MARKED})
    assert answer.status_code == 204
    assert "max-age=0" in answer.headers["set-cookie"].lower()
    after = browser.get("/api/v1/session", headers=cookie)
    assert after.status_code == 401
    assert after.json()["details"]["reason"] == "session_ended"
    with filled.client() as client:
        assert client.delete("/api/v1/session").status_code == 404


def test_an_admin_ends_the_session_of_another(filled: Service, browser: httpx.Client) -> None:
    """It is in the list, without a secret; the own one is marked."""
    mine, other = cookie_of(sign_in(filled)), cookie_of(sign_in(filled, scope="viewer"))
    listed = browser.get("/api/v1/sessions", headers=mine).json()["items"]
    assert [(one["scope"], one["current"]) for one in listed] == [
        ("viewer", False),
        ("admin", True),
    ]
    assert mine["Cookie"].partition("=")[2] not in str(listed)
    path = f"/api/v1/sessions/{listed[0]['id']}"
    assert browser.delete(path, headers={**mine, **MARKED}).status_code == 204
    assert browser.get("/api/v1/session", headers=other).status_code == 401
    assert browser.get("/api/v1/session", headers=mine).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        FORM,
        {"Content-Type": "text/plain"},
        {"X-CBP-Request": "0"},
        {"X-CBP-Request": ""},
        {"Sec-Fetch-Site": "same-origin"},
    ],
)
def test_a_form_without_the_header_changes_nothing(
    filled: Service, browser: httpx.Client, headers: dict[str, str]
) -> None:
    """A page on another port of this host makes the browser send the cookie: it does not do."""
    cookie = cookie_of(sign_in(filled))
    answer = browser.post(PAUSE, headers={**cookie, **headers}, content=b"a=b")
    assert (answer.status_code, answer.json()["error_code"]) == (403, "request_unmarked")
    assert desired(filled) == "running"
    assert browser.post(PAUSE, headers={**cookie, **MARKED}).status_code == 200
    assert desired(filled) == "paused"


@pytest.mark.parametrize("site", ["cross-site", "same-site", "x"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_what_the_browser_says_comes_from_another_page_is_refused(
    filled: Service, browser: httpx.Client, site: str, method: str
) -> None:
    """Reads, too: no other page learns by an image or a script what the cookie opens."""
    cookie = cookie_of(sign_in(filled))
    path = PAUSE if method == "POST" else "/api/v1/dataflows"
    headers = {**cookie, **MARKED, "Sec-Fetch-Site": site}
    answer = browser.request(method, path, headers=headers)
    assert (answer.status_code, answer.json()["error_code"]) == (403, "origin_refused")
    assert filled.store.records["clicks"].desired == "running"


@pytest.mark.parametrize(
    ("header", "value", "code"),
    [
        ("Origin", "http://127.0.0.1:9999", "origin_refused"),
        ("Origin", "http://evil.example", "origin_refused"),
        ("Origin", "null", "origin_refused"),
        ("Host", "evil.example:8420", "host_refused"),
        ("Host", "127.0.0.1.evil.example", "host_refused"),
    ],
)
def test_a_forged_origin_or_host_does_not_do(
    filled: Service, browser: httpx.Client, header: str, value: str, code: str
) -> None:
    """Even with cookie and mark; and no one is signed in by another page."""
    cookie = cookie_of(sign_in(filled))
    answer = browser.post(PAUSE, headers={**cookie, **MARKED, header: value})
    assert answer.json()["error_code"] == code
    assert filled.store.records["clicks"].desired == "running"
    body = {"code": new_code(filled)}
    answer = browser.post("/api/v1/session", json=body, headers={**MARKED, header: value})
    assert answer.json()["error_code"] == code
    assert "set-cookie" not in answer.headers


def test_no_other_page_signs_a_browser_in(filled: Service, browser: httpx.Client) -> None:
    """A form cannot send the mark: so nobody works unknowingly in a session of somebody else."""
    answer = browser.post("/api/v1/session", json={"code": new_code(filled)})
    assert (answer.status_code, answer.json()["error_code"]) == (403, "request_unmarked")


def test_a_program_needs_no_mark(filled: Service) -> None:
    """Browsers do not send tokens by themselves."""
    with filled.client() as client:
        assert client.post(PAUSE).status_code == 200


def test_services_on_two_ports_have_cookies_of_their_own(
    filled: Service, browser: httpx.Client
) -> None:
    """A browser sends a cookie to all ports of a host; the name distinguishes them."""
    cookie = cookie_of(sign_in(filled))
    elsewhere = {**cookie, "Host": "127.0.0.1:9000"}
    assert browser.get("/api/v1/session", headers=elsewhere).status_code == 401
    moved = cookie["Cookie"].replace("8420", "9000")
    assert browser.get("/api/v1/session", headers={**elsewhere, "Cookie": moved}).status_code == 200


def test_a_cookie_is_for_tls_alone_where_it_came_by_tls(filled: Service) -> None:
    """By the scheme of the request, or by the setting where a proxy ends TLS."""
    with httpx.Client(
        transport=filled.client()._transport, base_url="https://127.0.0.1:8420"
    ) as client:
        body = {"code": new_code(filled)}
        answer = client.post("/api/v1/session", json=body, headers=MARKED)
    assert "secure" in answer.headers["set-cookie"].lower()


def test_a_limited_token_touches_only_its_dataflows(filled: Service) -> None:
    """Others, what is about several, and the page are refused; the refusal names the limit."""
    token = make_token(filled, "drop", "admin", dataflows=["clicks", "other"])
    with filled.client(token=token) as client:
        assert client.get("/api/v1/dataflows/clicks").status_code == 200
        assert client.post(PAUSE).status_code == 200
        for path in (
            "/api/v1/dataflows/visits",
            "/api/v1/dataflows",
            "/api/v1/runs",
            "/api/v1/audit",
        ):
            answer = client.get(path)
            assert (answer.status_code, answer.json()["error_code"]) == (
                403,
                "dataflow_not_granted",
            )
            assert answer.json()["details"]["dataflows"] == ["clicks", "other"]
        assert client.post("/api/v1/dataflows", json={}).status_code == 403
        assert client.post("/api/v1/session/codes").status_code == 403
        body = {"token": token}
        refused = client.post("/api/v1/session", json=body, headers=MARKED)
        assert refused.json()["error_code"] == "token_needed"
