"""The command `cbp audit`: who changed what, and how many requests were refused."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from controller.cli.options import Listing
from controller.cli.session import Session
from controller.terminal import Cell, clock, one_line, print_page

Actor = Annotated[str | None, typer.Option(help="Show only this actor: token-file, or token:NAME.")]
Action = Annotated[str | None, typer.Option(help="Show only this action, such as dataflows_pause.")]
Dataflow = Annotated[str | None, typer.Option(help="Show only this dataflow.")]
ErrorCode = Annotated[str | None, typer.Option(help="Show only requests with this error code.")]
Outcome = Annotated[
    str | None, typer.Option(help="Show only requests that were `done`, `failed` or `refused`.")
]


def audit_command(
    session: Session,
    actor: Actor = None,
    action: Action = None,
    dataflow: Dataflow = None,
    outcome: Outcome = None,
    error_code: ErrorCode = None,
    listing: Listing = Listing(),
) -> None:
    """List changes with credential and reason, newest first, and counts of refused requests."""
    answer = session.fetch(
        "audit",
        actor=actor,
        action=action,
        dataflow=dataflow,
        outcome=outcome,
        error_code=error_code,
        **listing,
    )
    columns: dict[str, Cell] = {
        "at": (clock, "at"),
        "who": _who,
        "action": (lambda action: action or "-", "action"),
        "what": _what,
        "outcome": lambda item: (
            item["outcome"] if item["count"] == 1 else f"{item['outcome']} {item['count']}x"
        ),
        "error": (lambda code: code or "", "error_code"),
        "reason": (one_line, "reason"),
    }
    print_page(answer, columns, empty="no entries")


def _who(item: dict[str, Any]) -> str:
    """Return the actor, and what its client says about the user."""
    actor = item["actor"] or f"unknown ({item['address']})"
    page = " on the page" if item["session"] else ""
    return one_line(f"{actor}{page}" + (f" ({item['user']})" if item["user"] else ""))


def _what(item: dict[str, Any]) -> str:
    target = ", ".join(f"{name} {value}" for name, value in item["target"].items())
    return one_line(" ".join(part for part in (item["dataflow"], target) if part)) or "-"
