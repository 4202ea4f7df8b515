"""The runs that an executor was asked to end."""

from __future__ import annotations

from cbp.engine.run.cancelled_runs import CancelledRuns


def test_runs_that_never_notice_it_do_not_fill_the_memory() -> None:
    """Only so many are remembered; those that were cancelled last count."""
    runs = CancelledRuns(most=2)
    for name in ("a", "b", "c", "c"):
        runs.add(name)
    assert [name for name in "abc" if name in runs] == ["b", "c"]
    for name in ("c", "c"):
        runs.discard(name)
    assert "c" not in runs
    assert "b" in runs
