"""The headers of every kind of answer, and what is in no answer at all."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from controller.api.answers import problems
from controller.api.security.guard import SECURITY_HEADERS, Guard
from controller.api.web_page import page_router
from controller.server.http_protocol import BoundedProtocol, ConnectionLimits
from tests.controller.api.all_routes import Route, filled_in, routes
from tests.controller.api.app_transport import TOKEN, AppTransport
from tests.controller.api.fake_service import Service
from tests.controller.server.test_http_protocol import serving

NAMES = frozenset({name.lower() for name in SECURITY_HEADERS})
UPLOAD = "/api/v1/dataflows/clicks/sources/urls/files"
Asked = tuple[str, str, dict[str, Any], int]
KINDS: dict[str, Asked] = {
    "a list": ("GET", "/api/v1/dataflows", {}, 200),
    "made": ("POST", "/api/v1/tokens", {"json": {"name": "n", "scope": "viewer"}}, 201),
    "accepted": ("POST", f"{UPLOAD}?name=a", {"content": b'{"url": "a"}\n'}, 202),
    "nothing": ("DELETE", "/api/v1/tokens/n", {}, 200),
    "a file of records": ("GET", "/api/v1/dataflows/clicks/flows/count.totals/download", {}, 200),
    "metrics": ("GET", "/api/v1/metrics", {}, 200),
    "the document": ("GET", "/api/v1/openapi.json", {}, 200),
    "health": ("GET", "/api/v1/health/live", {"headers": {"Authorization": ""}}, 200),
    "HEAD": ("HEAD", "/api/v1/openapi.json", {}, 200),
    "a redirect": ("GET", "/", {"headers": {"Accept": "text/html"}}, 307),
    "the page": ("GET", "/ui/runs", {}, 200),
    "a file of the page": ("GET", "/ui/assets/main-1.js", {}, 200),
    "a picture of the page": ("GET", "/ui/icon.svg", {}, 200),
    "no file of the page": ("GET", "/ui/assets/none.js", {}, 404),
    "a forged Host": ("GET", "/", {"headers": {"Host": "evil.example"}}, 400),
    "a header twice": ("GET", "/api/v1/runs", {"headers": [("Cookie", "a=b")] * 2}, 400),
    "no credential": ("GET", "/api/v1/runs", {"headers": {"Authorization": ""}}, 401),
    "a forged Origin": ("GET", "/api/v1/runs", {"headers": {"Origin": "http://x.example"}}, 403),
    "no such path": ("GET", "/api/v1/nothing", {}, 404),
    "no such thing": ("GET", "/api/v1/dataflows/nobody", {}, 404),
    "no such method": ("PUT", "/api/v1/runs", {}, 405),
    "OPTIONS": ("OPTIONS", "/api/v1/runs", {}, 405),
    "too large": ("POST", "/api/v1/dataflows", {"content": b"x" * (2 << 20)}, 413),
    "another type": (
        *("POST", "/api/v1/dataflows"),
        *({"content": b"x", "headers": {"Content-Type": "text/html"}}, 415),
    ),
    "invalid": ("GET", "/api/v1/runs?limit=0", {}, 422),
    "an error of ours": ("GET", "/api/v1/dataflows/clicks", {}, 500),
}
"""How each kind of answer is got, and its status."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Service:
    """Give one service for all; making one takes longer than all that is asked."""
    folder = tmp_path_factory.mktemp("answers")
    made = Service(folder / "root")
    made.fill()
    made.app.state.parts.events.stop()  # a stream ends at once
    return made


@pytest.fixture
def filled(service: Service) -> Service:
    """Give the service with what earlier requests took away."""
    service.store.records.clear()
    service.fill()
    return service


@pytest.fixture(scope="module")
def page(service: Service, tmp_path_factory: pytest.TempPathFactory) -> FastAPI:
    """Give a page of three files behind the guard; that of the service may not be built."""
    bundle = tmp_path_factory.mktemp("bundle")
    (bundle / "assets").mkdir()
    (bundle / "index.html").write_text("<html></html>")
    (bundle / "icon.svg").write_text("<svg/>")
    (bundle / "assets/main-1.js").write_text("let plain;")
    app = FastAPI()
    app.include_router(page_router(bundle))
    problems.install(app)
    app.add_middleware(Guard, access=service.access, host="127.0.0.1")
    return app


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_answer_has_the_security_headers(
    kind: str, filled: Service, page: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of the page, refusals before any route, and errors that nobody foresaw alike."""
    method, path, more, status = KINDS[kind]
    app = page if path.startswith("/ui/") else filled.app
    headers = {"Authorization": f"Bearer {TOKEN}"}
    url = filled.settings.url
    with httpx.Client(transport=AppTransport(app), base_url=url, headers=headers) as client:
        if kind == "an error of ours":
            monkeypatch.setattr(filled.store, "records", None)
        answer = client.request(method, path, **more)
    assert answer.status_code == status, answer.text[:300]
    assert answer.headers.keys() >= NAMES
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-frame-options"] == "DENY"
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert not [name for name in answer.headers if name.startswith("access-control-")]
    assert "server" not in answer.headers
    assert answer.headers["x-request-id"]


@pytest.mark.parametrize("route", routes(), ids=lambda route: f"{route.method} {route.path}")
def test_every_route_answers_with_the_security_headers(route: Route, filled: Service) -> None:
    """Also one that is added later; and what it says is no HTML that a browser would show."""
    with filled.client() as client:
        answer = client.request(route.method, filled_in(route.path))
    assert answer.headers.keys() >= NAMES
    assert "html" not in answer.headers.get("content-type", "")


def _raw(port: int, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=120) as client:
        client.sendall(data)
        return b"".join(iter(lambda: client.recv(1 << 16), b""))


@pytest.fixture(scope="module")
def crowded() -> Iterator[int]:
    """Give a port whose connections are all being served."""

    class Full(BoundedProtocol):
        limits = ConnectionLimits(connections_max=0)

        def _may_go(self) -> bool:
            return False

    with serving(Full) as port:
        yield port


@pytest.fixture(scope="module")
def listening() -> Iterator[int]:
    """Give a port of the product's HTTP protocol."""
    with serving(BoundedProtocol) as port:
        yield port


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET \xff\r\n\r\n",
    ],
    ids=["text", "tls", "no host", "bytes"],
)
def test_what_is_no_http_is_refused_with_the_same_headers(data: bytes, listening: int) -> None:
    """The application never sees it; the answer repeats nothing of it."""
    head, _, body = _raw(listening, data + b"\r\n\r\n").partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    lines = (line.partition(b": ") for line in head.split(b"\r\n")[1:])
    sent = httpx.Headers([(name, value) for name, _, value in lines])
    assert {name: sent[name] for name in NAMES} == {
        name.lower(): value for name, value in SECURITY_HEADERS.items()
    }
    assert httpx.Response(400, content=body).json()["error_code"] == "request_refused"
    assert b"nonsense" not in body


def test_a_service_without_room_refuses_with_the_same_headers(crowded: int) -> None:
    """It is made before the application, too."""
    head, _, body = _raw(crowded, b"").partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 ")
    for name, value in SECURITY_HEADERS.items():
        assert f"\r\n{name}: {value}".encode() in head
    assert b"connections_exhausted" in body


def _schemas(document: dict[str, Any], part: Any, seen: set[str]) -> Iterator[tuple[str, Any]]:
    """Yield every object schema that a part refers to, by name."""
    if isinstance(part, dict):
        name = str(part.get("$ref", "")).rpartition("/")[2]
        if name and name not in seen:
            seen.add(name)
            schema = document["components"]["schemas"][name]
            yield name, schema
            yield from _schemas(document, schema, seen)
        for inner in part.values():
            yield from _schemas(document, inner, seen)
    elif isinstance(part, list):
        for inner in part:
            yield from _schemas(document, inner, seen)


def test_no_request_takes_what_it_does_not_know(service: Service) -> None:
    """A field too many is refused by every body: no caller sets what it was not meant to (API3)."""
    document = service.app.openapi()
    bodies = [
        operation["requestBody"]
        for methods in document["paths"].values()
        for operation in methods.values()
        if "requestBody" in operation
    ]
    taken = dict(_schemas(document, bodies, set()))
    open_ = {
        name
        for name, schema in taken.items()
        if schema.get("type") == "object" and schema.get("additionalProperties") is not False
    }
    assert len(taken) > 5
    assert open_ == set()


def test_only_a_new_token_shows_its_secret(service: Service) -> None:
    """No other answer has a field for one, so none can be filled by mistake."""
    document = service.app.openapi()
    shown = {
        (schema, field)
        for methods in document["paths"].values()
        for operation in methods.values()
        for schema, model in _schemas(document, operation["responses"], set())
        for field in model.get("properties", {})
        if re.search("secret|password|digest|authorization|cookie", field)
    }
    assert shown == {("NewTokenOut", "secret")}


def test_no_address_of_the_page_or_of_rest_has_a_token(service: Service) -> None:
    """A token in a query is no credential: addresses are logged, kept and sent on."""
    with service.client(token=None) as client:
        for name in ("token", "access_token", "authorization", "bearer", "key", "api_key"):
            answer = client.get(f"/api/v1/dataflows?{name}={TOKEN}")
            assert answer.status_code == 401, name
