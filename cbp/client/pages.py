"""Lists of the service, which it answers page by page; read as they are iterated.

    runs = service.runs("clicks", status="FAILED")
    runs.first()                      # one request
    [run.id for run in runs]          # as many as there are pages

Pages of records are of one snapshot, that of the first page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from html import escape
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

SHOWN = 20
"""Rows that a notebook shows."""

Read = Callable[[str | None], tuple[list[T], str | None]]


class Pages(Generic[T]):
    """A list of the service; each iteration reads it again from its beginning.

    Args:
        read: Returns the page at a cursor (`None` for the first page), and the cursor of the
            next page.
    """

    def __init__(self, read: Read[T]) -> None:
        self._read = read

    def __iter__(self) -> Iterator[T]:
        """Yield the items; a page is read when its first item is needed.

        Raises:
            ServiceProblemError: What the service refuses; so do all methods.
        """
        for page in self.pages():
            yield from page

    def pages(self) -> Iterator[list[T]]:
        """Yield the pages."""
        cursor: str | None = None
        while True:
            page, cursor = self._read(cursor)
            yield page
            if cursor is None:
                return

    def first(self) -> T | None:
        """Return the first item; `None` if there is none. Reads one page."""
        return next(iter(self), None)


class Rows(Pages[dict[str, Any]]):
    """Records as mappings from column to JSON value; times and decimals are texts."""

    def to_arrow(self) -> pa.Table:
        """Return all records as an Arrow table, whose types are guessed from the values."""
        import pyarrow as pa

        return pa.Table.from_pylist(list(self))

    def _repr_html_(self) -> str:
        """Return the first rows as a table, for notebooks."""
        rows = list(islice(self, SHOWN + 1))
        if not rows:
            return "<p>no record</p>"
        head = "".join(f"<th>{escape(name)}</th>" for name in rows[0])
        body = "".join(
            f"<tr>{''.join(f'<td>{escape(str(value))}</td>' for value in row.values())}</tr>"
            for row in rows[:SHOWN]
        )
        more = "<p>and more</p>" if len(rows) > SHOWN else ""
        return f"<table><tr>{head}</tr>{body}</table>{more}"
