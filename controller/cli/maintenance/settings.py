"""The command `cbp settings`: the settings of the running service."""

from __future__ import annotations

from typing import Any

from controller.cli.session import Session
from controller.terminal import print_table


def settings_command(session: Session) -> None:
    """List the settings of the running service; secrets are masked."""
    answer = session.fetch("settings")
    rows = [(f"CBP_{name.upper()}", _text(value)) for name, value in sorted(answer.items())]
    print_table(("setting", "value"), rows, empty="no settings")


def _text(value: Any) -> str:
    """Return a value as the variable holds it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(map(str, value))
    return "" if value is None else str(value)
