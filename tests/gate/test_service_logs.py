"""What a failed test shows of the logs of services."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from tests.gate import service_logs
from tests.gate.service_logs import (
    FRAMES,
    LINE_CHARACTERS,
    LINES,
    LOGS_MAX,
    ServiceLogs,
    end_of,
    ended,
    watch,
)
from tests.gate.verdict import TRACEBACK


def report(*, failed: bool = True) -> pytest.TestReport:
    """Return what the plugin makes of a report."""
    made = pytest.TestReport(
        nodeid="a.py::test_a",
        location=("a.py", 0, "test_a"),
        keywords={},
        outcome="failed" if failed else "passed",
        longrepr="it failed" if failed else None,
        when="setup",
    )
    hook = ServiceLogs().pytest_runtest_makereport(cast("Any", None))
    next(hook)
    with pytest.raises(StopIteration):
        hook.send(made)  # gives back what it was given, with more in it
    return made


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the log of a service, the only one that there is."""
    monkeypatch.setattr(service_logs, "_live", {})
    monkeypatch.setattr(service_logs, "_ended", {})
    log = tmp_path / "a-1.log"
    watch(log)
    log.write_text("started\nstopped\n", encoding="utf-8")
    return log


def test_a_failure_shows_the_end_of_the_log(log: Path) -> None:
    """In a section of its own, which pytest prints; a test that passed has none."""
    assert report().sections == [("end of a-1.log", "started\nstopped")]
    assert report(failed=False).sections == []


def test_a_service_that_ended_is_shown_to_the_end_of_the_test(log: Path) -> None:
    """Its fixture has removed the log when the report is made; later tests have nothing of it."""
    ended(log)
    log.unlink()
    assert report().sections == [("end of a-1.log", "started\nstopped")]
    ServiceLogs().pytest_runtest_logfinish("a.py::test_a", None)
    assert report().sections == []


def test_a_log_that_is_gone_is_forgotten(log: Path) -> None:
    """A process that nobody ended left nothing to read: that is no failure of the report."""
    log.unlink()
    assert report().sections == []
    ServiceLogs().pytest_runtest_logfinish("a.py::test_a", None)
    log.write_text("of another test", encoding="utf-8")
    assert report().sections == []


def test_few_logs_are_shown(log: Path) -> None:
    """Only the last of many processes are shown: the test killed the others."""
    for number in range(2, 9):
        one = log.with_name(f"a-{number}.log")
        watch(one)
        one.write_text(str(number), encoding="utf-8")
    assert [text for _, text in report().sections] == [*"8765"][:LOGS_MAX][::-1]


@pytest.mark.parametrize("after", [0, LINES - 3, LINES, 3 * LINES, 9 * LINES])
def test_the_last_traceback_is_shown_wherever_it_is(tmp_path: Path, after: int) -> None:
    """A service goes on after an error, and writes down much."""
    lines = [f"before {n}" for n in range(200)]
    lines += [TRACEBACK, "older", *("between" for _ in range(LINES))]
    lines += [
        f"  {TRACEBACK}",
        "  File",
        "ZeroDivisionError",
        *(f"after {n}" for n in range(after)),
    ]
    log = tmp_path / "log"
    log.write_text("\n".join(lines), encoding="utf-8")
    shown = end_of(log).splitlines()
    assert "ZeroDivisionError" in shown
    assert lines[-1] == shown[-1]
    assert "older" not in shown
    assert len(shown) <= 2 * LINES + 1


def test_a_traceback_in_a_line_of_json_is_shown_as_lines(tmp_path: Path) -> None:
    """As the service writes it: the innermost frames, then what was raised; causes before."""
    frames = [{"filename": "/a/b.py", "lineno": n, "name": "run"} for n in range(FRAMES + 9)]
    inner = {"exc_type": "KeyError", "exc_value": "'x'", "is_cause": True, "frames": frames}
    outer = {
        "exc_type": "RuntimeError",
        "exc_value": "no x",
        "is_cause": False,
        "frames": frames[:1],
    }
    event = {"event": "request failed", "exception": [outer, inner], "status": 500}
    log = tmp_path / "log"
    later = "\n".join(f"later {n}" for n in range(2 * LINES))
    log.write_text(f"{json.dumps(event)}\n{later}\n", encoding="utf-8")
    lines = end_of(log).splitlines()
    assert lines[: FRAMES + 4] == [
        TRACEBACK,
        *(f"  /a/b.py:{n} run" for n in range(9, FRAMES + 9)),
        "KeyError: 'x'",
        "  /a/b.py:0 run",
        "RuntimeError: no x",
    ]


def test_a_line_that_only_resembles_json_is_shown_as_it_is(tmp_path: Path) -> None:
    """The report of a failure never fails by itself."""
    log = tmp_path / "log"
    lines = ['{"exception": [', '{"exception": "x"}', '{"exception": [{"frames": [1]}]}']
    log.write_text("\n".join(lines), encoding="utf-8")
    assert end_of(log).splitlines() == lines


def test_long_lines_are_cut_in_their_middle(tmp_path: Path) -> None:
    """An error that is one line of JSON ends with what was raised."""
    log = tmp_path / "log"
    log.write_text("{" + "x" * 9_000 + "KeyError'}", encoding="utf-8")
    (line,) = end_of(log).splitlines()
    assert line.startswith("{x")
    assert line.endswith("KeyError'}")
    assert len(line) <= LINE_CHARACTERS + 5
