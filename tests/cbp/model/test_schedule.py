"""What to start next: serial epochs, limits, fairness, and a reason for whoever waits."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from cbp.model.connector import Connector
from cbp.model.increment import Increment
from cbp.model.schedule import StageView, decide

NOW = datetime(2026, 11, 21, 6, tzinfo=UTC)
READY = {"items": Connector("items").append(Increment("flow", 4, 4))}
EMPTY = {"items": Connector("items")}


def view(stage: str, *, waited: int = 0, running: bool = False, ready: bool = True) -> StageView:
    since = NOW - timedelta(seconds=waited)
    return StageView("flow", stage, 0, READY if ready else EMPTY, since, running)


def started(*views: StageView, parallel_max: int = 9) -> list[str]:
    return [s.stage for s in decide(views, now=NOW, parallel_max=parallel_max).starts]


def reason(one: StageView, *others: StageView, parallel_max: int = 9) -> str:
    schedule = decide([one, *others], now=NOW, parallel_max=parallel_max)
    return schedule.waiting["flow", one.stage]


def test_a_runnable_stage_starts_with_what_it_reads() -> None:
    """A start carries the epoch and the decision of the stage's Runnable."""
    (start,) = decide([replace(view("a"), epoch=3)], now=NOW, parallel_max=1).starts
    assert (start.dataflow, start.stage, start.epoch) == ("flow", "a", 3)
    assert start.decision.read == {"items": (4,)}


def test_epochs_of_one_stage_are_serial() -> None:
    """A stage that runs does not start again."""
    assert started(view("a", running=True)) == []
    assert reason(replace(view("a", running=True), epoch=7)) == "runs epoch 7"


def test_whoever_waited_longest_starts_first() -> None:
    """Starts are ordered by waiting time, then by name."""
    assert started(view("a", waited=1), view("c", waited=5), view("b", waited=5)) == ["b", "c", "a"]


def test_running_stages_count_against_the_limit() -> None:
    """At most so many runs at a time; the rest says what it waits for."""
    views = [view("a", running=True), view("b", waited=2), view("c", waited=1)]
    assert started(*views, parallel_max=2) == ["b"]
    assert reason(views[2], *views[:2], parallel_max=2) == "waits for one of 2 places for runs"
    assert started(*views, parallel_max=1) == []


def test_a_paused_stage_says_why() -> None:
    """A stage that is not wanted to run gives the reason, in words."""
    assert reason(replace(view("a"), active=False, paused_because="3 failures")) == "3 failures"
    assert reason(replace(view("a"), active=False)) == "is paused"


def test_a_failed_stage_waits_until_its_time() -> None:
    """Not before `retry_at`; then it starts."""
    later = replace(view("a"), retry_at=NOW + timedelta(seconds=30))
    assert reason(later) == "tries again at 2026-11-21 06:00:30 UTC"
    assert started(replace(view("a"), retry_at=NOW)) == ["a"]


def test_a_stage_without_input_says_what_is_missing() -> None:
    """The reason comes from the Runnable; a place is not taken."""
    assert reason(view("a", ready=False)) == "waits for an increment on items"
    assert started(view("a", ready=False, waited=9), view("b"), parallel_max=1) == ["b"]


@given(
    st.lists(st.tuples(st.integers(0, 5), st.booleans(), st.booleans()), max_size=8),
    st.integers(0, 4),
)
def test_everybody_starts_runs_or_has_a_reason(
    stages: list[tuple[int, bool, bool]], parallel_max: int
) -> None:
    """No stage is forgotten, none is both, and the limit holds."""
    views = [
        view(f"s{i}", waited=waited, running=running, ready=ready)
        for i, (waited, running, ready) in enumerate(stages)
    ]
    schedule = decide(views, now=NOW, parallel_max=parallel_max)
    starting = {(start.dataflow, start.stage) for start in schedule.starts}
    assert starting.isdisjoint(schedule.waiting)
    assert starting | schedule.waiting.keys() == {(v.dataflow, v.stage) for v in views}
    assert all(schedule.waiting.values())
    already = sum(v.running for v in views)
    assert len(starting) <= max(0, parallel_max - already)


@given(st.integers(1, 3), st.integers(1, 6))
def test_nobody_starves(parallel_max: int, count: int) -> None:
    """With input always waiting, every stage starts within as many ticks as there are stages."""
    waiting = {f"s{i}": 0 for i in range(count)}
    seen = set()
    for tick in range(1, count + 1):
        views = [
            replace(view(s), waiting_since=NOW + timedelta(seconds=t)) for s, t in waiting.items()
        ]
        for stage in started(*views, parallel_max=parallel_max):
            seen.add(stage)
            waiting[stage] = tick
    assert seen == waiting.keys()
