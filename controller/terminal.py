"""Output of the commands: tables and sentences for people, JSON for programs.

Everything that comes from outside (names, messages, records) is printed literally: our markup is
not interpreted in it, and its control characters are escaped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from cbp.errors import CbpError
from cbp.errors.counts import format_count

_SECONDS = (("d", 86_400), ("h", 3_600), ("min", 60))
_WHOLE_MAX = 29
"""Cells of up to this many characters are not wrapped, such as a time with its zone, or an id."""

_PROSE_MIN = 16
"""Sentences in a narrower column are hard to read."""

_UNBOUNDED = 1_000_000

_STYLES = {
    "COMMITTED": "green",
    "FAILED": "red",
    "accepted": "green",
    "fail": "bold red",
    "ok": "green",
    "quarantined": "red",
    "retrying": "yellow",
    "stopped": "bold red",
    "stuck": "yellow",
    "up to date": "green",
    "paused": "yellow",
    "warn": "yellow",
}


def print_json(value: Any, *, is_whole: bool = False) -> None:
    """Print a value as JSON, pure ASCII, so that any pipe can carry it.

    If more pages follow and stdout is not a terminal, a note on stderr says so, since the page
    may be mistaken for the whole list. `is_whole`: the list is complete, and its cursor only marks
    where it ended.
    """
    console = Console(soft_wrap=True, highlight=False)
    console.out(json.dumps(value, indent=2))
    cursor = value.get("cursor") if isinstance(value, Mapping) and not is_whole else None
    if cursor and not console.is_terminal:
        print_left_out(cursor)


def print_text(
    line: str, style: str = "", *, on_stderr: bool = False, console: Console | None = None
) -> None:
    """Print one sentence; on a given console, folded at its width."""
    if console is None:
        console = Console(highlight=False, soft_wrap=True, stderr=on_stderr)
    console.print(text(line, style))


def print_markdown(markdown: str) -> None:
    """Print Markdown with headings and tables; without a terminal, print it unchanged."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.out(markdown.rstrip("\n"))
        return
    # Imported here: it takes a tenth of a second, and few commands need it.
    from rich.markdown import Markdown

    console.print(Markdown(markdown, code_theme="ansi_dark"))


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    empty: str,
    optional: Sequence[str] = (),
    console: Console | None = None,
) -> None:
    """Print rows with their headings, or the sentence `empty` if there are none.

    Prose is wrapped at words to fit the terminal; names and figures are never broken. If they do
    not fit, `optional` columns are left out, the first one first, and named below the table. If
    that is not enough, each row is printed as lines of `column value`.
    """
    if not rows:
        print_text(empty, "dim", console=console)
        return
    given, console = console, console or Console(highlight=False)
    shown, left = list(columns), list(optional)
    while not _fits(console, table := _table(columns, rows, shown)) and left:
        shown.remove(left.pop(0))
    if not _fits(console, table):
        for row in rows:
            console.print(_block(columns, row))
        return
    console.print(table)
    if len(shown) < len(columns):
        hidden = ", ".join(column for column in columns if column not in shown)
        said = f"columns left out: {hidden} (use a wider terminal, or --json)"
        print_text(said, "dim", console=given)


def _table(columns: Sequence[str], rows: Sequence[Sequence[Any]], shown: Sequence[str]) -> Table:
    """Return the table of some of the columns; short cells and words are not broken."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    indexes = [index for index, column in enumerate(columns) if column in shown]
    for index in indexes:
        cells = [row[index] for row in rows]
        numeric = all(isinstance(cell, int | float) for cell in cells)
        longest = max(cell_len(_cell(cell)) for cell in (columns[index], *cells))
        table.add_column(
            columns[index],
            justify="right" if numeric else "left",
            overflow="fold",
            no_wrap=numeric or longest <= _WHOLE_MAX,
            min_width=longest if longest <= _WHOLE_MAX else _prose_width(cells),
        )
    for row in rows:
        cells = [row[index] for index in indexes]
        table.add_row(*map(_shown, cells))
    return table


def _prose_width(cells: Sequence[Any]) -> int:
    """Return the least width of a column of sentences in which only very long words are broken."""
    words = (cell_len(word) for cell in cells for word in _cell(cell).split())
    return max(_PROSE_MIN, *(size for size in words if size <= _WHOLE_MAX), 0)


def _block(columns: Sequence[str], row: Sequence[Any]) -> Table:
    """Return a row as lines of column and value, with an empty line after them."""
    block = Table(box=None, pad_edge=False, show_header=False)
    block.add_column(style="bold", no_wrap=True)
    block.add_column(overflow="fold")
    for column, cell in zip(columns, row, strict=True):
        block.add_row(column, _shown(cell))
    block.add_row("", "")
    return block


def _fits(console: Console, table: Table) -> bool:
    unbounded = console.options.update_width(_UNBOUNDED)
    return Measurement.get(console, unbounded, table).minimum <= console.width


def _shown(cell: Any) -> Text:
    return text(_cell(cell), _STYLES.get(str(cell), ""))


Cell = str | tuple[Callable[[Any], Any], str] | Callable[[Any], Any]
"""How a column gets its cell: a field, a function of a field, or a function of the item."""


def print_items(
    items: Iterable[Mapping[str, Any]],
    columns: Mapping[str, Cell],
    *,
    empty: str = "",
    optional: Sequence[str] = (),
    rare: Sequence[str] = (),
    console: Console | None = None,
) -> None:
    """Print a row for each item; prints nothing if there are no items and no `empty`.

    `columns` maps each heading to its cells. `rare` ones are printed only if an item has a value in
    them. The other arguments are those of `print_table`.
    """
    rows = [{name: _made(cell, item) for name, cell in columns.items()} for item in items]
    shown = [name for name in columns if name not in rare or any(row[name] for row in rows)]
    if rows or empty:
        cells = [[row[name] for name in shown] for row in rows]
        print_table(shown, cells, empty=empty, optional=optional, console=console)


def _made(cell: Cell, item: Mapping[str, Any]) -> Any:
    if isinstance(cell, str):
        return item[cell]
    return cell[0](item[cell[1]]) if isinstance(cell, tuple) else cell(item)


def print_page(
    answer: Mapping[str, Any], columns: Mapping[str, Cell], *, empty: str, rare: Sequence[str] = ()
) -> None:
    """Print a page of a list as `print_items` does, and how to get the next page."""
    print_items(answer["items"], columns, empty=empty, rare=rare)
    print_more(answer)


def print_records(items: Sequence[Mapping[str, Any]], *, empty: str) -> None:
    """Print records as a table with their column names; older ones may lack some columns."""
    widest = max(items, key=len, default={})
    columns = list(dict.fromkeys(name for item in (widest, *items) for name in item))
    print_table(columns, [[item.get(name) for name in columns] for item in items], empty=empty)


def print_more(answer: Mapping[str, Any]) -> None:
    """Print how to get the next page, if there is one."""
    if answer["cursor"]:
        print_text(f"more with: --cursor {answer['cursor']}", "dim")


def print_left_out(cursor: str) -> None:
    """Print on stderr that a list continues after the printed page."""
    said = f"there are more rows: raise --limit, or continue with --cursor {cursor}"
    print_text(said, on_stderr=True)


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
        head = f"{format_count(len(mistakes), 'mistake')}:"
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
    """Return a name as one line for a table, for any characters."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in value)


def age(seconds: float | None) -> str:
    """Return a duration in words; `-` for `None`."""
    if seconds is None:
        return "-"
    for unit, size in _SECONDS:
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def clock(value: str | None) -> str:
    """Return a time of the API in this machine's time zone; `-` for `None`."""
    if value is None:
        return "-"
    return datetime.fromisoformat(value).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def exact_clock(value: str | None) -> str:
    """Return a time with milliseconds and zone, in the form of options; `-` for `None`."""
    if value is None:
        return "-"
    return datetime.fromisoformat(value).astimezone().isoformat(timespec="milliseconds")


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
