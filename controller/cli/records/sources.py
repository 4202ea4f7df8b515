"""The commands `cbp claims` and `cbp sources`: files in drop folders, and why one was refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from controller.cli.options import DataflowName, Listing
from controller.cli.session import Session
from controller.terminal import Cell, bytes_text, clock, one_line, print_items, print_page

_NUMBERS_MAX = 10

Source = Annotated[str | None, typer.Option(help="Only this source.")]
ClaimStatus = Annotated[
    str | None,
    typer.Option(help="Only files with this status, such as `quarantined` or `accepted`."),
]
Increment = Annotated[int | None, typer.Option(min=0, help="Only the files of this increment.")]

Code = Annotated[
    str | None, typer.Option(help="Only files that were refused for this reason (its code).")
]


def claims_command(
    session: Session,
    dataflow: DataflowName,
    source: Source = None,
    status: ClaimStatus = None,
    increment: Increment = None,
    code: Code = None,
    listing: Listing = Listing(),
) -> None:
    """List the files that were found in drop folders, and why files were refused."""
    asked = {"source": source, "status": status, "increment": increment, "code": code}
    answer = session.fetch("dataflows", dataflow, "claims", **asked, **listing)
    columns: dict[str, Cell] = {
        "source": "source",
        "file": (one_line, "path"),
        "status": "status",
        "increment": "index",
        "rejected": "rejected",
        "reason": lambda item: reason_text(item["reason"]) or _same(item["same_as"]),
    }
    print_page(answer, columns, empty="no files yet", rare=("rejected",))


def sources_command(session: Session, dataflow: DataflowName) -> None:
    """Show the files in the drop folder of each source, and those that are not taken in."""
    answer = session.fetch("dataflows", dataflow, "sources")
    items = answer["items"]
    columns: dict[str, Cell] = {
        "source": "name",
        "waiting": "waiting",
        "size": (bytes_text, "waiting_bytes"),
        "accepted": lambda item: item["files"]["accepted"],
        "records rejected": "rejected",
        "quarantined": lambda item: item["files"]["quarantined"],
        "not taken in": "unclaimed",
        "why": lambda item: (
            (item["trouble"] or {}).get("error", {}).get("message") or item["warning"] or "-"
        ),
    }
    print_items(items, columns, empty="no sources", optional=("size",), rare=("records rejected",))
    buckets = [(item, item["bucket"]) for item in items if item.get("bucket")]
    print_items(
        ({**bucket, "source": item["name"]} for item, bucket in buckets),
        {
            "source": "source",
            "location": "location",
            "listed": (lambda at: clock(at) if at else "not yet", "listed_at"),
            "objects": "objects",
            "to fetch": "waiting",
            "not taken in": "left_out",
        },
    )
    left_out = [(item, one) for item, bucket in buckets for one in bucket["oldest_left_out"]]
    unclaimed = [(item, one) for item in items for one in item["oldest_unclaimed"]]
    print_items(
        ({**one, "source": item["name"]} for item, one in (*unclaimed, *left_out)),
        {
            "source": "source",
            "not taken in": (one_line, "name"),
            "since": (clock, "since"),
            "why": "why",
        },
    )
    print_items(
        ({**one, "source": item["name"]} for item in items for one in item["gone"]),
        {
            "source": "source",
            "gone": (one_line, "name"),
            "claimed": (clock, "since"),
            "claim": "claim",
            "was acknowledged": (lambda lost: "yes" if lost else "no", "lost"),
        },
    )


def reason_text(reason: Mapping[str, Any] | None, *, whole: bool = False) -> str:
    """Return a claim's reason in words.

    Args:
        reason: The reason in the REST answer; claims of earlier releases have no `lines`.
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
    return f"{text}; also wrong: line {shown}{f' and {left} others' if left > 0 else ''}{more}"


def _column(line: Mapping[str, Any]) -> str:
    return f", column {line['column']!r}" if line.get("column") else ""


def _same(same: dict[str, Any] | None) -> str:
    """Return the earlier file that this one equals, in words."""
    if not same:
        return ""
    at = "" if same.get("index") is None else f" (increment {same['index']})"
    if same["by"] == "name_and_content":
        return f"the same name and content arrived before{at}"
    if same["by"] in ("replaced", "retracted"):
        verb = "replaces" if same["by"] == "replaced" else "takes back"
        why = f": {one_line(same['why'])} ({one_line(same['who'])})" if same.get("why") else ""
        return f"{verb} the file of this name{at}{why}"
    return f"has the content of {one_line(same['file'])}{at}"
