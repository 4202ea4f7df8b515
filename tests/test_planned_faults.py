"""A planned fault strikes once, where it was planned."""

from __future__ import annotations

import pytest

from cbp.errors import InvariantError
from tests.planned_faults import Crash, PlannedFaults, check_point


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
    assert not issubclass(Crash, Exception), "no handler of errors catches it"
