"""Access control of the API, and the headers of every response.

`Guard` comes before every route, known or not: deny by default. It checks, in this order, the Host
header (DNS rebinding), the Origin header (pages of other sites) and the credential; only
`OPEN_PATHS`, the page's files and signing in need none. Then it refuses requests that can be read
in two ways. Routes check what a caller may do (`controller.api.routing.scope_check`). The guard
also turns unexpected errors into problem documents, adds the security headers, and passes every
answer to the audit log.

Absent on purpose: CORS, tokens in URLs.

`audit_answer` makes the `AuditRecord` of a request from the request and the status of its answer.
An answer to a request that changed something leaves after its entry is stored, so that a reader of
the answer finds the entry. Refused requests (401, 403, 429) are only counted.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Iterable, Sequence
from urllib.parse import parse_qs, unquote_to_bytes

from fastapi.security import HTTPBearer
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bind_contextvars, bound_contextvars, unbind_contextvars

from cbp.errors import CbpError
from cbp.errors.masks import hide_secrets
from cbp.errors.message_limits import shortened
from controller.access.access import Access
from controller.access.audit import Audit
from controller.access.rate_limits import RequestRates
from controller.access.secret_text import mask_tokens
from controller.api.answers.json_values import json_value
from controller.api.answers.problems import ERROR_CODE, answer
from controller.api.answers.request_errors import (
    ContentEncodingError,
    HostRefusedError,
    OriginRefusedError,
    RequestError,
    unforeseen_error,
)
from controller.api.requests.body import Bounds
from controller.api.security.callers import MARK_HEADER, identify, require_own_page
from controller.api.security.exchange import Exchange
from controller.api.web_page import is_open
from controller.store.access import AuditRecord

USER_HEADER = "X-CBP-User"
"""Header with the name of the client's user. It is shown, but no decision depends on it."""

_REFUSED = frozenset({401, 403, 429})
_USER_LENGTH, _REASON_LENGTH = 100, 1_000


async def audit_answer(audit: Audit, scope: Scope, exchange: Exchange, status: int) -> None:
    """Add a request to the audit log before its answer leaves.

    A refused request is counted. Another request becomes an entry if its action changes something,
    even if it failed. Reads and dry runs are left out, as the route declares them.
    """
    if status in _REFUSED:
        audit.count_refusal(_entry(audit, scope, exchange, status))
    elif exchange.changes:
        await run_in_threadpool(audit.record, _entry(audit, scope, exchange, status))


def _entry(audit: Audit, scope: Scope, exchange: Exchange, status: int) -> AuditRecord:
    caller = exchange.caller
    path = {name: str(value) for name, value in scope.get("path_params", {}).items()}
    dataflow = path.pop("name", "")
    return AuditRecord(
        at=audit.now(),
        actor="" if caller is None else caller.actor,
        session="" if caller is None else caller.session,
        scope="" if caller is None else caller.scope.value,
        user=_text(_parameter(scope, "by") or Headers(scope=scope).get(USER_HEADER, "")),
        action=exchange.action,
        outcome="refused" if status in _REFUSED else "done" if status < 400 else "failed",
        status=status,
        error_code=scope.get(ERROR_CODE, ""),
        dataflow=_text(exchange.dataflow or dataflow),
        target={name: _text(value) for name, value in {**path, **exchange.target}.items()},
        reason=_text(exchange.reason or _parameter(scope, "reason"), _REASON_LENGTH),
        request=exchange.id,
        address=(scope.get("client") or ("", 0))[0],
    )


def _text(value: str, length: int = _USER_LENGTH) -> str:
    return str(json_value(shortened(mask_tokens(hide_secrets(value)), length)))


def _parameter(scope: Scope, name: str) -> str:
    query: str = scope["query_string"].decode("latin-1")
    given = parse_qs(query, errors="replace")
    return given.get(name, [""])[-1]


OPEN_PATHS = frozenset({"/api/v1/health/live", "/api/v1/health/ready"})
"""Paths that need no credential."""

SIGN_IN = ("POST", "/api/v1/session")
"""The route that exchanges a credential for a session; it needs the page's mark instead."""

SECURITY_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

HSTS = "max-age=31536000"
"""Makes browsers use only HTTPS with a host for a year. It is not sent for loopback names, since a
developer's other services could no longer be reached there."""

_SENT = tuple((name.lower().encode(), value.encode()) for name, value in SECURITY_HEADERS.items())
_SENT_BY_TLS = (*_SENT, (b"strict-transport-security", HSTS.encode()))

ONCE = (
    "authorization",
    "content-encoding",
    "content-type",
    "cookie",
    "idempotency-key",
    "origin",
    MARK_HEADER.lower(),
)
"""Headers that a request may have only once."""

_CALLER_FIELDS = ("actor", "session")
"""Fields of every line of the log that a request with a credential writes."""

_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})

# Declares to OpenAPI that a token is needed; `Guard` enforces it.
bearer_scheme = HTTPBearer(
    auto_error=False, description="The content of the token file, or a token from `cbp tokens new`."
)


class Guard:
    """ASGI middleware; see the module header.

    Args:
        bounds: Bounds of bodies; a body is read only after the checks of the module header.
        tls: Whether this service terminates TLS itself: it then serves nothing over plain HTTP,
            and makes browsers use only HTTPS.
        rates: How many requests a caller may send; `None` means any number.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        access: Access,
        host: str,
        allowed_hosts: Iterable[str] = (),
        bounds: Bounds | None = None,
        tls: bool = False,
        rates: RequestRates | None = None,
    ) -> None:
        self._rates = rates or RequestRates(0)
        self._app, self._access, self._bounds = app, access, bounds
        self._hosts = _LOOPBACK_NAMES | {name.lower() for name in (host, *allowed_hosts)}
        self._any_address = _is_address(host) and ipaddress.ip_address(host).is_unspecified
        self._schemes = ("https",) if tls else ("http", "https")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = Exchange(id=secrets.token_hex(8))
        exchange.put(scope)
        with bound_contextvars(request=exchange.id):
            try:
                await self._serve(scope, receive, send, exchange)
            finally:
                unbind_contextvars(*_CALLER_FIELDS)

    async def _serve(self, scope: Scope, receive: Receive, send: Send, exchange: Exchange) -> None:
        started = False

        async def send_safely(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = [*message["headers"]]
                given = {name.lower() for name, _ in headers}
                headers += [one for one in self._headers(scope) if one[0] not in given]
                message["headers"] = [*headers, (b"x-request-id", exchange.id.encode())]
                await audit_answer(self._access.audit, scope, exchange, message["status"])
            await send(message)

        try:
            await self._check(scope, exchange)
            bounded = self._bounds.bounded(scope, receive) if self._bounds else receive
            await self._app(scope, bounded, send_safely)
            return
        except CbpError as refused:
            error = refused
        except Exception as unforeseen:  # nothing outside of this can answer the client
            error = unforeseen_error(unforeseen)
            error.__cause__ = unforeseen
            if started:
                raise
        scope[ERROR_CODE] = error.code
        response = answer(error, method=scope["method"], path=scope["path"])
        await response(scope, receive, send_safely)

    async def _check(self, scope: Scope, exchange: Exchange) -> None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self._knows(_host_name(host)):
            raise HostRefusedError(host)
        if (origin := headers.get("origin")) is not None:
            own = [f"{scheme}://{host}".lower() for scheme in self._schemes]
            if origin.lower() not in own:
                raise OriginRefusedError(origin)
        if (scope["method"], scope["path"]) == SIGN_IN:
            require_own_page(scope)
        elif not (scope["path"] in OPEN_PATHS or is_open(scope)):
            caller = await identify(scope, self._access.authentication)
            exchange.caller = caller
            names = zip(_CALLER_FIELDS, (caller.actor, caller.session), strict=True)
            bind_contextvars(**{field: name for field, name in names if name})
            self._rates.take(caller.actor)
        _require_plain(scope, headers)

    def _headers(self, scope: Scope) -> Sequence[tuple[bytes, bytes]]:
        """Return the headers of an answer; a browser would keep HSTS for all ports of a host."""
        if self._schemes != ("https",):
            return _SENT
        name = _host_name(Headers(scope=scope).get("host", ""))
        return _SENT if name in _LOOPBACK_NAMES else _SENT_BY_TLS

    def _knows(self, name: str) -> bool:
        # Rebinding needs a name. An address in the Host header is the one that was dialled.
        return name in self._hosts or (self._any_address and _is_address(name))


def _require_plain(scope: Scope, headers: Headers) -> None:
    """Refuse headers and queries that a proxy and this service could read in different ways.

    Bytes of a query that are not UTF-8 would be replaced, so different names would become equal.
    """
    names = [name for name, _ in headers.raw]
    for name in ONCE:
        if (times := names.count(name.encode())) > 1:
            message = f"the header {name} was sent {times} times; send it once"
            raise RequestError(message, header=name)
    coding = headers.get("content-encoding", "identity")
    if coding.strip().lower() not in ("", "identity"):
        raise ContentEncodingError(coding)
    try:
        unquote_to_bytes(scope["query_string"]).decode()
    except UnicodeDecodeError as error:
        message = (
            "the query contains bytes that are not UTF-8; encode the text as UTF-8, then "
            "percent-encode it (%XX)"
        )
        raise RequestError(message) from error


def _host_name(header: str) -> str:
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].lower()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
