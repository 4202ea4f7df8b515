"""A roll-back that a crash or an error interrupts ends before or after it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cbp.engine.direct import LocalEngine
from cbp.engine.storage.failpoints import NO_FAULTS
from cbp.errors import (
    DataflowBusyError,
    DiskFullError,
)
from controller.loop import LoopLimits
from tests.controller.framed_workload import DOCUMENT as FRAMED
from tests.controller.framed_workload import play as play_framed
from tests.controller.framed_workload import standing
from tests.controller.framings import ByKey, ByStretch
from tests.controller.rollbacks import back, number, play, tables
from tests.controller.world import DIAMOND, ONE, Deferred, World
from tests.planned_faults import Crash, PlannedFaults

pytestmark = pytest.mark.usefixtures("without_syncs")


POINTS = [
    f"{e}.{s}" for e in ("generation", "log_entry", "sql_commit") for s in ("before", "after")
]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, engine=LocalEngine)
    yield made
    made.close()


class Played:
    """A history that is played once, and restored for every crash."""

    def __init__(self, root: Path, document: dict[str, Any]) -> None:
        self.name = document["name"]
        self._root, self._kept = root / "world", root / "kept"
        world = self._world()
        world.controller.register(document)
        self.pictures = play(world, 4) if document is DIAMOND else play_framed(world)
        world.controller.pause(self.name)
        world.ticks()
        self.before, self._now = world.picture(), world.clock.now
        self._last = standing(world, self.name)
        world.close()
        shutil.copytree(self._root, self._kept)

    def again(self) -> World:
        shutil.rmtree(self._root)
        shutil.copytree(self._kept, self._root)
        world = self._world()
        world.clock.now = self._now
        return world

    def is_as_it_was(self, world: World) -> bool:
        """Tell whether queues and framings are those of the end; framings have no picture."""
        return bool(standing(world, self.name) == self._last)

    def _world(self) -> World:
        world = World(self._root, engine=LocalEngine)
        world.translators |= {"by_key": ByKey, "by_stretch": ByStretch}
        world.restart()
        return world


@pytest.fixture(scope="module")
def played(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Played:
    return Played(tmp_path_factory.mktemp("played"), request.param)


@pytest.mark.part(every=12)
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize(
    ("played", "passage"),
    [(FRAMED, 2), (DIAMOND, 2), (DIAMOND, 4), (FRAMED, 1)],
    indirect=["played"],
    ids=["framed-2", "diamond-2", "diamond-4", "framed-1"],
    scope="module",
)
def test_a_crash_ends_before_or_after(played: Played, point: str, passage: int) -> None:
    """Killed anywhere in a roll-back, a restart is where it was, or where it was to go."""
    world, name, there = played.again(), played.name, played.pictures[2]
    world.faults.to = PlannedFaults(point, passage=passage)
    with suppress(Crash):
        back(world, number(there, name), name=name, pause=True)
    world.faults.to = NO_FAULTS
    world.restart()
    begun = bool(world.controller.amendments.rollbacks(name))
    world.controller.recover()
    now = world.picture()
    if begun:
        assert tables(now, name) == tables(there, name)
    else:
        assert now == played.before
        assert played.is_as_it_was(world)
    world.controller.resume(name)
    world.ticks()
    assert world.picture() == played.pictures[-1]
    assert played.is_as_it_was(world)
    world.close()


def test_a_roll_back_that_cannot_be_finished_waits_for_resume(world: World) -> None:
    """A full disk behind the commit point: nothing runs, and resuming goes on with it."""
    world.controller.register(ONE)
    pictures = play(world, 3, name="one")
    world.faults.to = PlannedFaults("log_entry.before", error=DiskFullError("/x"))
    with pytest.raises(DiskFullError):
        back(world, "sum:0", name="one")
    world.faults.to = NO_FAULTS
    world.ticks()
    assert "roll-back" in world.controller.waiting("one")["sum"]
    for goal in ("sum:1", "sum:9"):
        with pytest.raises(DataflowBusyError):  # whatever it is: it is recorded nowhere yet
            back(world, goal, name="one")
    world.controller.resume("one")
    world.ticks()
    assert world.picture() == pictures[-1]


def test_a_roll_back_that_recovery_cannot_finish_is_tried_again(world: World) -> None:
    """Killed behind the commit point and no disk space afterwards: held until it is finished."""
    world.controller.register(ONE)
    pictures = play(world, 3, name="one")
    world.faults.to = PlannedFaults("log_entry.before")
    with suppress(Crash):
        back(world, "sum:0", name="one")
    world.restart()
    world.faults.to = PlannedFaults("log_entry.before", error=DiskFullError("/x"))
    world.controller.recover()
    world.faults.to = NO_FAULTS
    world.ticks()
    assert "could not be recovered" in world.controller.waiting("one")["sum"]
    assert world.store.dataflow("one").generation == 0
    world.clock.advance(2)
    world.ticks()
    assert world.store.dataflow("one").generation == 1
    assert world.picture() == pictures[-1]


def test_a_run_that_does_not_end_refuses_a_roll_back(tmp_path: Path) -> None:
    """The error says so, nothing is changed, and the dataflow runs on."""
    threads, at_once = Deferred(), LoopLimits(cancel_seconds=0.0)
    world = World(tmp_path, engine=LocalEngine, executor=threads, limits=at_once)
    world.controller.register(ONE)
    world.arrive("one", "a", ("w", 1))
    world.controller.tick()
    with pytest.raises(DataflowBusyError):
        back(world, "0", name="one")
    assert world.controller.amendments.rollbacks("one") == ()
    threads.run_next()
    world.controller.tick()
    threads.run_next()
    assert world.store.stages("one")[0].epoch == 1
    world.close()
