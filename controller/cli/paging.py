"""All pages of a list, for output that goes into a file.

A file shows no hint that more follows, so a command that writes one reads page after page. With
`--limit` it writes one page, and a note on stderr says that more follows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import typer

from controller.cli.options import FilePaging
from controller.cli.session import Session
from controller.terminal import print_left_out

T = TypeVar("T")


def read_pages(read: Callable[[str | None], tuple[T, str | None]], page: FilePaging) -> Iterator[T]:
    """Yield the pages of a list: all of them, or one if there is a limit.

    Args:
        read: Returns the page at a cursor, and the cursor of the next one; `None` if none follows.
    """
    cursor = page.cursor
    while True:
        content, cursor = read(cursor)
        yield content
        if cursor is None:
            return
        if page.limit is not None:
            print_left_out(cursor)
            return


def print_csv(
    session: Session,
    path: tuple[str, ...],
    query: list[tuple[str, str]],
    page: FilePaging,
    *,
    cursor: str = "cursor",
) -> None:
    """Print the CSV of all pages of a list, with one header.

    Args:
        path: The list, as the client takes it.
        query: Its parameters, except for the cursor.
        cursor: Name of the parameter of the cursor.
    """

    def read(place: str | None) -> tuple[str, str | None]:
        more = [] if place is None else [(cursor, place)]
        return session.rest.get_file(*path, query=query + more)

    header = ""
    for text in read_pages(read, page):
        head, _, rows = text.partition("\r\n")
        typer.echo(rows if header == head else text, nl=False)
        header = head
