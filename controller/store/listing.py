"""Pages of a listing, newest first, and the cursors between them.

A cursor holds the key of the last item of its page. So items that arrive while a client turns
pages are neither repeated nor do they hide others. A cursor is bound to its kind of listing, and
opaque: clients keep it as text.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any, TypeVar, cast

from sqlalchemy import Column, Connection, Row, Select

from controller.store.base import Page
from controller.store.errors import CursorInvalidError

__all__ = ["page"]

T = TypeVar("T")


def page(
    connection: Connection,
    query: Select[Any],
    *,
    key: Column[Any],
    cursor: str | None,
    limit: int,
    build: Callable[[Row[Any]], T],
) -> Page[T]:
    """Return the items after `cursor`, by descending `key`, at most `limit` (>= 1).

    Raises:
        CursorInvalidError: If the cursor is not from this kind of listing.
    """
    limit = max(1, limit)
    if cursor is not None:
        query = query.where(key < _decode(key, cursor))
    rows = connection.execute(query.order_by(key.desc()).limit(limit + 1)).all()
    more = _encode(key, rows[limit - 1]._mapping[key]) if len(rows) > limit else None
    return Page([build(row) for row in rows[:limit]], more)


def _encode(key: Column[Any], value: str | int) -> str:
    data = json.dumps([key.table.name, value], separators=(",", ":"))
    return base64.urlsafe_b64encode(data.encode()).decode().rstrip("=")


def _decode(key: Column[Any], cursor: str) -> str | int:
    padded = cursor + "=" * (-len(cursor) % 4)
    try:
        listing, value = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (ValueError, TypeError, RecursionError) as exc:
        raise CursorInvalidError(cursor) from exc
    if listing != key.table.name or not _can_be(key, value):
        raise CursorInvalidError(cursor)
    return cast("str | int", value)


def _can_be(key: Column[Any], value: Any) -> bool:
    """Return whether a cursor's value suits the key; cursors are untrusted input."""
    if type(value) is not key.type.python_type:
        return False
    return 0 <= value < 2**63 if isinstance(value, int) else value.isascii() and value.isalnum()
