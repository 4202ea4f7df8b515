"""Prints the demo's output: lines and tables, and progress bars for work that is running.

Without a terminal the bars are left out, and all other lines are plain. With `--json` nothing of
it is printed. Names come from third-party packages and are printed as text, never as markup.

Guaranteed: nothing here needs a UTF-8 terminal (tests/controller/demo/test_report.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from cbp.errors.counts import format_count, format_times
from controller.demo.results.checks import Check
from controller.demo.service.watch import Progress as Standing
from controller.terminal import text

__all__ = ["Report", "console_of"]

PLAIN_WIDTH = 100
LABEL_WIDTH = 10


def console_of(*, as_json: bool) -> Console:
    """Return the console of the demo; without a terminal it is wide enough for the tables."""
    console = Console(highlight=False, quiet=as_json)
    if console.is_terminal:
        return console
    return Console(highlight=False, quiet=as_json, width=PLAIN_WIDTH)


class Report:
    """Prints to one console; see the module header."""

    def __init__(self, console: Console) -> None:
        self._console = console
        utf = console.encoding.lower().startswith("utf")
        self._good, self._bad = ("✓", "✗") if utf else ("ok  ", "FAIL")

    def title(self, line: str) -> None:
        """Start a part with its title."""
        self._console.print()
        self._console.print(self._text(line, "bold"))

    def fact(self, label: str, value: str) -> None:
        """Print one named fact."""
        self._console.print(
            self._text(f"  {label:<{LABEL_WIDTH}}", "dim"), self._text(value), soft_wrap=True
        )

    def line(self, value: str, style: str = "") -> None:
        """Print one line."""
        self._console.print(self._text(value, style), soft_wrap=True)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Print rows; numbers are right-aligned, and `None` is a dash."""
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
        for index, column in enumerate(columns):
            numeric = all(isinstance(row[index], int | float | None) for row in rows)
            table.add_column(column, justify="right" if numeric else "left", overflow="fold")
        for row in rows:
            table.add_row(*(self._text(_cell(value)) for value in row))
        self._console.print(_indented(table))

    def judged(self, claim: str, ok: bool) -> None:
        """Print a claim and whether it holds."""
        mark, style = (self._good, "bold green") if ok else (self._bad, "bold red")
        self._console.print(self._text(f"  {mark}", style), self._text(claim), soft_wrap=True)

    def check(self, check: Check) -> None:
        """Print a check, and its first differences if there are any."""
        tables = format_count(check.tables, "table")
        records = format_count(check.records, "record")
        self.judged(f"{check.claim} ({tables}, {records})", check.ok)
        for one in check.differences:
            self.line(f"      {one.table}: {one.record}", "red")
            self.line(
                f"        expected {format_times(one.expected)}, found {format_times(one.found)}",
                "red",
            )
        if not check.records:
            self.line("      there was nothing to compare", "red")

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Show a spinner during a wait."""
        with self._console.status(self._text(what), spinner="line"):
            yield

    @contextmanager
    def bar(self, what: str, total: int) -> Iterator[Callable[[], None]]:
        """Show a bar; the yielded function moves it by one."""
        with self._progress() as progress:
            task = progress.add_task(what, total=total)
            yield lambda: progress.advance(task)

    @contextmanager
    def stage_bars(
        self, *, pages: int, pages_before: int, stages: Mapping[str, int], increments: int
    ) -> Iterator[Callable[[Standing, int], None]]:
        """Show a bar for the pages, the runs, and each stage.

        Args:
            pages: Pages of all increments.
            pages_before: Pages of the increments that are already applied.
            stages: Stage to the epochs it has done.
            increments: Number of all increments, which is also the number of epochs of each stage.

        Yields:
            A function of the dataflow's progress and of the number of pages accepted so far.
        """
        with self._progress() as progress:
            read = progress.add_task("pages read", total=pages, completed=pages_before)
            runs = progress.add_task(
                "runs done", total=increments * len(stages), completed=sum(stages.values())
            )
            bars = {
                stage: progress.add_task(f"  {stage}", total=increments, completed=done)
                for stage, done in stages.items()
            }

            def show(standing: Standing, accepted_pages: int) -> None:
                progress.update(read, completed=accepted_pages)
                progress.update(runs, completed=sum(standing.epochs.values()))
                for stage, done in standing.epochs.items():
                    progress.update(bars[stage], completed=done)

            yield show

    def _progress(self) -> Progress:
        return Progress(
            TextColumn("  {task.description:<18}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )

    def _text(self, value: str, style: str = "") -> Any:
        shown = value.encode(self._console.encoding, "backslashreplace")
        return text(shown.decode(self._console.encoding), style)


def _indented(table: Table) -> Any:
    grid = Table.grid(padding=(0, 0))
    grid.add_column(width=2)
    grid.add_column()
    grid.add_row("", table)
    return grid


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
