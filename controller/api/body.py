"""Request bodies, read with a limit; nothing else in the API touches a body.

A body at the limit is taken, one byte more is refused, whether or not the client
announced its length. An upload is a stream: it is never held in memory, and the
client is slowed down to the speed of the disk. A client that sends nothing for a while,
or trickles, is given up, so that nobody holds a thread for ever.
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

from controller.api.problems import BodyTooLargeError, ClientTooSlowError, RequestError

__all__ = ["BodyStream", "read_body"]

BYTES_PER_SECOND_MIN = 1024
"""A client that trickles below this rate is given up like one that sends nothing."""


async def read_body(request: Request, *, bytes_max: int, idle_seconds: float) -> bytes:
    """Return a whole body.

    Raises:
        BodyTooLargeError: If it is above the limit.
        ClientTooSlowError: If nothing came for so long.
        RequestError: If the client went away.
    """
    return b"".join([chunk async for chunk in _chunks(request, bytes_max, idle_seconds)])


class BodyStream(io.RawIOBase):
    """A body as a binary stream, for one worker thread of the running event loop.

    Raises `BodyTooLargeError` from `read` once the limit is passed, `ClientTooSlowError`
    when nothing came for `idle_seconds`, and `RequestError` when the client goes away: the
    reader must then keep nothing.
    """

    def __init__(self, request: Request, *, bytes_max: int, idle_seconds: float) -> None:
        self._chunks = _chunks(request, bytes_max, idle_seconds)
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        """Say that this stream is for reading."""
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


async def _chunks(request: Request, bytes_max: int, idle_seconds: float) -> AsyncIterator[bytes]:
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > bytes_max:
        raise BodyTooLargeError(bytes_max)
    total, waited, stream = 0, 0.0, request.stream()
    try:
        while True:
            # Not around the `yield`: what the reader does with a piece is not the client's time.
            began = time.monotonic()
            chunk = await asyncio.wait_for(anext(stream), idle_seconds)
            waited += time.monotonic() - began
            if not chunk:
                return
            total += len(chunk)
            if total > bytes_max:
                raise BodyTooLargeError(bytes_max)
            if waited > idle_seconds + total / BYTES_PER_SECOND_MIN:
                raise TimeoutError
            yield chunk
    except TimeoutError as error:
        raise ClientTooSlowError(idle_seconds) from error
    except ClientDisconnect as error:
        message = "the client went away before the body was complete"
        raise RequestError(message) from error
