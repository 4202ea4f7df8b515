"""The cookie of a session.

A browser sends a cookie to every port of a host. The name has the port that was dialled, so that
two services on one host do not sign each other's users out.
"""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import Response
from starlette.types import Scope as AsgiScope


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
    """Add a session's cookie to an answer.

    Args:
        life: Seconds until the browser forgets it.
        secure: Send the cookie by TLS only, even if this request did not use TLS.
    """
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
