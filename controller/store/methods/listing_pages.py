"""Pages of a listing, newest first, and the cursors between them.

A cursor holds the key of the last item of its page. So items that arrive while a client
reads pages neither repeat nor hide others. A cursor belongs to one kind of listing, and for example
to one dataflow. It is opaque: clients store it as text.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, TypeVar, cast

from sqlalchemy import Column, ColumnElement, Row, Select, Text, func, literal, type_coerce

from controller.store.database.connections import Database
from controller.store.errors import CursorInvalidError
from controller.store.records import Page

T = TypeVar("T")


def page(
    database: Database,
    query: Select[Any],
    key: Column[Any],
    build: Callable[[Row[Any]], T],
    cursor: str | None,
    limit: int,
    *,
    of: str = "",
) -> Page[T]:
    """Return the items after `cursor`, by descending `key`, at most `limit` (>= 1).

    `of` identifies the listing, for example by a dataflow. Raises `CursorInvalidError`.
    """
    limit = max(1, limit)
    if cursor is not None:
        query = query.where(key < _decode(key, of, cursor))
    with database.read_once() as connection:
        rows = connection.execute(query.order_by(key.desc()).limit(limit + 1)).all()
    more = _encode(key, of, rows[limit - 1]._mapping[key]) if len(rows) > limit else None
    return Page([build(row) for row in rows[:limit]], more)


def begins_with(column: Column[Any], name: str, value: str) -> ColumnElement[bool]:
    """Return the condition that a JSON object begins with this member.

    Errors and reasons are stored as our own JSON text, which begins with the code. So the
    condition compares the beginning of the text, which works equally on both databases.
    """
    first = json.dumps({name: value}, separators=(",", ":"))[:-1]
    text = type_coerce(column, Text)
    return func.substr(text, 1, len(first)) == literal(first, Text)


def between(
    column: Column[datetime], since: datetime | None, until: datetime | None
) -> Iterator[ColumnElement[bool]]:
    """Yield the conditions that a time is not before `since`, and is before `until`."""
    if since is not None:
        yield column >= since
    if until is not None:
        yield column < until


def _encode(key: Column[Any], of: str, value: str | int) -> str:
    data = json.dumps([key.table.name, of, value], separators=(",", ":"))
    return base64.urlsafe_b64encode(data.encode()).decode().rstrip("=")


def _decode(key: Column[Any], of: str, cursor: str) -> str | int:
    padded = cursor + "=" * (-len(cursor) % 4)
    try:
        listing, subject, value = json.loads(
            base64.b64decode(padded, altchars=b"-_", validate=True)
        )
    except (ValueError, TypeError, RecursionError) as exc:
        raise CursorInvalidError(cursor) from exc
    if (listing, subject) != (key.table.name, of) or not _can_be(key, value):
        raise CursorInvalidError(cursor)
    return cast("str | int", value)


def _can_be(key: Column[Any], value: Any) -> bool:
    """Return whether a cursor's value suits the key; cursors are untrusted input."""
    if type(value) is not key.type.python_type:
        return False
    return 0 <= value < 2**63 if isinstance(value, int) else value.isascii() and value.isalnum()
