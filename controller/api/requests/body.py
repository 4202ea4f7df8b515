"""Reads request bodies; no other part of the API does so.

`bounds` has limited each of them before any route, in size and in time. An upload is a stream: it
is never held in memory, and the client is slowed down to the speed of the disk.

A dataflow document is the body of some of them: its media types, its text, its mistakes. Every
mistake that is raised inside `parsed` gets the line and the column of the text
(tests/controller/api/routes/test_dataflows.py).
"""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeVar, cast

import anyio.from_thread
import anyio.to_thread
from fastapi import Request
from starlette.requests import ClientDisconnect

from cbp.errors import DataflowInvalidError, Mistake
from controller.api.answers.request_errors import MediaTypeError, RequestError
from controller.registry import parse_document
from controller.registry.text_positions import add_positions

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


_JSON_TYPES = ("application/json",)
_YAML_TYPES = ("application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml")


@dataclass(frozen=True, slots=True)
class Document:
    """A document as it was sent.

    Attributes:
        values: JSON values.
        duplicates: Paths of names that occur twice in the text.
        text: The text in which lines and columns of mistakes are counted.
    """

    values: Mapping[str, Any]
    duplicates: tuple[str, ...]
    text: str
    content_type: str


async def read_document_body(request: Request) -> bytes:
    """Return the body of a request whose media type is JSON or YAML. Raises `MediaTypeError`."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in (*_JSON_TYPES, *_YAML_TYPES):
        raise MediaTypeError(media_type, (*_JSON_TYPES, *_YAML_TYPES))
    return await read_body(request)


@contextmanager
def parsed(body: bytes, content_type: str) -> Iterator[Document]:
    """Read a document; mistakes raised in the block get their line and column.

    Raises `DataflowInvalidError`.
    """
    text = _text(body)
    try:
        values, duplicates = parse_document(text, content_type)
        yield Document(values, duplicates, text, content_type)
    except DataflowInvalidError as error:
        add_positions(error, text, content_type)
        raise


def _text(body: bytes) -> str:
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = body[: error.start].decode()
        message = f"is not UTF-8: invalid byte at position {error.start}"
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        mistake = Mistake("document_syntax", "document", message, line=line, column=column)
        raise DataflowInvalidError(dataflow="", mistakes=[mistake]) from error
