"""A marker file `_CLOSE` closes a source behind the files that are older than it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cbp.errors import FlowUnframedError, OperatingError
from tests.controller.ingest.harness import Drop, lines
from tests.planned_faults import Crash, PlannedFaults

SCHEMA = "id BIGINT, name STRING"


class Closing(Drop):
    """A drop folder that notes, per key, behind which increment it was closed."""

    def __init__(self, root: Path, *, settle_seconds: float = 0) -> None:
        self.closed: dict[str, int] = {}
        self.fails: list[Exception] = []
        super().__init__(root, SCHEMA, settle_seconds=settle_seconds, on_close=self.on_close)

    def on_close(self, dataflow: str, source: str, key: str) -> None:
        if self.fails:
            raise self.fails.pop()
        self.closed.setdefault(key, self.store.next_index(dataflow, source))

    def put_at(self, second: int, name: str, data: bytes = b"") -> None:
        self.put(name, data)
        os.utime(self.incoming / name, (second, second))


@pytest.fixture
def drop(tmp_path: Path) -> Closing:
    return Closing(tmp_path)


def test_a_marker_has_its_turn_among_the_files(drop: Closing) -> None:
    """Behind what is older, or as old, before what is newer; it ends in `finished`."""
    drop.put_at(30, "late", lines(1, 2))
    drop.put_at(20, "_CLOSE")
    drop.put_at(20, "same", lines(1, 1))
    drop.put_at(10, "early", lines(1, 0))
    report = drop.scan()
    assert (report.accepted, report.closed, report.waiting) == (3, 1, 0)
    assert [row["id"] for row in drop.rows()] == [0, 1, 2]
    assert list(drop.closed.values()) == [2]
    assert drop.names("incoming") == []
    assert sum(name.endswith("-_CLOSE") for name in drop.names("finished")) == 1
    drop.put_at(40, "_CLOSE")
    assert drop.scan().closed == 1
    assert list(drop.closed.values()) == [2, 3]


def test_a_marker_waits_for_older_files_that_are_not_settled(tmp_path: Path) -> None:
    """Newer ones wait with it, or they would be closed in too."""
    drop = Closing(tmp_path, settle_seconds=60)
    drop.put_at(20, "_CLOSE")
    drop.put_at(30, "late", lines(1, 1))
    drop.scan()
    drop.pass_seconds(61)
    drop.put_at(10, "early", lines(1, 0))
    report = drop.scan()
    assert (report.accepted, report.closed, report.waiting) == (0, 0, 3)
    drop.pass_seconds(61)
    assert drop.scan().closed == 1
    assert ([row["id"] for row in drop.rows()], list(drop.closed.values())) == ([0, 1], [1])


@pytest.mark.parametrize("passage", range(1, 6))
@pytest.mark.parametrize("side", ["before", "after"])
def test_a_marker_closes_once_wherever_it_is_killed(drop: Closing, side: str, passage: int) -> None:
    """Before it was sealed, before its close, before it was moved away."""
    drop.put_at(10, "early", lines(1, 0))
    drop.put_at(20, "_CLOSE")
    drop.start(PlannedFaults(f"rename.{side}", passage=passage))
    try:
        drop.scan()
    except Crash:
        pass
    else:
        assert passage > 4, "two moves of the file, two of the marker"
    drop.start()
    drop.recover()
    drop.put_at(5, "late", lines(1, 1))  # though its time says that it is older
    for _ in range(2):
        drop.scan()
    assert len(drop.closed) == 1
    sealed = passage > 3 or (passage == 3 and side == "after")
    assert list(drop.closed.values()) == [1 if sealed else 2]
    assert drop.names("incoming") == []


def test_a_close_that_fails_is_tried_again(drop: Closing) -> None:
    """Nothing behind it is claimed before."""
    drop.put_at(20, "_CLOSE")
    drop.put_at(30, "late", lines(1, 0))
    drop.fails = [OperatingError("no database"), OperatingError("no database")]
    for _ in range(2):
        (failure,) = drop.scan().failures
        assert failure.code == "operating_failure"
        assert drop.increments() == []
    assert drop.scan().closed == 1
    assert list(drop.closed.values()) == [0]


def test_a_marker_that_nobody_needs_is_quarantined(drop: Closing) -> None:
    """No stage frames the source: its producer gets an error, and files go on."""
    drop.fails = [FlowUnframedError("orders", [])]
    drop.put_at(20, "_CLOSE")
    drop.put_at(30, "late", lines(1, 0))
    report = drop.scan()
    assert (report.accepted, report.quarantined, report.closed) == (1, 1, 0)
    (reason,) = drop.reasons()
    assert reason["error_code"] == "flow_unframed"
    assert drop.names("incoming") == []
