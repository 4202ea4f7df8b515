"""What rests is left out until something can have changed it, and has its turn all the same."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from cbp.errors import OperatingError
from cbp.model.schedule.idle_until import FOR_EVER, next_in_turn, rests_until
from cbp.model.schedule.scheduler import StageView
from cbp.model.schedule.waiting import Wait

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)


def view(stage: str = "s", **given: Any) -> StageView:
    return StageView("d", stage, 0, {}, NOW, **given)


def waits(kind: Any, stage: str = "s") -> dict[tuple[str, str], Wait]:
    return {("d", stage): Wait(kind, "", NOW)}


@pytest.mark.parametrize("kind", ["input", "frame", "paused", "stopped"])
def test_what_waits_for_others_to_act_rests_for_ever(kind: Any) -> None:
    """Only input, or an operator, lets it go on: both change its data."""
    assert rests_until([view()], waits(kind)) == FOR_EVER


@pytest.mark.parametrize("kind", ["framing", "asking", "readers", "place", "running"])
def test_what_goes_on_by_itself_does_not_rest(kind: Any) -> None:
    """A place, or an answer, comes without a change of the data."""
    assert rests_until([view()], waits(kind)) is None


def test_what_has_started_or_failed_does_not_rest() -> None:
    """Neither does a stage that finishes a run, nor one that shows an error."""
    assert rests_until([view()], {}) is None
    assert rests_until([view(finishing=True)], waits("retry")) is None
    failed = {key: replace(w, error=OperatingError("no")) for key, w in waits("stopped").items()}
    assert rests_until([view()], failed) is None


def test_a_time_that_is_known_ends_the_rest() -> None:
    """The next try and the next timer; the timer of a paused stage does not."""
    assert rests_until([view(retry_at=LATER)], waits("retry")) == LATER
    assert rests_until([view(due_at=LATER)], waits("timer")) == LATER
    assert rests_until([view(due_at=LATER, active=False)], waits("paused")) == FOR_EVER


def test_the_stage_that_is_due_first_ends_the_rest_of_all() -> None:
    """A dataflow is looked at as a whole."""
    views = [view("a"), view("b", due_at=LATER), view("c", retry_at=NOW)]
    all_waits = waits("input", "a") | waits("timer", "b") | waits("retry", "c")
    assert rests_until(views, all_waits) == NOW


@given(st.sets(st.text("abc", min_size=1), min_size=1), st.integers(1, 7))
def test_in_so_many_calls_each_name_has_its_turn(names: set[str], turns: int) -> None:
    """None is left out, wherever the turns begin, and no call takes more than its share."""
    ordered, seen, behind = sorted(names), set[str](), "b"
    for _ in range(turns + 1):
        chosen = next_in_turn(ordered, behind, turns=turns)
        assert 1 <= len(chosen) <= -(-len(ordered) // turns)
        behind = chosen[-1]
        seen.update(chosen)
    assert seen == names


def test_of_nothing_nothing_has_its_turn() -> None:
    """A service without dataflows."""
    assert list(next_in_turn([], "")) == []
