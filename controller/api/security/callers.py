"""The caller of a request: by its bearer token, or by the cookie of a session.

A browser sends a cookie automatically, also with requests that another site's page caused, and to
every port of a host. `controller/access/README.md` says under which conditions a cookie counts.
"""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import Response
from starlette.types import Scope as AsgiScope

from cbp.errors import OperatingError
from controller.access.authentication import Authentication
from controller.access.errors import UnauthenticatedError
from controller.access.identity import Identity
from controller.api.answers.request_errors import OriginRefusedError, RequestUnmarkedError


def cookie_name(scope: AsgiScope) -> str:
    """Return the name of the cookie for the address of a request."""
    host = Headers(scope=scope).get("host", "")
    _, colon, port = host.rpartition(":")
    if not colon or not port.isdecimal():
        port = "443" if scope.get("scheme") == "https" else "80"
    return f"cbp_session_{port[:5]}"


def read_cookie(scope: AsgiScope) -> str:
    """Return the value of a request's session cookie; `""` if it has none."""
    header = Headers(scope=scope).get("cookie", "")
    return cookie_parser(header).get(cookie_name(scope), "") if header else ""


def set_cookie(
    response: Response, scope: AsgiScope, value: str, *, life: int, secure: bool
) -> None:
    """Set a session's cookie for `life` seconds; `secure`: over TLS only, even if this is not."""
    response.set_cookie(
        cookie_name(scope),
        value,
        max_age=life,
        path="/",
        secure=secure or scope.get("scheme") == "https",
        httponly=True,
        samesite="strict",
    )


def clear_cookie(response: Response, scope: AsgiScope) -> None:
    """Make the browser forget the cookie."""
    response.delete_cookie(cookie_name(scope), path="/", httponly=True, samesite="strict")


MARK_HEADER = "X-CBP-Request"
READS = frozenset({"GET", "HEAD", "OPTIONS"})


async def identify(
    scope: AsgiScope, authentication: Authentication, *, note_use: bool = True
) -> Identity:
    """Return the caller of a request; `note_use`: record it as a use of the credential.

    Raises `UnauthenticatedError`; with a cookie, also the errors of `require_own_page`.
    """
    headers = Headers(scope=scope)
    if (given := headers.get("authorization")) is not None:
        scheme, _, token = given.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            raise UnauthenticatedError("missing")
        if (known := authentication.recall_token(token)) is not None:
            return known
        return await run_in_threadpool(authentication.identify_token, token, note_use=note_use)
    cookie = read_cookie(scope)
    if not cookie:
        raise UnauthenticatedError("missing")
    require_own_page(scope)
    if (known := authentication.recall_session(cookie)) is not None:
        return known
    return await run_in_threadpool(authentication.identify_session, cookie, note_use=note_use)


async def is_still_valid(scope: AsgiScope, authentication: Authentication) -> bool:
    """Return whether the credential of a request that is being answered is still valid.

    This does not count as a use of a session; otherwise the session would never be idle. While
    the store does not answer, a credential counts as valid.
    """
    try:
        await identify(scope, authentication, note_use=False)
    except UnauthenticatedError:
        return False
    except OperatingError:
        return True
    return True


def require_own_page(scope: AsgiScope) -> None:
    """Refuse a request that a foreign page may have made a browser send.

    Raises `OriginRefusedError` if the browser reports another page, and `RequestUnmarkedError` if
    a request that changes something lacks the header.
    """
    headers = Headers(scope=scope)
    site = headers.get("sec-fetch-site", "none")
    if site not in ("same-origin", "none"):
        raise OriginRefusedError(headers.get("origin") or f"(missing; the page is {site})")
    if scope["method"] not in READS and headers.get(MARK_HEADER) != "1":
        raise RequestUnmarkedError(MARK_HEADER)
