"""The commands `cbp claims` and `cbp sources`: files in drop folders, and why one was refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from controller.cli.session import AsJson, Cursor, DataflowName, Limit, Since, Until, fetch
from controller.terminal import (
    bytes_text,
    clock,
    one_line,
    print_more,
    print_table,
)

_NUMBERS_MAX = 10

Source = Annotated[str | None, typer.Option(help="Only this source.")]
ClaimStatus = Annotated[
    str | None,
    typer.Option(help="Only files with this status, such as `quarantined` or `accepted`."),
]
Increment = Annotated[
    int | None, typer.Option(min=0, help="Only the files that this increment holds.")
]

Code = Annotated[
    str | None, typer.Option(help="Only files that were refused for this reason (its code).")
]


def claims_command(
    context: typer.Context,
    dataflow: DataflowName,
    source: Source = None,
    status: ClaimStatus = None,
    increment: Increment = None,
    code: Code = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = 20,
    cursor: Cursor = None,
    json_: AsJson = False,
) -> None:
    """List the files that were found in drop folders, and why some were refused."""
    answer = fetch(
        context,
        json_,
        "dataflows",
        dataflow,
        "claims",
        source=source,
        status=status,
        increment=increment,
        code=code,
        since=since,
        until=until,
        limit=limit,
        cursor=cursor,
    )
    some = any(item["rejected"] for item in answer["items"])
    rows = [
        (
            item["source"],
            one_line(item["path"]),
            item["status"],
            "-" if item["index"] is None else item["index"],
            *((item["rejected"],) if some else ()),
            reason_text(item["reason"]) or _same(item["same_as"]),
        )
        for item in answer["items"]
    ]
    rejected = ("rejected",) if some else ()
    columns = ("source", "file", "status", "increment", *rejected, "reason")
    print_table(columns, rows, empty="no files yet")
    print_more(answer)


def sources_command(context: typer.Context, dataflow: DataflowName, json_: AsJson = False) -> None:
    """Show the files in the drop folder of each source, and those that are not taken in."""
    answer = fetch(context, json_, "dataflows", dataflow, "sources")
    some = any(item["rejected"] for item in answer["items"])
    rows = [
        (
            item["name"],
            item["waiting"],
            bytes_text(item["waiting_bytes"]),
            item["files"]["accepted"],
            *((item["rejected"],) if some else ()),
            item["files"]["quarantined"],
            item["unclaimed"],
            (item["trouble"] or {}).get("error", {}).get("message") or item["warning"] or "-",
        )
        for item in answer["items"]
    ]
    rejected = ("records rejected",) if some else ()
    columns = ("source", "waiting", "size", "accepted", *rejected, "quarantined", "not taken in")
    print_table((*columns, "why"), rows, empty="no sources", optional=("size",))
    lying = [
        (item["name"], one_line(one["name"]), clock(one["since"]), one["why"])
        for item in answer["items"]
        for one in (
            *item["oldest_unclaimed"],
            *(item.get("bucket") or {}).get("oldest_left_out", ()),
        )
    ]
    _print_buckets(answer["items"])
    if lying:
        print_table(("source", "not taken in", "since", "why"), lying, empty="")
    gone = [
        (
            item["name"],
            one_line(one["name"]),
            clock(one["since"]),
            one["claim"],
            "yes" if one["lost"] else "no",
        )
        for item in answer["items"]
        for one in item["gone"]
    ]
    if gone:
        print_table(("source", "gone", "claimed", "claim", "was acknowledged"), gone, empty="")


def _print_buckets(items: Sequence[Mapping[str, Any]]) -> None:
    """Print what the locations of sources had when they were listed, if there are any."""
    rows = [
        (
            item["name"],
            bucket["location"],
            clock(bucket["listed_at"]) if bucket["listed_at"] else "not yet",
            bucket["objects"],
            bucket["waiting"],
            bucket["left_out"],
        )
        for item in items
        if (bucket := item.get("bucket"))
    ]
    if rows:
        columns = ("source", "location", "listed", "objects", "to fetch", "not taken in")
        print_table(columns, rows, empty="")


def reason_text(reason: Mapping[str, Any] | None, *, whole: bool = False) -> str:
    """Return a claim's reason in words.

    Args:
        reason: As REST gives it; claims of earlier releases have no `lines`.
        whole: Describe each wrong line; otherwise only list some line numbers.
    """
    if not reason:
        return ""
    text = str(reason.get("message") or reason.get("code", ""))
    if reason.get("line") and f"line {reason['line']}" not in text:
        text += f", line {reason['line']}"
    lines = reason.get("lines") or []
    more = ", and there may be more" if reason.get("lines_more") else ""
    if len(lines) < 2:
        return text + more if lines else text
    if whole:
        further = (f"  line {one['line']}{_column(one)}: {one['message']}" for one in lines[1:])
        return "\n".join((text, *further)) + more
    numbers = list(dict.fromkeys(str(one["line"]) for one in lines[1:]))
    shown = ", ".join(numbers[:_NUMBERS_MAX])
    left = len(numbers) - _NUMBERS_MAX
    return f"{text}; wrong too: line {shown}{f' and {left} others' if left > 0 else ''}{more}"


def _column(line: Mapping[str, Any]) -> str:
    return f", column {line['column']!r}" if line.get("column") else ""


def _same(same: dict[str, Any] | None) -> str:
    """Return in words which earlier file this one equals."""
    if not same:
        return ""
    at = "" if same.get("index") is None else f" (increment {same['index']})"
    if same["by"] == "name_and_content":
        return f"the same name and content came before{at}"
    if same["by"] in ("replaced", "retracted"):
        verb = "replaces" if same["by"] == "replaced" else "takes back"
        why = f": {one_line(same['why'])} ({one_line(same['who'])})" if same.get("why") else ""
        return f"{verb} the file of this name{at}{why}"
    return f"has the content of {one_line(same['file'])}{at}"
