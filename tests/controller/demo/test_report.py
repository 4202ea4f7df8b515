"""What the demo prints, on any kind of terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from controller.demo.report import Report
from controller.demo.results.checks import Check, Difference
from controller.demo.service.watch import Progress


def printed(encoding: str = "utf-8") -> tuple[Report, io.BytesIO]:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, write_through=True)
    return Report(Console(file=file, width=100, highlight=False)), raw


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_everything_can_be_printed_in_any_encoding(encoding: str):
    """A terminal without UTF-8 gets escapes and words instead of a traceback."""
    report, raw = printed(encoding)
    report.title("Ünïcode → ✓")
    report.fact("label", "münze")
    report.table(("site",), [("módulo",)])
    report.judged("holds", True)
    report.check(Check("holds not", 1, 2, (Difference("t", "ä", 1, 2),)))
    with report.waiting("…"), report.bar("…", 2) as advance:
        advance()
    assert b"holds" in raw.getvalue()


def test_names_are_no_markup():
    """A package called like a style is printed as it is called."""
    report, raw = printed()
    report.table(("site",), [("[bold]x[/bold]",)])
    report.line("[red]y")
    text = raw.getvalue().decode()
    assert "[bold]x[/bold]" in text
    assert "[red]y" in text


def test_a_failed_check_shows_what_differs():
    """The first differing records come with how often they were expected and found."""
    report, raw = printed()
    report.check(Check("a = b", 1, 2, (Difference("count.counts", ("a", 2), 1, 0),)))
    text = raw.getvalue().decode()
    assert "✗ a = b (1 table, 2 records)" in text
    assert "count.counts: ('a', 2)" in text
    assert "expected once, found 0 times" in text


def test_a_check_of_nothing_fails_visibly():
    """An empty comparison is no green line."""
    report, raw = printed()
    report.check(Check("a = b", 0, 0))
    assert "✗" in raw.getvalue().decode()


def test_without_a_terminal_there_are_no_bars():
    """A log file holds lines, not the frames of an animation."""
    report, raw = printed()
    with report.stage_bars(pages=10, pages_before=0, stages={"count": 0}, increments=1) as show:
        show(Progress(1, {"count": 1}, 0), 10)
    assert raw.getvalue() == b""


def test_on_a_terminal_bars_tell_pages_runs_and_stages():
    """While an increment is applied, it shows how far each stage is."""
    file = io.StringIO()
    report = Report(Console(file=file, width=100, force_terminal=True))
    with report.stage_bars(pages=40, pages_before=20, stages={"count": 1}, increments=4) as show:
        show(Progress(2, {"count": 2}, 0), 30)
    text = file.getvalue()
    for part in ("pages read", "30/40", "runs done", "2/4", "count"):
        assert part in text
