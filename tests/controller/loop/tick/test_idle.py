"""Ticks of dataflows in which nothing happens: what they cost, and what ends the rest of one.

Work is counted, in calls of the store; nothing is timed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from controller.loop.tick.kept_dataflows import TURN_SECONDS
from controller.store.base import open_beside
from tests.controller.world import DIAMOND, ONE, World, statuses
from tests.counting import Counting

MANY = 40


@pytest.fixture
def counted(world: World) -> tuple[World, Counting]:
    """A world whose calls of the store are counted."""
    counting = Counting(world.store)
    world.store = counting  # type: ignore[assignment]
    world.restart()
    return world, counting


def register(world: World, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        world.controller.register({**DIAMOND, "name": f"d{number:03d}"})


def idle_tick(world: World, counting: Counting, *, seconds: float = 0.0) -> dict[str, int]:
    """Return the calls of one tick in which nothing happens."""
    world.ticks()
    world.controller.tick()
    world.clock.advance(seconds)
    counting.reset()
    world.controller.tick()
    return dict(counting.calls)


def test_a_tick_asks_no_more_for_many_dataflows_than_for_one(
    counted: tuple[World, Counting],
) -> None:
    """While nothing happens: one statement for all revisions, and none for a dataflow."""
    world, counting = counted
    register(world, 1)
    one = idle_tick(world, counting)
    register(world, MANY, first=1)
    assert idle_tick(world, counting) == one == {"revisions": 1, "intended_runs": 1}
    assert not counting.about


def test_in_each_second_so_many_have_their_turn_that_all_have_it(
    counted: tuple[World, Counting],
) -> None:
    """Also if there are more ticks in that second; the turn goes round."""
    world, counting = counted
    register(world, MANY)
    idle_tick(world, counting)
    seen = set[str]()
    for _ in range(MANY):
        world.clock.advance(TURN_SECONDS)
        counting.reset()
        world.controller.tick()
        world.controller.tick()
        loaded = {name for (method, name) in counting.about if method == "stages"}
        assert len(loaded) == 1
        seen |= loaded
    assert len(seen) == MANY


def test_only_what_changed_is_loaded(counted: tuple[World, Counting]) -> None:
    """One of many gets input: no other one is read, before its run, beside it or behind it."""
    world, counting = counted
    register(world, MANY)
    idle_tick(world, counting)
    world.arrive("d007", "a", ("x", 1))
    counting.reset()
    world.ticks()
    assert [status for status, _, _ in statuses(world)] == ["COMMITTED"]
    loaded = {name for (method, name) in counting.about if method in ("stages", "connectors")}
    assert loaded == {"d007"}


Change = Callable[[World], Any]


def by_another_instance(world: World) -> None:
    with closing(open_beside(f"sqlite:///{world.root}/cbp.db")) as other:
        other.pause_stage("one", "sum", "another instance")


CHANGES: dict[str, tuple[Change, str]] = {
    "paused": (lambda world: world.controller.pause("one"), "the dataflow is paused"),
    "stage paused": (
        lambda world: world.controller.pause_stage("one", "sum"),
        "is paused by the operator",
    ),
    "another instance": (by_another_instance, "another instance"),
    "held": (
        lambda world: world.parts.holds.hold("one", "is being changed"),
        "is being changed",
    ),
    "deposed": (lambda world: world.controller.stop_leading("another leads"), "another leads"),
    "stopping": (lambda world: world.controller.stop_starting(), "the service is stopping"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_ends_the_rest_of_a_dataflow(world: World, change: str) -> None:
    """Whatever changes it, and whether the store or only this process knows."""
    world.controller.register(ONE)
    world.ticks()
    world.controller.tick()
    act, words = CHANGES[change]
    act(world)
    world.controller.tick()
    assert world.controller.waiting("one") == {"sum": words}


def test_what_held_a_dataflow_does_not_outlive_its_end(world: World) -> None:
    """A hold, and the time in which another instance led."""
    world.controller.register(ONE)
    world.parts.holds.hold("one", "is being changed")
    world.controller.tick()
    world.parts.holds.release("one")
    world.controller.tick()
    assert "input" in {wait.kind for wait in world.controller.waits("one").values()}
    world.controller.follow("another leads")
    world.controller.tick()
    world.controller.lead(0)
    world.controller.tick()
    assert "input" in {wait.kind for wait in world.controller.waits("one").values()}


def test_a_dataflow_that_is_deleted_and_made_anew_is_another_one(world: World) -> None:
    """Between two ticks, and by the same clock."""
    world.controller.register(ONE)
    world.ticks()
    world.controller.delete("one", purge=True)
    world.controller.register({**DIAMOND, "name": "one"})
    world.controller.tick()
    assert set(world.controller.waiting("one")) == {"left", "right", "join"}
    world.controller.delete("one", purge=True)
    world.controller.tick()
    assert not world.controller.every_wait()


def test_a_change_that_revises_nothing_is_found_in_turn(world: World) -> None:
    """As of an instance of an earlier release, which knows no revisions, while it is replaced."""
    world.controller.register(ONE)
    world.ticks()
    world.controller.tick()
    with closing(sqlite3.connect(Path(world.root) / "cbp.db")) as database:
        database.execute("UPDATE dataflows SET desired = 'paused'")
        database.commit()
    world.clock.advance(TURN_SECONDS)
    world.controller.tick()
    assert world.controller.waiting("one") == {"sum": "the dataflow is paused"}


def test_a_clock_that_is_set_back_ends_every_rest(counted: tuple[World, Counting]) -> None:
    """The time until which a dataflow rests would come again late."""
    world, counting = counted
    register(world, 3)
    idle_tick(world, counting)
    world.clock.advance(-3600)
    world.controller.tick()
    assert set(world.parts.ticker.looked) == {"d000", "d001", "d002"}
    world.controller.tick()
    assert not world.parts.ticker.looked
