"""The ends of the logs of service processes, as part of the report of a test that failed.

What a service answered (500, not ready) says little without what it wrote down, and its folder is
gone when somebody reads the report. So who starts a service process names its log here:

    watch(log)  # before it starts
    ended(log)  # after it has ended, and before its folder is removed

A report of a failure then has the end of each log, and the last traceback in it, from the
processes that live and from those that ended in the same test.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.gate.verdict import TRACEBACK

__all__ = ["ServiceLogs", "end_of", "ended", "watch"]

LINES = 40
FRAMES = 12
"""So many of an exception that is part of a line of JSON, the innermost ones."""
LINE_CHARACTERS = 2_000
LOGS_MAX = 4
"""So many logs are shown, those of the processes that started last."""
_READ_BYTES = 512 * 1024

_live: dict[Path, None] = {}
_ended: dict[Path, str] = {}


def watch(log: Path) -> None:
    """Show the end of a log with each failure from now on."""
    _live[log] = None


def ended(log: Path) -> None:
    """Keep what the log says now, to the end of the test; nothing is written any more."""
    if log in _live:
        del _live[log]
        _ended[log] = end_of(log)


def end_of(log: Path) -> str:
    """Return a log's last lines, and before them its last traceback if that is farther up.

    Returns:
        At most twice `LINES` lines; `""` if there is no such file.
    """
    try:
        with log.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _READ_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    lines = [_cut(line) for one in text.splitlines() for line in _unfolded(one)]
    last = max(0, len(lines) - LINES)
    began = max((n for n, line in enumerate(lines) if TRACEBACK in line), default=last)
    if began >= last:
        return "\n".join(lines[last:])
    until = min(began + LINES, last)
    between = [] if until == last else [f"... {last - until} lines ..."]
    return "\n".join([*lines[began:until], *between, *lines[last:]])


def _unfolded(line: str) -> list[str]:
    """Return a line of the service's log, with the exception in it as lines of its own."""
    if '"exception": [' not in line:
        return [line]
    try:
        event = json.loads(line)
        raised = event.pop("exception")
        traceback = [
            shown
            for one in reversed(raised)  # causes come last there, and first here
            for shown in (
                *(
                    f"  {at['filename']}:{at['lineno']} {at['name']}"
                    for at in one["frames"][-FRAMES:]
                ),
                f"{one['exc_type']}: {one['exc_value']}",
            )
        ]
    except (ValueError, LookupError, TypeError):
        return [line]
    return [json.dumps(event), TRACEBACK, *traceback]


def _cut(line: str) -> str:
    """Shorten a line in its middle: an error stands at the end of a traceback on one line."""
    half = LINE_CHARACTERS // 2
    return line if len(line) <= LINE_CHARACTERS else f"{line[:half]} ... {line[-half:]}"


def _forget() -> None:
    _ended.clear()
    for log in [log for log in _live if not log.exists()]:
        del _live[log]


class ServiceLogs:
    """The plugin; lives in each process that runs tests."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add what the services said to the report of a failure."""
        report = yield
        if report.failed:
            shown = {**_ended, **{log: end_of(log) for log in _live}}
            sections = [(f"end of {log.name}", text) for log, text in shown.items() if text]
            report.sections += sections[-LOGS_MAX:]
        return report

    def pytest_runtest_logfinish(self, nodeid: str, location: Any) -> None:
        """Forget what ended with the test."""
        _forget()
