"""Callers of a service over fakes: tokens of every scope and state, and sessions."""

from __future__ import annotations

from typing import Any

import httpx

from controller.api.security.callers import MARK_HEADER
from tests.controller.api.app_transport import TOKEN
from tests.controller.api.fake_service import Service

__all__ = ["MARKED", "bearer", "cookie_of", "make_token", "sign_in"]

MARKED = {MARK_HEADER: "1"}


def bearer(secret: str) -> dict[str, str]:
    """Return the header that sends a token."""
    return {"Authorization": f"Bearer {secret}"}


def make_token(service: Service, name: str, scope: str = "viewer", **more: Any) -> str:
    """Make a token by REST, as the admin; return its secret."""
    body = {"name": name, "scope": scope, **more}
    with service.client() as client:
        answer = client.post("/api/v1/tokens", json=body)
    assert answer.status_code == 201, answer.text
    secret: str = answer.json()["secret"]
    return secret


def sign_in(service: Service, *, scope: str = "admin", token: str = TOKEN) -> httpx.Response:
    """Sign a browser in by a link of this scope; return the answer, which has the cookie."""
    with service.client(token=token) as client:
        made = client.post("/api/v1/session/codes", params={"scope": scope})
    assert made.status_code == 201, made.text
    with service.client(token=None) as client:
        body = {"code": made.json()["code"]}
        answer = client.post("/api/v1/session", json=body, headers=MARKED)
    assert answer.status_code == 201, answer.text
    return answer


def cookie_of(answer: httpx.Response) -> dict[str, str]:
    """Return the header with which a browser sends the cookie that an answer set."""
    return {"Cookie": answer.headers["set-cookie"].partition(";")[0]}
