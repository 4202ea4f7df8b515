"""The command `cbp alerts`: what is wrong, which channels are notified, and a test.

cbp alerts           firing alerts, and the last tries to send them
cbp alerts --test    send a test notice by every channel
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from controller.cli.session import AsJson, session
from controller.terminal import Cell, clock, print_items, print_json, print_text

NO_CHANNEL = (
    "no channel for alerts is configured: set CBP_ALERT_WEBHOOK_URL, or CBP_ALERT_EMAIL_TO and "
    "CBP_SMTP_URL, and restart the service"
)


def alerts_command(
    context: typer.Context,
    test: Annotated[
        bool, typer.Option("--test", help="Send a test message by every channel.")
    ] = False,
    json_: AsJson = False,
) -> None:
    """Show firing alerts and whether they were sent; exits with 1 if a test fails."""
    with session(context).client() as client:
        answer = client.test_alerts() if test else client.rest.get("alerts")
    if json_:
        print_json(answer)
    elif test:
        _print_deliveries(answer["deliveries"], empty=NO_CHANNEL)
    else:
        _print_standing(answer["standing"])
        _print_channels(answer["channels"], answer["deliveries"])
    if test and any(one["error"] for one in answer["deliveries"]):
        raise typer.Exit(1)


def _print_standing(standing: Sequence[Any]) -> None:
    columns: dict[str, Cell] = {
        "severity": "severity",
        "since": (clock, "since"),
        "alert": "summary",
        "what to do": "action",
    }
    print_items(standing, columns, empty="nothing is wrong")


def _print_channels(channels: Sequence[str], deliveries: Sequence[Any]) -> None:
    if not channels:
        print_text(NO_CHANNEL, "dim")
        return
    print_text(f"sent by: {', '.join(channels)}")
    _print_deliveries(deliveries, empty="nothing was sent yet")


def _print_deliveries(deliveries: Sequence[Any], *, empty: str) -> None:
    columns: dict[str, Cell] = {
        "at": (clock, "at"),
        "channel": "channel",
        "outcome": (lambda error: error or "sent", "error"),
        "what": ("; ".join, "summaries"),
    }
    print_items(deliveries, columns, empty=empty)
