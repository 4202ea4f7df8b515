"""Pages of lists in memory, as the store makes pages of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from controller.store.base import Page
from controller.store.errors import CursorInvalidError

__all__ = ["page_of"]

T = TypeVar("T")


def page_of(items: Sequence[T], cursor: str | None, limit: int) -> Page[T]:
    """Return the page behind a cursor, which is a number of items; raises `CursorInvalidError`."""
    if cursor is not None and not cursor.isdecimal():
        raise CursorInvalidError(cursor)
    begin = int(cursor or 0)
    end = begin + limit
    return Page(items[begin:end], str(end) if end < len(items) else None)
