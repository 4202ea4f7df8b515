"""Finds what an author's code fails on, by calling it for smaller and smaller parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from cbp.errors import AuthorCodeError

__all__ = ["find_failing"]

_T = TypeVar("_T")


def find_failing(
    items: Sequence[_T], attempt: Callable[[Sequence[_T]], AuthorCodeError | None], *, most: int
) -> list[tuple[_T, AuthorCodeError]]:
    """Return the items that fail, each with its error, in order.

    Args:
        items: The items, of which some are known to fail.
        attempt: Calls the author's code for some of them; returns its error.
        most: Once more than so many are found, no others are looked for.
    """
    found: list[tuple[_T, AuthorCodeError]] = []
    parts = [items]
    while parts and len(found) <= most:
        part = parts.pop()
        if not part or (error := attempt(part)) is None:
            continue
        if len(part) == 1:
            found.append((part[0], error))
        else:
            half = len(part) // 2
            parts += [part[half:], part[:half]]
    return found
