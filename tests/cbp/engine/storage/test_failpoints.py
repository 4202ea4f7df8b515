"""Failpoints: both sides of every durable effect, under names that do not collide."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from cbp.engine.storage.failpoints import EFFECTS, NO_FAULTS, POINTS
from cbp.engine.storage.files import LocalFiles
from tests.planned_faults import Crash, PlannedFaults


def test_points_are_both_sides_of_every_effect() -> None:
    """Each effect has a point before and one after it, and no two share a name."""
    assert len(POINTS) == 2 * len(EFFECTS) == len(set(POINTS))
    assert {"log_entry.before", "intention.after", "job.before"} <= set(POINTS)


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
