r"""The command `cbp rejects`: records that were put aside while their file was taken in.

cbp rejects clicks urls
cbp rejects clicks urls --text >mended.jsonl
cbp drop clicks urls mended.jsonl                  # once the lines are mended

The text is what the service keeps of a record, so stderr says which texts are not the whole truth:
those that were cut, and those with bytes that are no text, which are spelled out as `\xff`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from cbp.errors.counts import format_count
from controller.cli.paging import FileLimit, read_pages
from controller.cli.session import AsJson, Cursor, DataflowName, session
from controller.client.service_client import ServiceClient
from controller.terminal import one_line, print_json, print_more, print_table, print_text

__all__ = ["rejects_command"]

SourceName = Annotated[str, typer.Argument(help="Name of the source.", show_default=False)]
AsText = Annotated[
    bool,
    typer.Option(
        "--text",
        help="Print the text of all records, to mend them. Only the first 1,000 "
        "characters of a record are kept, and a byte that is not text in the source's encoding "
        "is written as \\xff; stderr counts both.",
    ),
]
_LIMIT = 20
_CUT_LENGTH = 1_001
"""Length of a text that was cut: 1,000 characters and an ellipsis."""


def rejects_command(
    context: typer.Context,
    dataflow: DataflowName,
    source: SourceName,
    limit: FileLimit = None,
    cursor: Cursor = None,
    text: AsText = False,
    json_: AsJson = False,
) -> None:
    """List records that were put aside while the others of their file were taken in."""
    with session(context).connect() as service:
        at = ("dataflows", dataflow, "sources", source, "rejects")
        if text and not json_:
            _print_texts(service, at, limit, cursor)
            return
        answer = service.get(*at, limit=limit or _LIMIT, cursor=cursor)
    if json_:
        print_json(answer)
        return
    columns = ("increment", "file", "line", "code", "message")
    rows = [tuple(one_line(str(one[name])) for name in columns) for one in answer["items"]]
    print_table(columns, rows, empty="nothing was put aside")
    print_more(answer)


def _print_texts(
    service: ServiceClient, at: tuple[str, ...], limit: int | None, cursor: str | None
) -> None:
    """Print the text of every record, and say on stderr which ones are not as they came."""

    def read(place: str | None) -> tuple[list[dict[str, Any]], str | None]:
        answer = service.get(*at, limit=limit, cursor=place)
        return answer["items"], answer["cursor"]

    cut = spelled = 0
    for items in read_pages(read, cursor, limit=limit):
        for one in items:
            typer.echo(one["text"])
            cut += _is_cut(one)
            spelled += one["code"] == "encoding"
    if cut:
        said = "of which only the first 1,000 characters are kept"
        print_text(f"{format_count(cut, 'record')} {said}", on_stderr=True)
    if spelled:
        said = "with bytes that are not in the source's encoding: they are written as \\xff"
        print_text(f"{format_count(spelled, 'record')} {said}", on_stderr=True)


def _is_cut(one: Mapping[str, Any]) -> bool:
    return len(one["text"]) >= _CUT_LENGTH and str(one["text"]).endswith("…")
