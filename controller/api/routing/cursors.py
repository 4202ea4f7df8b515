"""Cursors of lists: each is bound to its list and to the list's subject.

Each list has its own text for the place where the next page begins, such as `count/7`. These texts
look alike, so a client that mixes up cursors would get an arbitrary page. `ListCursors` puts a
digest before the text: of the route, the names in its path, and whatever else selects the items of
the list. A cursor of another list, or of an earlier version, is refused.

The digest has no secret, so clients can forge cursors. Each list therefore checks the text, too.

Absent on purpose: positions in the stream of events, which are the same in its list, in the stream
and in the header `Last-Event-ID` (`controller.store.records.EventCursor`).
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, TypeVar

from fastapi import Depends, Request

from controller.api.answers.schemas import Page, PageQuery
from controller.api.routing.dependencies import SettingsDep
from controller.api.security.exchange import exchange_of
from controller.settings import Settings
from controller.store.errors import CursorInvalidError

S = TypeVar("S")
T = TypeVar("T")

CURSOR_MAX = 1000
"""Maximum number of characters of a cursor."""

_FIRST = "c"  # so that no cursor looks like an option of a command
_DIGEST_BYTES = 8
_NUMBER = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class ListCursors:
    """Opens and seals the cursors of one list, and knows how large its pages may be.

    Attributes:
        subject: The route, the names in its path as (parameter, value), and what `about` added.
    """

    subject: tuple[str | tuple[str, str], ...]
    settings: Settings = field(default_factory=Settings.model_construct, repr=False)

    def about(self, *parts: str) -> ListCursors:
        """Return the cursors of a list that these query values select."""
        return replace(self, subject=(*self.subject, *parts))

    def of_list(self, action: str) -> ListCursors:
        """Return the cursors of the route `action`, whose path has the same names."""
        return replace(self, subject=(action, *self.subject[1:]))

    def size(self, query: PageQuery) -> int:
        """Return how many items a page may have."""
        return page_size(self.settings, query)

    def size_or_all(self, query: PageQuery) -> int | None:
        """Return how many items a page of a short list may have; `None` (all) without a limit."""
        return None if query.limit is None else page_size(self.settings, query)

    def seal(self, place: str | None) -> str | None:
        """Return the cursor for a place in this list; `None` at its end."""
        if place is None:
            return None
        content = base64.urlsafe_b64encode(self._digest() + place.encode())
        return _FIRST + content.decode().rstrip("=")

    def open(self, cursor: str | None) -> str | None:
        """Return the place that a client's cursor names, or `None`; raises `CursorInvalidError`."""
        if cursor is None:
            return None
        sealed = cursor.removeprefix(_FIRST)
        padded = sealed + "=" * (-len(sealed) % 4)
        try:
            content = base64.b64decode(padded, altchars=b"-_", validate=True)
            place = content[_DIGEST_BYTES:].decode()
        except ValueError as exc:
            raise CursorInvalidError(cursor) from exc
        if not cursor.startswith(_FIRST) or content[:_DIGEST_BYTES] != self._digest():
            raise CursorInvalidError(cursor)
        return place

    def number(self, cursor: str | None) -> int | None:
        """Return the number that is the place of a cursor; raises as `open`."""
        numbers = self._numbers(cursor, 1)
        return None if numbers is None else numbers[0]

    def pair(self, cursor: str | None) -> tuple[int, int] | None:
        """Return the two numbers of a place such as `3/17`; raises as `open`."""
        numbers = self._numbers(cursor, 2)
        return None if numbers is None else (numbers[0], numbers[1])

    def named(self, cursor: str | None) -> tuple[str, int] | None:
        """Return the name and the number of a place such as `count/17`; raises as `open`."""
        if (place := self.open(cursor)) is None:
            return None
        name, _, number = place.rpartition("/")
        if not (name and _NUMBER.fullmatch(number)):
            raise CursorInvalidError(place)
        return name, int(number)

    def first_of(
        self,
        rest: Sequence[S],
        query: PageQuery,
        place_of: Callable[[S], str],
        show: Callable[[S], T],
    ) -> Page[T]:
        """Return a page of the first items; `rest` begins after the query's cursor."""
        shown, more = page_behind(rest, place_of, place=None, size=self.size(query))
        return Page(items=[show(one) for one in shown], cursor=self.seal(more))

    def short_list(
        self,
        items: Sequence[S],
        query: PageQuery,
        place_of: Callable[[S], str],
        show: Callable[[S], T],
    ) -> Page[T]:
        """Return a page of a list that is complete without a limit; see `page_behind`."""
        place, size = self.open(query.cursor), self.size_or_all(query)
        shown, more = page_behind(items, place_of, place=place, size=size)
        return Page(items=[show(one) for one in shown], cursor=self.seal(more))

    def _numbers(self, cursor: str | None, count: int) -> list[int] | None:
        if (place := self.open(cursor)) is None:
            return None
        parts = place.split("/")
        if len(parts) != count or not all(map(_NUMBER.fullmatch, parts)):
            raise CursorInvalidError(place)
        return [int(part) for part in parts]

    def _digest(self) -> bytes:
        text = json.dumps(self.subject, separators=(",", ":"))
        return hashlib.sha256(text.encode()).digest()[:_DIGEST_BYTES]


def page_size(settings: Settings, query: PageQuery) -> int:
    """Return how many items a page may have: as asked for, up to the operator's maximum."""
    if query.limit is None:
        return settings.page_size_default
    return min(query.limit, settings.page_size_max)


def page_behind(
    items: Sequence[T],
    place_of: Callable[[T], str],
    *,
    place: str | None,
    size: int | None,
    holds: Callable[[T], bool] | None = None,
) -> tuple[Sequence[T], str | None]:
    """Return a page, and the place after it, of a list that can lose only its last items.

    Args:
        place: The place of the last item before the page; `None` for the first page. If that
            item was lost, so were all items after it, and the page is empty.
        holds: Whether an item is wanted, which may change from page to page; `None`: all are.
    """
    if place is not None:
        before = next((n for n, one in enumerate(items) if place_of(one) == place), len(items))
        items = items[before + 1 :]
    if holds is not None:
        items = [one for one in items if holds(one)]
    if size is None or len(items) <= size:
        return items, None
    return items[:size], place_of(items[size - 1])


async def _cursors(request: Request, settings: SettingsDep) -> ListCursors:
    names = ((name, str(value)) for name, value in sorted(request.path_params.items()))
    return ListCursors((exchange_of(request.scope).action, *names), settings)


CursorsDep = Annotated[ListCursors, Depends(_cursors)]
