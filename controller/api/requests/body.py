"""Reads request bodies; no other part of the API does so.

`bounds` has limited each of them before any route, in size and in time. An upload is a stream: it
is never held in memory, and the client is slowed down to the speed of the disk.
"""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Callable
from typing import Any, BinaryIO, TypeVar, cast

import anyio.from_thread
import anyio.to_thread
from fastapi import Request
from starlette.requests import ClientDisconnect

from controller.api.answers.request_errors import RequestError

T = TypeVar("T")

READ_BYTES = 1 << 20


async def receive_file(
    request: Request, limiter: anyio.CapacityLimiter, take: Callable[[BinaryIO], T]
) -> T:
    """Return the result of a function for an upload's body.

    The function is called in a thread for uploads, since slow clients would otherwise block
    every route. Raises its errors, and those of reading the body (`BodyStream`).
    """
    stream = BodyStream(request)

    def act() -> T:
        with io.BufferedReader(stream, READ_BYTES) as reader:
            return take(cast(BinaryIO, reader))

    return await anyio.to_thread.run_sync(act, limiter=limiter)


async def read_body(request: Request) -> bytes:
    """Return a whole body; raises `RequestError` if the client disconnects."""
    return b"".join([chunk async for chunk in _chunks(request)])


class BodyStream(io.RawIOBase):
    """An upload's body as a binary stream, for one worker thread of the running event loop.

    `read` raises the errors of the bounds, and `RequestError` if the client disconnects. After
    an error the reader must discard everything.
    """

    def __init__(self, request: Request) -> None:
        self._chunks = _chunks(request)
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


async def _chunks(request: Request) -> AsyncIterator[bytes]:
    try:
        async for chunk in request.stream():
            yield chunk
    except ClientDisconnect as error:
        message = "the connection was closed before the body was complete"
        raise RequestError(message) from error
