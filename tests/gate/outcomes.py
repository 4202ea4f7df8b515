"""A plugin of pytest that writes what became of each test to a file.

`tests/conftest.py` registers it. The file has one JSON object a line: test, result, process,
seconds, text, set_up. The last line of a test counts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

import pytest

from tests.gate.verdict import Outcome

FILE = "CBP_TEST_OUTCOMES"
"""Environment variable with the path of the file; without it nothing is written."""


class Recorder:
    """Writes a line for each report of a test; lives in the process that hands the tests out."""

    def __init__(self, path: Path, *, grouped: bool) -> None:
        """Start a new file.

        Args:
            path: The file.
            grouped: pytest-xdist has appended `@GROUP` to node ids.
        """
        self._file: TextIO = path.open("w", encoding="utf-8")
        self._grouped = grouped
        self._seconds: dict[str, float] = {}
        self._failed: dict[str, str] = {}
        self._set_up: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note one phase of a test (set-up, call or tear-down)."""
        test = report.nodeid.rpartition("@")[0] if self._grouped else report.nodeid
        self._seconds[test] = self._seconds.get(test, 0.0) + report.duration
        if report.failed:
            # Only the first failure of a test: another one beside it has a cause of its own.
            error = _error(report) if report.when == "setup" and test not in self._failed else ""
            self._set_up[test] = error
            self._failed[test] = self._failed.get(test, "") + _text(report)
        result: str = "failed" if test in self._failed else report.outcome
        if report.when == "setup" and result == "passed":
            return
        if report.when == "teardown" and result == "passed":
            result = ""  # what the call said stays
        node: Any = getattr(report, "node", None)
        line = {
            "test": test,
            "result": result,
            "process": node.gateway.id if node is not None else "main",
            "seconds": round(self._seconds[test], 3),
            "text": self._failed.get(test, ""),
            "set_up": self._set_up.get(test, ""),
        }
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()

    def pytest_unconfigure(self) -> None:
        """Close the file."""
        self._file.close()


def _error(report: pytest.TestReport) -> str:
    """Return what was raised, and where if that is known; the same for tests of one fixture."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is None:
        return report.longreprtext
    return f"{crash.message}\n{crash.path}:{crash.lineno}"


def _text(report: pytest.TestReport) -> str:
    captured = "".join(f"\n--- {name} ---\n{text}" for name, text in report.sections)
    return f"[{report.when}]\n{report.longreprtext}{captured}\n"


def read_outcomes(lines: Sequence[str]) -> dict[str, Outcome]:
    """Return the outcomes of a file's lines, in the order of the first report of each test."""
    outcomes: dict[str, Outcome] = {}
    for line in lines:
        fields = json.loads(line)
        test = fields.pop("test")
        before = outcomes.get(test)
        if not fields["result"]:
            fields["result"] = before.result if before is not None else "passed"
        outcomes[test] = Outcome(**fields)
    return outcomes
