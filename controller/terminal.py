"""Output of the commands: tables and sentences for people, JSON for programs.

Everything that comes from outside (names, messages, records) is printed literally: our markup is
not interpreted in it, and its control characters are escaped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from cbp.errors import CbpError

__all__ = [
    "age",
    "bytes_text",
    "clock",
    "one_line",
    "print_error",
    "print_json",
    "print_more",
    "print_records",
    "print_table",
    "print_text",
    "text",
]

_SECONDS = (("d", 86_400), ("h", 3_600), ("min", 60))
_STYLES = {
    "COMMITTED": "green",
    "FAILED": "red",
    "accepted": "green",
    "fail": "bold red",
    "ok": "green",
    "quarantined": "red",
    "retrying": "yellow",
    "stopped": "bold red",
    "paused": "yellow",
    "warn": "yellow",
}


def print_json(value: Any) -> None:
    """Print a value as JSON, pure ASCII, so that any pipe can carry it."""
    Console(soft_wrap=True, highlight=False).out(json.dumps(value, indent=2))


def print_text(line: str, style: str = "") -> None:
    """Print one sentence."""
    Console(highlight=False, soft_wrap=True).print(text(line, style))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], *, empty: str) -> None:
    """Print rows with their headings, or the sentence `empty` if there are none."""
    if not rows:
        print_text(empty, "dim")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, column in enumerate(columns):
        numeric = all(isinstance(row[index], int | float) for row in rows)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(text(_cell(value), _STYLES.get(str(value), "")) for value in row))
    Console(highlight=False).print(table)


def print_records(items: Sequence[Mapping[str, Any]], *, empty: str) -> None:
    """Print records as a table with their column names."""
    columns = list(items[0]) if items else []
    print_table(columns, [[item.get(name) for name in columns] for item in items], empty=empty)


def print_more(answer: Mapping[str, Any]) -> None:
    """Print how to get the next page, if there is one."""
    if answer["cursor"]:
        print_text(f"more with: --cursor {answer['cursor']}", "dim")


def print_error(error: CbpError, *, as_json: bool) -> None:
    """Print an error: one panel on stderr, or its document on stdout."""
    document = error.as_dict()
    if as_json:
        print_json(document)
        return
    lines = [error.message]
    mistakes = document["details"].get("mistakes")
    if isinstance(mistakes, list) and mistakes:
        most = document["details"].get("mistakes_max")
        head = f"{len(mistakes)} mistake(s):"
        if most:
            head = f"more than {most} mistakes; the first ones:"
        lines = [head, *map(_mistake_line, mistakes)]
    panel = Panel(
        text("\n".join(lines)),
        title=text(str(document["error_code"])),
        title_align="left",
        border_style="red",
    )
    Console(stderr=True, highlight=False).print(panel)


def text(value: str, style: str = "") -> Text:
    """Return text that is shown literally; control characters become escapes."""
    shown = "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in value)
    return Text(shown, style)


def one_line(value: str) -> str:
    """Return a name as one line for a table, whatever characters it has."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in value)


def age(seconds: float | None) -> str:
    """Return a duration in words; `-` for none."""
    if seconds is None:
        return "-"
    for unit, size in _SECONDS:
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def clock(value: str | None) -> str:
    """Return a time of the API in this machine's time zone; `-` for none."""
    if value is None:
        return "-"
    return datetime.fromisoformat(value).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def bytes_text(size: float) -> str:
    """Return a size with its unit."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def _mistake_line(mistake: Any) -> str:
    if not isinstance(mistake, Mapping):
        return f"- {mistake}"
    place = f" ({mistake['place']})" if mistake.get("place") else ""
    return f"- {mistake.get('where', '')}: {mistake.get('message', '')}{place}"


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    if isinstance(value, int | float):
        return f"{value:,}"
    return json.dumps(value, ensure_ascii=False)
