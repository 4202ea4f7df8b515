"""Request bodies: their bounds in size and time, and the functions that read them.

No other part of the API reads a body. `Bounds` apply before any route, so every new route has them.
An upload is a stream: it is never held in memory, and the client is slowed down to the speed of the
disk.

Some bodies are dataflow documents. Every mistake that is raised inside `DocumentBody.parsed` gets
its line and column in the text (tests/controller/api/routes/test_dataflows.py).
"""

from __future__ import annotations

import asyncio
import io
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeVar, cast

import anyio.from_thread
import anyio.to_thread
from fastapi import Request
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope

from cbp.errors import DataflowInvalidError, Mistake
from controller.api.answers.request_errors import (
    BodyTooLargeError,
    ClientTooSlowError,
    MediaTypeError,
    RequestError,
)
from controller.registry import parse_document
from controller.registry.text_positions import add_positions

T = TypeVar("T")

READ_BYTES = 1 << 20


async def receive_file(
    request: Request, limiter: anyio.CapacityLimiter, take: Callable[[BinaryIO], T]
) -> T:
    """Return what `take` returns for an upload's body; raises errors of `take` and of the body.

    `take` is called in a thread for uploads, since slow clients would otherwise block all routes.
    """
    stream = BodyStream(request)

    def act() -> T:
        with io.BufferedReader(stream, READ_BYTES) as reader:
            return take(cast(BinaryIO, reader))

    return await anyio.to_thread.run_sync(act, limiter=limiter)


async def read_body(request: Request) -> bytes:
    """Return a complete body; raises `RequestError` if the client disconnects."""
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
        """Return `True`."""
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


_JSON_TYPES = ("application/json",)
_YAML_TYPES = ("application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml")


@dataclass(frozen=True, slots=True)
class Document:
    """A document as it was sent.

    Attributes:
        duplicates: Paths of names that occur twice in the text.
        text: The document's text, to which the lines and columns of mistakes refer.
    """

    values: Mapping[str, Any]
    duplicates: tuple[str, ...]
    text: str
    content_type: str


@dataclass(frozen=True, slots=True)
class DocumentBody:
    """The body of a request whose media type is JSON or YAML; empty if there was none."""

    body: bytes
    content_type: str

    @contextmanager
    def parsed(self) -> Iterator[Document]:
        """Read the document; mistakes raised in the block get their line and column."""
        text = _text(self.body)
        try:
            values, duplicates = parse_document(text, self.content_type)
            yield Document(values, duplicates, text, self.content_type)
        except DataflowInvalidError as error:
            add_positions(error, text, self.content_type)
            raise


async def read_document_body(request: Request) -> DocumentBody:
    """Return the body of a request. Raises `MediaTypeError`."""
    content_type = request.headers.get("content-type", "")
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type not in (*_JSON_TYPES, *_YAML_TYPES):
        raise MediaTypeError(media_type, (*_JSON_TYPES, *_YAML_TYPES))
    return DocumentBody(await read_body(request), content_type)


def require_name(document: Document, name: str, what: str) -> None:
    """Refuse a document with another name; `what` is done to the dataflow, such as `changed`."""
    if (given := document.values.get("name")) != name:
        message = f"expected {name!r}, the name of the dataflow that is {what}; got {given!r}"
        raise DataflowInvalidError(name, [Mistake("name_differs", "name", message)])


def _text(body: bytes) -> str:
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = body[: error.start].decode()
        message = f"is not UTF-8: invalid byte at position {error.start}"
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        mistake = Mistake("document_syntax", "document", message, line=line, column=column)
        raise DataflowInvalidError(dataflow="", mistakes=[mistake]) from error


BYTES_PER_SECOND_MIN = 1024
"""A client that sends fewer bytes a second is treated like one that sends nothing."""

_UPLOADS = re.compile(
    r"/api/v1/dataflows/[^/]+/sources/[^/]+/"
    r"(files|replacements(/preview)?|quarantine/[^/]+/readmit)/?\Z"
)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of request bodies: their size, and how long a client may send nothing, or very little.

    A route for uploads is recognised by its path and has its own bound. A body of exactly the limit
    is accepted; one byte more is refused, whether or not the client announced its length. The
    request of a client that sends nothing for a while, or very little, is ended, so that it does
    not hold a thread forever. The time that the route takes between two pieces does not count.

    Guaranteed: tests/controller/api/requests/test_body.py, in simulated seconds.
    """

    body_bytes_max: int
    upload_bytes_max: int
    idle_seconds: float

    def bounded(self, scope: Scope, receive: Receive) -> Receive:
        """Return a `receive` function with bounds; raises if the client announces a larger body."""
        upload = scope["method"] == "POST" and _UPLOADS.match(scope["path"])
        most = self.upload_bytes_max if upload else self.body_bytes_max
        setting = "CBP_UPLOAD_BYTES_MAX" if upload else "CBP_BODY_BYTES_MAX"
        announced = Headers(scope=scope).get("content-length", "")
        if announced.isdecimal() and len(announced) <= 20 and int(announced) > most:
            raise BodyTooLargeError(most, setting=setting)
        total, waited, complete = 0, 0.0, False

        async def read() -> Message:
            nonlocal total, waited, complete
            if complete:
                return await receive()
            clock = asyncio.get_running_loop().time
            began = clock()
            try:
                message = await asyncio.wait_for(receive(), self.idle_seconds)
            except TimeoutError as error:
                raise _too_slow(self.idle_seconds) from error
            waited += clock() - began
            total += len(message.get("body", b""))
            complete = not message.get("more_body", False)
            if total > most:
                raise BodyTooLargeError(most, setting=setting)
            if not complete and waited > self.idle_seconds + total / BYTES_PER_SECOND_MIN:
                raise _too_slow(self.idle_seconds)
            return message

        return read


def _too_slow(idle_seconds: float) -> ClientTooSlowError:
    return ClientTooSlowError(idle_seconds, bytes_per_second_min=BYTES_PER_SECOND_MIN)
