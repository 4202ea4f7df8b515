"""The command `cbp settings`: what the running service has set."""

from typing import Any

import typer

from controller.cli.session import AsJson, fetch
from controller.terminal import print_table


def settings_command(context: typer.Context, json_: AsJson = False) -> None:
    """List the settings of the running service; secrets are masked."""
    answer = fetch(context, json_, "settings")
    rows = [(f"CBP_{name.upper()}", _text(value)) for name, value in sorted(answer.items())]
    print_table(("setting", "value"), rows, empty="no settings")


def _text(value: Any) -> str:
    """Return a value as the variable holds it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(map(str, value))
    return "" if value is None else str(value)
