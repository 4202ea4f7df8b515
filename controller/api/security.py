"""Access control of the API, and the headers of every response.

`Guard` stands before every route, known or not: deny by default. It checks, in this order, the Host
header (DNS rebinding), the Origin header (pages of other sites) and the bearer token; only
`OPEN_PATHS` need no token. Then it refuses what can be read in two ways. It also turns unexpected
errors into problem documents, and adds the security headers.

Absent on purpose: cookies, CORS, tokens in URLs.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Iterable
from urllib.parse import unquote_to_bytes

from fastapi.security import HTTPBearer
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cbp.errors import CbpError
from controller.api.answers.problems import (
    ContentEncodingError,
    HostRefusedError,
    InternalError,
    OriginRefusedError,
    RequestError,
    UnauthenticatedError,
    answer,
)
from controller.api.requests.bounds import Bounds

__all__ = ["ONCE", "OPEN_PATHS", "SECURITY_HEADERS", "Guard", "bearer_scheme"]

OPEN_PATHS = frozenset({"/api/v1/health/live", "/api/v1/health/ready"})

SECURITY_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

ONCE = ("authorization", "content-encoding", "content-type", "idempotency-key", "origin")
"""Headers that a request has at most once."""

_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})

# Tells OpenAPI that a token is needed; `Guard` enforces it.
bearer_scheme = HTTPBearer(auto_error=False, description="The content of the token file.")


class Guard:
    """ASGI middleware; see the module header.

    Args:
        token: What clients must send; only its digest is kept.
        host: The address that the service listens on.
        allowed_hosts: Further names under which clients may reach it.
        bounds: Bounds of bodies; a body is read only after the checks above.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str,
        host: str,
        allowed_hosts: Iterable[str] = (),
        bounds: Bounds | None = None,
    ) -> None:
        assert token.strip(), "an empty token would let everybody in"
        self._app, self._bounds = app, bounds
        self._digest = _digest(token)
        self._hosts = _LOOPBACK_NAMES | {name.lower() for name in (host, *allowed_hosts)}
        self._any_address = _is_unspecified(host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def send_safely(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            self._check(scope)
            bounded = self._bounds.bounded(scope, receive) if self._bounds else receive
            await self._app(scope, bounded, send_safely)
            return
        except CbpError as refused:
            error = refused
        except Exception as unforeseen:  # nothing above could answer the client
            error = InternalError()
            error.__cause__ = unforeseen
            if started:
                raise
        response = answer(error, method=scope["method"], path=scope["path"])
        await response(scope, receive, send_safely)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self._knows(_host_name(host)):
            raise HostRefusedError(host)
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in (f"http://{host}", f"https://{host}"):
            raise OriginRefusedError(origin)
        if scope["path"] not in OPEN_PATHS and not self._has_token(headers):
            raise UnauthenticatedError
        _require_plain(scope, headers)

    def _knows(self, name: str) -> bool:
        # Rebinding needs a name. An address in the Host header is the one that was dialled.
        return name in self._hosts or (self._any_address and _is_address(name))

    def _has_token(self, headers: Headers) -> bool:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        given = _digest(token.strip())
        return scheme.lower() == "bearer" and hmac.compare_digest(given, self._digest)


def _require_plain(scope: Scope, headers: Headers) -> None:
    """Refuse what parts of a service could read in different ways.

    Raises:
        RequestError: A header that is meant once comes again, or the query is not UTF-8: its bytes
            would be replaced, so that names that differ would be one.
        ContentEncodingError: The body is compressed.
    """
    for name in ONCE:
        if len(headers.getlist(name)) > 1:
            message = f"the header {name} comes {len(headers.getlist(name))} times; send it once"
            raise RequestError(message, header=name)
    coding = headers.get("content-encoding", "identity")
    if coding.strip().lower() not in ("", "identity"):
        raise ContentEncodingError(coding)
    try:
        unquote_to_bytes(scope["query_string"]).decode()
    except UnicodeDecodeError as error:
        message = "the query has bytes that are not UTF-8; encode its text as UTF-8, then as %XX"
        raise RequestError(message) from error


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _host_name(header: str) -> str:
    """Return the name of a Host header without its port, in lower case."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].lower()


def _is_unspecified(host: str) -> bool:
    return _is_address(host) and ipaddress.ip_address(host).is_unspecified


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
