"""How far back a dataflow can be rolled back, as commands show it before they ask to confirm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cbp.client.rest import RestClient
from cbp.errors.counts import format_count
from controller.terminal import clock, print_text


def print_input_reach(service: RestClient, dataflow: str, source: str = "") -> None:
    """Print on stderr how far back input is kept, since corrections and rebuilds read it.

    Args:
        source: The corrected source; `""` means all sources.
    """
    for one in service.get("dataflows", dataflow, "reach")["sources"]:
        if one["increments"] and source in ("", one["source"]):
            print_text(_kept(one), "" if one["complete"] else "yellow", on_stderr=True)


def print_rollback_reach(service: RestClient, dataflow: str) -> None:
    """Print on stderr to which position a roll-back can go."""
    oldest = service.get("dataflows", dataflow, "reach")["oldest_position"] or 0
    print_text(f"a roll-back can go back to position {oldest}", on_stderr=True)


def _kept(one: Mapping[str, Any]) -> str:
    kept = format_count(one["increments"], "increment")
    if one["complete"]:
        return f"{one['source']}: all input is kept ({kept})"
    return (
        f"{one['source']}: input is kept from increment {one['first']:,} on ({kept}, the first "
        f"from {clock(one['first_at'])}); operations that need all input are refused"
    )
