"""Increments that wait are read by one run, where only the final state counts.

Whatever crashes, each increment is applied once; a roll-back finds a moment between two runs, and
a lost database is rebuilt from the records, which name what each run read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cbp.engine.direct import LocalEngine
from tests.controller.lost import lose_the_store
from tests.controller.world import ONE, World
from tests.planned_faults import Crash, PlannedFaults

pytestmark = pytest.mark.usefixtures("without_syncs")

MANY: dict[str, Any] = {
    **ONE,
    "sources": {"a": {"schema": ONE["sources"]["a"]["schema"], "batch": {}}},
}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "here", engine=LocalEngine)
    yield made
    made.close()


def reads(world: World) -> list[tuple[int, ...]]:
    """Return what each committed run read, oldest first."""
    runs = reversed(world.store.runs(limit=500).items)
    return [tuple(run.read["items"]) for run in runs if run.status.value == "COMMITTED"]


def arrive(world: World, count: int, start: int = 0) -> None:
    for number in range(start, start + count):
        world.arrive("one", "a", (f"w{number % 3}", number), ("w", 1))


def sums(count: int) -> list[str]:
    """Return the state behind so many increments."""
    totals = {"w": count}
    for number in range(count):
        totals[f"w{number % 3}"] = totals.get(f"w{number % 3}", 0) + number
    return sorted(repr({"word": word, "n": n}) for word, n in totals.items())


def state(world: World) -> list[str]:
    found: list[str] = world.picture()["one sum.sums"]
    return found


def test_what_waits_is_read_by_one_run(world: World) -> None:
    """In the order of its arrival; without `batch` in the source, one increment a run."""
    world.controller.register(MANY)
    arrive(world, 3)
    world.ticks()
    assert reads(world) == [(0, 1, 2)]
    assert state(world) == sums(3)
    arrive(world, 1, start=3)
    world.ticks()
    assert reads(world) == [(0, 1, 2), (3,)]
    world.controller.register({**ONE, "name": "other"})
    for number in range(2):
        world.arrive("other", "a", ("x", number))
    world.ticks()
    assert world.store.stages("other")[0].epoch == 2


@pytest.mark.part(every=4)
@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("effect", ["intention", "log_entry", "sql_commit"])
def test_a_crash_anywhere_applies_each_increment_once(
    tmp_path: Path, effect: str, side: str
) -> None:
    """Killed at each passage of the point; more increments wait when it starts again.

    A run that is recorded has read what the record names, and the later ones are read after it.
    """
    passage = 0
    while True:
        passage += 1
        world = World(tmp_path / str(passage), engine=LocalEngine)
        world.controller.register(MANY)
        arrive(world, 3)
        world.faults.to = PlannedFaults(f"{effect}.{side}", passage=passage)
        try:
            world.ticks()
            crashed = False
        except Crash:
            crashed = True
        world.faults.to = lambda point: None
        world.restart()
        world.controller.recover()
        arrive(world, 2, start=3)
        world.ticks()
        assert state(world) == sums(5)
        assert sorted(index for read in reads(world) for index in read) == [0, 1, 2, 3, 4]
        world.close()
        if not crashed:
            break
    assert passage > 1


def test_a_moment_between_two_runs_is_rolled_back_to(world: World) -> None:
    """What the undone run read waits again, and the same tables come of it."""
    world.controller.register(MANY)
    arrive(world, 3)
    world.ticks()
    arrive(world, 3, start=3)
    world.ticks()
    assert reads(world) == [(0, 1, 2), (3, 4, 5)]
    world.controller.amendments.roll_back("one", "1", who="me", why="try", pause=True)
    world.ticks()
    assert state(world) == sums(3)
    assert world.picture()["one queues"] == {"sum": {"items": ["a/3", "a/4", "a/5"]}}
    arrive(world, 1, start=6)
    world.controller.resume("one")
    world.ticks()
    assert state(world) == sums(7)


def test_a_lost_database_is_rebuilt_from_what_the_records_name(
    world: World, tmp_path: Path
) -> None:
    """The queue holds what no record has read."""
    world.controller.register(MANY)
    arrive(world, 4)
    world.ticks()
    world.controller.drain(0)
    world.controller.pause("one")
    arrive(world, 2, start=4)
    world.controller.pause("one")
    before = world.picture()
    new = lose_the_store(world, tmp_path / "new", {"a": 6})
    assert new.picture() == before
    new.controller.resume("one")
    new.ticks()
    assert state(new) == sums(6)
    new.close()
