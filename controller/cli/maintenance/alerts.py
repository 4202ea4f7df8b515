"""The command `cbp alerts`: what is wrong, which channels are notified, and a test.

cbp alerts           firing alerts, and the last tries to send them
cbp alerts --test    send a test notice through every channel
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from controller.cli.session import Session
from controller.terminal import Cell, clock, print_items, print_text

NO_CHANNEL = (
    "no channel for alerts is configured: set CBP_ALERT_WEBHOOK_URL, or CBP_ALERT_EMAIL_TO and "
    "CBP_SMTP_URL, and restart the service"
)


def alerts_command(
    session: Session,
    test: Annotated[
        bool, typer.Option("--test", help="Send a test message through every channel.")
    ] = False,
) -> None:
    """Show firing alerts and whether they were sent; exits with 1 if a test fails."""
    answer = session.client.test_alerts() if test else session.rest.get("alerts")
    status = int(test and any(one["error"] for one in answer["deliveries"]))
    session.exit_if_json(answer, status=status)
    if test:
        _print_deliveries(answer["deliveries"], empty=NO_CHANNEL)
        raise typer.Exit(status)
    columns: dict[str, Cell] = {
        "severity": "severity",
        "since": (clock, "since"),
        "alert": "summary",
        "what to do": "action",
    }
    print_items(answer["standing"], columns, empty="nothing is wrong")
    if answer["channels"]:
        print_text(f"sent by: {', '.join(answer['channels'])}")
        _print_deliveries(answer["deliveries"], empty="nothing was sent yet")
    else:
        print_text(NO_CHANNEL, "dim")


def _print_deliveries(deliveries: Sequence[Any], *, empty: str) -> None:
    columns: dict[str, Cell] = {
        "at": (clock, "at"),
        "channel": "channel",
        "outcome": (lambda error: error or "sent", "error"),
        "what": ("; ".join, "summaries"),
    }
    print_items(deliveries, columns, empty=empty)
