"""Lets a synchronous client talk to an application in this process, by a token that it knows."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import httpx
from fastapi import FastAPI

__all__ = ["TOKEN", "AppTransport"]

TOKEN = "the-token-of-the-tests"


class AppTransport(httpx.BaseTransport):
    """Lets a synchronous client call an ASGI application in this process."""

    def __init__(self, app: FastAPI) -> None:
        self._inner = httpx.ASGITransport(app, raise_app_exceptions=False)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return anyio.run(self._handle, request)

    async def _handle(self, request: httpx.Request) -> httpx.Response:
        body = request.read()
        # A body whose length the client did not announce must arrive unannounced here too.
        announced = "content-length" in request.headers
        content = body if announced or not body else _in_two(body)
        sent = httpx.Request(
            request.method, request.url, headers=request.headers.raw, content=content
        )
        response = await self._inner.handle_async_request(sent)
        answer = await response.aread()
        return httpx.Response(response.status_code, headers=response.headers, content=answer)


async def _in_two(body: bytes) -> AsyncIterator[bytes]:
    yield body[:-1]
    yield body[-1:]
