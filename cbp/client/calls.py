"""Common parts of the client's methods: lists page by page, values, moments."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from cbp.client.answers import answer_of
from cbp.client.pages import Pages, Rows
from cbp.client.rest import NULL_PARAMETER, RestClient

T = TypeVar("T")

When = datetime | str | None
"""A time, or its text in ISO 8601; without a zone it is in UTC."""

Query = list[tuple[str, str]]

Document = Mapping[str, Any] | str | Path | tuple[bytes, str]
"""A dataflow's document: its values, its YAML text, its file (`.json`, else YAML), or its bytes
with their media type."""


class Calls:
    """Base of the groups of client methods; `rest` sends any request, by its path."""

    rest: RestClient

    def _got(self, kind: type[T], *path: str, **query: Any) -> T:
        """Return the answer to a GET; parameters with the value `None` are left out."""
        return answer_of(kind, self.rest.get(*path, **query))

    def _posted(self, kind: type[T], *path: str, **more: Any) -> T:
        """Return the answer to a POST; `more` as for `RestClient.post`."""
        return answer_of(kind, self.rest.post(*path, **more))

    def list_of(self, kind: type[T], *path: str, **query: Any) -> Pages[T]:
        """Return the list at a path; parameters with the value `None` are left out."""

        def read(cursor: str | None) -> tuple[list[T], str | None]:
            page = self.rest.get(*path, **query, cursor=cursor)
            return [answer_of(kind, one) for one in page["items"]], page["cursor"]

        return Pages(read)

    def rows(self, *path: str, query: Query, cursor: str = "cursor") -> Rows:
        """Return the records at a path; `cursor` is the name of the list's cursor parameter."""

        def read(place: str | None) -> tuple[list[dict[str, Any]], str | None]:
            more = [] if place is None else [(cursor, place)]
            page = self.rest.get_pairs(*path, query=query + more)
            return page["items"], page["cursor"]

        return Rows(read)


def instant(when: When) -> str | None:
    """Return a time in the form that the service accepts."""
    if isinstance(when, datetime):
        return (when if when.tzinfo else when.replace(tzinfo=UTC)).isoformat()
    return when


def times(since: When, until: When) -> dict[str, str | None]:
    """Return the parameters of a list that choose a range of time."""
    return {"since": instant(since), "until": instant(until)}


def content_of_document(document: Document) -> tuple[bytes, str]:
    """Return the text of a document, and its media type; a file is read."""
    if isinstance(document, tuple):
        return document
    if isinstance(document, Mapping):
        return json.dumps(document).encode(), "application/json"
    if isinstance(document, Path):
        kind = "json" if document.suffix.lower() == ".json" else "yaml"
        return document.read_bytes(), f"application/{kind}"
    return document.encode(), "application/yaml"


def body_of_document(document: Document) -> dict[str, Any]:
    """Return the `content` of a request that sends a document, and its `content_type`."""
    content, kind = content_of_document(document)
    return {"content": content, "content_type": kind}


def key_parameters(key: Mapping[str, Any]) -> Query:
    """Return the query parameters for a key, which is given as Python values."""
    return [
        (NULL_PARAMETER, column) if value is None else (column, _text(value))
        for column, value in key.items()
    ]


_TEXTS: dict[type, Callable[[Any], str]] = {
    bool: lambda value: str(value).lower(),
    bytes: lambda value: base64.b64encode(value).decode(),
    datetime: lambda value: value.isoformat(),
}


def _text(value: Any) -> str:
    return _TEXTS.get(type(value), str)(value)


def stage_and_name(table: str) -> tuple[str, str]:
    """Return the two parts of `stage.name`; raise `ValueError` for another form."""
    stage, dot, name = table.partition(".")
    if not (dot and stage and name):
        message = f"expected 'stage.name', such as 'count.counts'; got {table!r}"
        raise ValueError(message)
    return stage, name
