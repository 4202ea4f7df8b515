"""All pages of a list, for output that goes into a file.

A file shows no hint that more follows, so a command that writes one reads page after page. With
`--limit` it writes one page, and what that leaves out is said on stderr.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, TypeVar

import typer

from controller.client.service_client import ServiceClient
from controller.terminal import print_left_out

Query = list[tuple[str, str]]

T = TypeVar("T")

AsCsv = Annotated[bool, typer.Option("--csv", help="Print CSV with a header instead of a table.")]
FileLimit = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=500,
        help="Maximum number of rows; by default 20, or with --csv all.",
    ),
]


def read_pages(
    read: Callable[[str | None], tuple[T, str | None]], cursor: str | None, *, limit: int | None
) -> Iterator[T]:
    """Yield the pages of a list: all of them, or one if there is a limit.

    Args:
        read: Returns the page at a cursor, and the cursor of the next one; `None` if none follows.
        limit: The maximum number of rows, if the user gave one; `None` reads everything.

    Raises:
        CbpError: Errors of `read`; earlier pages were already yielded.
    """
    while True:
        page, cursor = read(cursor)
        yield page
        if cursor is None:
            return
        if limit is not None:
            print_left_out(cursor)
            return


def print_csv(
    service: ServiceClient,
    path: tuple[str, ...],
    query: Query,
    cursor: tuple[str, str | None],
    *,
    limit: int | None,
) -> None:
    """Print the CSV of all pages of a list, with one header.

    Args:
        path: The list, as the client takes it.
        cursor: Name of the parameter of the cursor, and the cursor of the first page.

    Raises:
        CbpError: The service refuses, or is not reached; earlier pages were already printed.
    """
    name, begin = cursor

    def read(place: str | None) -> tuple[str, str | None]:
        more = [] if place is None else [(name, place)]
        return service.get_file(*path, query=query + more)

    header = ""
    for text in read_pages(read, begin, limit=limit):
        head, _, rows = text.partition("\r\n")
        typer.echo(rows if header == head else text, nl=False)
        header = head
