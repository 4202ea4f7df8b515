"""Request bodies, read with a limit; nothing else in the API touches a body.

A body at the limit is taken, one byte more is refused, whether or not the client
announced its length. An upload is a stream: it is never held in memory, and the
client is slowed down to the speed of the disk.
"""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from typing import Any

import anyio.from_thread
from fastapi import Request
from starlette.requests import ClientDisconnect

from controller.api.problems import BodyTooLargeError, RequestError

__all__ = ["BodyStream", "read_body"]


async def read_body(request: Request, *, bytes_max: int) -> bytes:
    """Return a whole body.

    Raises:
        BodyTooLargeError: If it is above the limit.
    """
    return b"".join([chunk async for chunk in _chunks(request, bytes_max)])


class BodyStream(io.RawIOBase):
    """A body as a binary stream, for one worker thread of the running event loop.

    Raises `BodyTooLargeError` from `read` once the limit is passed, and
    `RequestError` when the client goes away: the reader must then keep nothing.
    """

    def __init__(self, request: Request, *, bytes_max: int) -> None:
        self._chunks = _chunks(request, bytes_max)
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


async def _chunks(request: Request, bytes_max: int) -> AsyncIterator[bytes]:
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > bytes_max:
        raise BodyTooLargeError(bytes_max)
    total = 0
    try:
        async for chunk in request.stream():
            total += len(chunk)
            if total > bytes_max:
                raise BodyTooLargeError(bytes_max)
            yield chunk
    except ClientDisconnect as error:
        message = "the client went away before the body was complete"
        raise RequestError(message) from error
