"""Failpoints: names are closed, and a planned fault strikes once, where it was planned."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from cbp.engine.storage.failpoints import (
    EFFECTS,
    NO_FAULTS,
    POINTS,
    Crash,
    PlannedFaults,
    check_point,
)
from cbp.engine.storage.files import LocalFiles
from cbp.errors import InvariantError


def test_points_are_both_sides_of_every_effect() -> None:
    """Each effect has a point before and one after it, and no two share a name."""
    assert len(POINTS) == 2 * len(EFFECTS) == len(set(POINTS))
    assert {"log_entry.before", "intention.after", "job.before"} <= set(POINTS)


def test_an_unknown_point_is_a_bug() -> None:
    """A test cannot wait for a point that never comes, nor code pass an unnamed one."""
    for use in (check_point, PlannedFaults, PlannedFaults()):
        with pytest.raises(InvariantError):
            use("log_entry.during")


def test_a_planned_fault_strikes_at_its_passage_only() -> None:
    """The n-th passage raises, those before and after do not."""
    faults = PlannedFaults("job.before", passage=2)
    faults("job.before")
    with pytest.raises(Crash):
        faults("job.before")
    faults("job.before")
    assert faults.passed["job.before"] == 3


def test_no_faults_travels_to_executors() -> None:
    """The production default is picklable and does nothing."""
    pickle.loads(pickle.dumps(NO_FAULTS))("job.before")


@pytest.mark.parametrize("effect", ["log_entry", "intention"])
def test_a_put_passes_both_sides_and_leaves_no_temporary(tmp_path: Path, effect: str) -> None:
    """Before: nothing is there. After: all of it is. Never a temporary file."""
    for side, there in (("before", False), ("after", True)):
        target = str(tmp_path / side)
        files = LocalFiles(PlannedFaults(f"{effect}.{side}"))
        with pytest.raises(Crash):
            files.put_if_absent(target, b"x", what=effect)
        assert files.exists(target) is there
    assert sorted(p.name for p in tmp_path.iterdir()) == ["after"]
