"""The body of a request that is a dataflow document: its media types, its text, its mistakes.

Guaranteed: every mistake that is raised inside `parsed` gets the line and the column of the text
(tests/controller/api/routes/test_dataflows.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fastapi import Request

from cbp.errors import DataflowInvalidError, Mistake
from controller.api.answers.request_errors import MediaTypeError
from controller.api.requests.body import read_body
from controller.registry import parse_document
from controller.registry.text_positions import add_positions

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
