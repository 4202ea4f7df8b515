"""Reads request bodies with limits; no other part of the API reads a body.

A body of exactly the limit is accepted; one byte more is refused, whether or not the client
announced its length. An upload is a stream: it is never held in memory, and the client is slowed
down to the speed of the disk. If a client sends nothing for a while, or only trickles, its request
is ended, so that it holds no thread for ever.
"""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import AsyncIterator
from typing import Any

import anyio.from_thread
from fastapi import Request
from starlette.requests import ClientDisconnect

from controller.api.answers.request_errors import BodyTooLargeError, RequestError
from controller.api.requests.bounds import (
    BODY_SETTING,
    BYTES_PER_SECOND_MIN,
    UPLOAD_SETTING,
    client_too_slow,
)

__all__ = ["BodyStream", "read_body"]


async def read_body(request: Request, *, bytes_max: int, idle_seconds: float) -> bytes:
    """Return a whole body.

    Raises:
        BodyTooLargeError: If it is above the limit.
        ClientTooSlowError: If nothing came for `idle_seconds`, or it only trickled.
        RequestError: If the client went away.
    """
    chunks = _chunks(request, bytes_max, idle_seconds, BODY_SETTING)
    return b"".join([chunk async for chunk in chunks])


class BodyStream(io.RawIOBase):
    """An upload's body as a binary stream, for one worker thread of the running event loop.

    `read` raises `BodyTooLargeError` once the limit is passed, `ClientTooSlowError` when nothing
    came for `idle_seconds`, and `RequestError` when the client goes away. After an error the reader
    must keep nothing.
    """

    def __init__(self, request: Request, *, bytes_max: int, idle_seconds: float) -> None:
        self._chunks = _chunks(request, bytes_max, idle_seconds, UPLOAD_SETTING)
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        """Return True: the stream is readable."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill as much of `buffer` as has arrived; 0 at the end."""
        while not self._rest:
            chunk = anyio.from_thread.run(anext, self._chunks, None)
            if chunk is None:
                return 0
            self._rest = memoryview(chunk)
        target = memoryview(buffer).cast("B")
        count = min(len(target), len(self._rest))
        target[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


async def _chunks(
    request: Request, bytes_max: int, idle_seconds: float, setting: str
) -> AsyncIterator[bytes]:
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > bytes_max:
        raise BodyTooLargeError(bytes_max, setting=setting)
    total, waited, stream = 0, 0.0, request.stream()
    try:
        while True:
            # Not around the `yield`: the reader's own time does not count as the client's.
            began = time.monotonic()
            chunk = await asyncio.wait_for(anext(stream), idle_seconds)
            waited += time.monotonic() - began
            if not chunk:
                return
            total += len(chunk)
            if total > bytes_max:
                raise BodyTooLargeError(bytes_max, setting=setting)
            if waited > idle_seconds + total / BYTES_PER_SECOND_MIN:
                raise TimeoutError
            yield chunk
    except TimeoutError as error:
        raise client_too_slow(idle_seconds) from error
    except ClientDisconnect as error:
        message = "the connection was closed before the body was complete"
        raise RequestError(message) from error
