"""A registration that fails anywhere has registered nothing, and may be tried again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cbp.errors import DiskFullError
from tests.controller.lost import SourceLogs
from tests.controller.world import ONE, Crash, World

pytestmark = pytest.mark.usefixtures("without_syncs")


class Failing:
    """Fails at one passage of an effect, and never again; counts them."""

    def __init__(self, at: int, kind: Callable[[str], BaseException] = DiskFullError) -> None:
        self.at, self.kind, self.passed = at, kind, 0

    def __call__(self, point: str) -> None:
        self.passed += 1
        if self.passed == self.at:
            raise self.kind(point)


@pytest.fixture(params=["new", "taken over"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Give a world in which a dataflow is to be registered, with a folder of it or without."""
    made = World(tmp_path)
    if request.param == "taken over":
        made.controller.register(ONE)
        made.arrive("one", "a", ("x", 1))
        made.ticks()
        made.arrive("one", "a", ("x", 3))
        logged = [made.store.increment("one", "a", index).increment for index in (0, 1)]
        made.controller.delete("one")
        made.arrivals = SourceLogs(made, "one", logged)
    yield made
    made.close()


def outcome(world: World) -> dict[str, Any]:
    """Return what is there once everything was tried again that failed."""
    world.faults.to = Failing(0)
    for _ in range(3):
        world.clock.advance(60)
        world.ticks()
    return world.picture()


def forget(world: World) -> None:
    world.controller.delete("one", purge=world.arrivals is None)


def unbroken(world: World) -> tuple[int, dict[str, Any]]:
    """Register without a failure; return how many passages that has, and what comes of it."""
    counted = Failing(0)
    world.faults.to = counted
    world.controller.register(ONE)
    passages, expected = counted.passed, outcome(world)
    forget(world)
    return passages, expected


@pytest.mark.part(every=2)
def test_who_is_told_of_a_failure_has_registered_nothing(world: World) -> None:
    """At each passage of each durable effect: nothing, or all of it; and a second try succeeds."""
    passages, expected = unbroken(world)
    refused = 0
    assert passages >= 4
    for at in range(1, passages + 1):
        world.faults.to = Failing(at)
        try:
            world.controller.register(ONE)
        except DiskFullError:
            refused += 1
            assert world.store.dataflows() == [], f"passage {at}"
            world.faults.to = Failing(0)
            world.controller.register(ONE)
        assert outcome(world) == expected, f"passage {at}"
        forget(world)
    assert refused


@pytest.mark.part(every=2, first=1)
def test_killed_anywhere_a_restart_finds_all_of_it_or_nothing(world: World) -> None:
    """What is registered then goes on; what is not is registered by the next try."""
    passages, expected = unbroken(world)
    for at in range(1, passages + 1):
        world.faults.to = Failing(at, Crash)
        with pytest.raises(Crash):
            world.controller.register(ONE)
        world.faults.to = Failing(0)
        arrivals = world.arrivals
        world.restart()
        world.arrivals = arrivals
        world.controller.recover()
        if not world.store.dataflows():
            world.controller.register(ONE)
        assert outcome(world) == expected, f"passage {at}"
        forget(world)
