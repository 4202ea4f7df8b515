"""Pages of a listing, newest first, and the cursors between them.

A cursor holds the key of the last item of its page. So items that arrive while a client turns
pages are neither repeated nor do they hide others. A cursor is bound to its kind of listing and
to what is listed, such as a dataflow, and opaque: clients keep it as text.
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
    of: str = "",
) -> Page[T]:
    """Return the items after `cursor`, by descending `key`, at most `limit` (>= 1).

    Args:
        of: The dataflow whose items are listed; empty: items of all.

    Raises:
        CursorInvalidError: If the cursor is not from this listing.
    """
    limit = max(1, limit)
    if cursor is not None:
        query = query.where(key < _decode(key, of, cursor))
    rows = connection.execute(query.order_by(key.desc()).limit(limit + 1)).all()
    more = _encode(key, of, rows[limit - 1]._mapping[key]) if len(rows) > limit else None
    return Page([build(row) for row in rows[:limit]], more)


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
