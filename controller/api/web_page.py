"""The page of the service: the files that `controller/ui` was built into, under `/ui/`.

The files contain no data, so they need no token; the page gets its data over REST. An address
without a file gets `index.html`, and the page chooses the screen. The name of a file contains a
digest of its content, so it is cached forever. `index.html` is never cached, and has a new nonce in
each response, without which the policy would block style elements.
"""

from __future__ import annotations

import mimetypes
import os
import re
import secrets
from html import escape
from pathlib import Path

from fastapi import APIRouter, Request, Response
from fastapi.responses import FileResponse, HTMLResponse
from starlette.datastructures import Headers
from starlette.types import Scope

import controller
from cbp.errors import NotFoundError

BUNDLE = Path(controller.__file__).parent / "ui" / "bundle"
"""The folder in which the build puts the page; absent before a build."""

_PLACE = "/ui"
_NONCE_MARK = "%STYLE_NONCE%"
_REASON = "not-built.txt"
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*")
_ENCODINGS = (("br", ".br"), ("gzip", ".gz"))
_POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self' 'nonce-{nonce}'",
        "img-src 'self' data: blob:",
        "font-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    ]
)
_ABSENT = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>CBP</title></head>
<body>
<h1>The page is not built</h1>
<p>The service works without it: <code>cbp --help</code> lists every command, and
<a href="/api/v1/openapi.json">/api/v1/openapi.json</a> every route.</p>
<p>{reason}</p>
<p>To build it, call <code>python controller/ui/build_page.py</code> in the folder of the sources,
or install the package again without <code>CBP_UI=off</code>. Then load this page again.</p>
</body>
</html>
"""


def prefers_page(headers: Headers) -> bool:
    """Return whether a client is a browser, and not a program."""
    return "text/html" in headers.get("accept", "")


def is_open(scope: Scope) -> bool:
    """Return whether a request is for a file of the page, which needs no token."""
    if scope["method"] not in ("GET", "HEAD"):
        return False
    path = str(scope["path"])
    if path == "/":
        return prefers_page(Headers(scope=scope))
    return path == _PLACE or path.startswith(f"{_PLACE}/")


def page_router(bundle: Path = BUNDLE) -> APIRouter:
    """Return the routes of the page."""
    routes = APIRouter(include_in_schema=False)

    @routes.api_route(_PLACE, methods=["GET", "HEAD"])
    @routes.api_route(_PLACE + "/{name:path}", methods=["GET", "HEAD"])
    def show(request: Request, name: str = "") -> Response:
        """Return a file of the page, or the page itself."""
        path = bundle / name if _NAME.fullmatch(name) else None
        if path is not None and name.startswith("assets/"):
            if not os.path.isfile(path):  # also false for a name that is too long
                raise NotFoundError(kind="file of the page", name=name)
            return _asset(path, request.headers, "public, max-age=31536000, immutable")
        if path is not None and path.suffix == ".svg" and os.path.isfile(path):
            return _asset(path, request.headers, "no-cache")
        return _index(bundle)

    return routes


def _asset(path: Path, headers: Headers, caching: str) -> Response:
    """Return a file; compressed if the client accepts that and the build made such a file."""
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    answer = {"Cache-Control": caching, "Vary": "Accept-Encoding"}
    codings = headers.get("accept-encoding", "").lower().split(",")
    accepted = {part.partition(";")[0].strip() for part in codings}
    for coding, suffix in _ENCODINGS:
        packed = path.with_name(path.name + suffix)
        if coding in accepted and packed.is_file():
            answer["Content-Encoding"] = coding
            return FileResponse(packed, media_type=kind, headers=answer)
    return FileResponse(path, media_type=kind, headers=answer)


def _index(bundle: Path) -> HTMLResponse:
    """Return the page with a new nonce; if it was not built, a page that says how to build it."""
    nonce = secrets.token_urlsafe(16)
    policy = {"Content-Security-Policy": _POLICY.format(nonce=nonce)}
    try:
        text = (bundle / "index.html").read_text(encoding="utf-8")
    except FileNotFoundError:
        return HTMLResponse(_ABSENT.format(reason=_reason(bundle)), 503, headers=policy)
    return HTMLResponse(text.replace(_NONCE_MARK, nonce), headers=policy)


def _reason(bundle: Path) -> str:
    """Return why the build did not make the page; `""` if it did not say so."""
    try:
        return escape((bundle / _REASON).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return ""
