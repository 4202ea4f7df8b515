"""A benchmark shows its progress at a terminal; its output holds only tables."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from tests.bench.reports.console import progress


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_sees_a_bar_and_a_log_lines(
    terminal: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """The bar names the step that begins and counts those that are done; a line says when."""
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=terminal, width=120)
    with progress(console, 3) as step:
        step("cbp: loading")
        step("merge: 1,000 records")
        step("comparing")
    shown = stream.getvalue()
    assert ("comparing" in shown) is terminal
    assert ("2/3" in shown) is terminal
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" s  ")[1:] for line in lines] == (
        [] if terminal else [["cbp: loading"], ["merge: 1,000 records"], ["comparing"]]
    )
