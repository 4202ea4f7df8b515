"""What a priority does to the order of the starts, and how long it can delay a stage at most."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbp.model.flow.connector import Connector
from cbp.model.flow.increment import Increment
from cbp.model.schedule.parallel_runs import ActiveRun, Places
from cbp.model.schedule.priority import NORMAL, PRIORITIES, WEIGHTS, Priority, waited
from cbp.model.schedule.scheduler import StageView, decide
from tests.sampling import examples

NOW = datetime(2026, 11, 21, 6, tzinfo=UTC)
READY = {"items": Connector("items").append(Increment("flow", 4, 4))}

priorities = st.sampled_from(PRIORITIES)


def view(stage: str, waited_seconds: float = 0, priority: Priority = NORMAL) -> StageView:
    since = NOW - timedelta(seconds=waited_seconds)
    return StageView("flow", stage, 0, READY, since, priority=priority)


def started(*views: StageView, most: int = 9) -> list[str]:
    return [start.stage for start in decide(views, now=NOW, places=Places(most)).starts]


def reason(one: StageView, *others: StageView, most: int = 1) -> str:
    return decide([one, *others], now=NOW, places=Places(most)).waiting[one.id]


def test_waiting_time_counts_by_priority() -> None:
    """High goes before what waited less than four times as long; low is the other way round."""
    assert started(view("a", 39), view("b", 10, "high")) == ["b", "a"]
    assert started(view("a", 41), view("b", 10, "high")) == ["a", "b"]
    assert started(view("a", 10), view("b", 39, "low")) == ["a", "b"]
    assert started(view("a", 10), view("b", 41, "low")) == ["b", "a"]
    assert started(view("a", 15, "high"), view("b", 239, "low")) == ["a", "b"]
    assert started(view("a", 15, "high"), view("b", 241, "low")) == ["b", "a"]


def test_the_weights_are_those_that_the_words_promise() -> None:
    """Four times, once, a quarter; a time in the future counts as none."""
    assert [WEIGHTS[one] / WEIGHTS[NORMAL] for one in PRIORITIES] == [0.25, 1, 4]
    assert waited(NOW + timedelta(hours=1), NOW, "high") == timedelta(0)


@given(
    st.lists(st.tuples(st.integers(-3, 5), st.integers(0, 2)), max_size=7),
    priorities,
    st.integers(1, 4),
)
def test_equal_priorities_change_nothing(
    stages: list[tuple[int, int]], priority: Priority, most: int
) -> None:
    """The order is that of waiting time, then epochs, then names: as it was without priorities.

    Also for stages that began to wait ahead of the clock.
    """
    views = [
        replace(view(f"s{n}", seconds, priority), epoch=epoch)
        for n, (seconds, epoch) in enumerate(stages)
    ]
    before = sorted(views, key=lambda one: (one.waiting_since, one.epoch, one.id))
    assert started(*views, most=most) == [one.stage for one in before][:most]


@dataclass
class Machine:
    """Stages that can always run, on some places; time goes from one end of a run to the next."""

    weights: list[Priority]
    most: int

    def __post_init__(self) -> None:
        self.now = NOW
        self.views = [view(f"s{n}", 0, one) for n, one in enumerate(self.weights)]
        self.ends: dict[int, datetime] = {}

    def step(self, seconds: list[float]) -> list[int]:
        """Start what is next, and go on to the next end; return what started."""
        views = [
            replace(
                one, running=n in self.ends, work=ActiveRun(*one.id) if n in self.ends else None
            )
            for n, one in enumerate(self.views)
        ]
        schedule = decide(views, now=self.now, places=Places(self.most))
        begun = [int(start.stage[1:]) for start in schedule.starts]
        for n in begun:
            self.ends[n] = self.now + timedelta(seconds=seconds.pop())
            self.views[n] = replace(
                self.views[n], waiting_since=self.now, epoch=self.views[n].epoch + 1
            )
        self.now = min(self.ends.values())
        self.ends = {n: end for n, end in self.ends.items() if end > self.now}
        return begun


@settings(max_examples=examples(20))
@given(st.lists(priorities, min_size=2, max_size=5), st.integers(1, 2), st.integers(0, 999))
def test_nothing_waits_longer_than_its_weight_allows(
    weights: list[Priority], most: int, seed: int
) -> None:
    """At most 1 + W / w rounds, whatever the lengths of the runs.

    A round is the longest run, once for each stage.
    """
    machine, chance = Machine(weights, most), random.Random(seed)
    lengths, heaviest = [0.5, 1, 3, 9], max(WEIGHTS[one] for one in weights)
    for _ in range(300):
        at, since = machine.now, [one.waiting_since for one in machine.views]
        machine.step(chance.choices(lengths, k=len(weights)))
        for n, weight in enumerate(WEIGHTS[one] for one in weights):
            rounds = 1 + heaviest / weight
            assert (at - since[n]).total_seconds() <= rounds * max(lengths) * len(weights)


def test_a_priority_has_its_share() -> None:
    """With one place, a high stage runs four times as often as a normal one; low the least."""
    machine = Machine(["low", "normal", "high"], 1)
    for _ in range(210):
        machine.step([1.0])
    low, normal, high = (one.epoch for one in machine.views)
    assert high > 2 * normal > 4 * low > 0, (low, normal, high)


def test_whoever_waits_behind_a_higher_priority_says_so() -> None:
    """It names those that have a place or get one now; equals and lower ones it does not."""
    low, high = view("a", 10, "low"), view("b", 9, "high")
    behind = (
        "waits for a free slot (1 in all); its priority is low, and stages with a higher priority "
        "have slots: "
    )
    assert reason(low, high) == f"{behind}`b` (high)"
    running = replace(high, running=True)
    assert reason(low, running) == f"{behind}`b` (high)"
    assert reason(low, replace(running, dataflow="other")).endswith(
        "a higher priority have slots: `other.b` (high)"
    )
    assert reason(high, replace(low, running=True)) == "waits for a free slot (1 in all)"
    assert reason(low, replace(low, stage="c", running=True)) == "waits for a free slot (1 in all)"
    many = [replace(running, stage=f"r{n}") for n in range(5)]
    assert reason(low, *many).endswith("`r0` (high), `r1` (high), `r2` (high) and 2 more")


@pytest.mark.parametrize("priority", PRIORITIES)
def test_a_clock_that_stands_still_starves_nobody(priority: Priority) -> None:
    """Everything starts once before anything starts twice, whatever its priority."""
    views = [view("a", 0, "high"), view("b", 0, priority), view("c", 0, "low")]
    seen = []
    for _ in range(3):
        (stage,) = started(*views, most=1)
        seen.append(stage)
        views = [replace(v, epoch=v.epoch + (v.stage == stage)) for v in views]
    assert sorted(seen) == ["a", "b", "c"]
