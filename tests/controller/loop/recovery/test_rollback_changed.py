"""Roll-backs of dataflows that have changed, and changes of those that were rolled back.

A changed dataflow goes back within its version, one that was rolled back changes, and both outlive
the store.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cbp.engine.direct import LocalEngine
from cbp.engine.interface.garbage_collector import Retention
from cbp.errors import RollbackImpossibleError
from controller.loop import LoopLimits
from tests.controller.lost import lose_the_store
from tests.controller.world import ONE, World

pytestmark = pytest.mark.usefixtures("without_syncs")

TWO = {**ONE, "stages": {**ONE["stages"], "more": ONE["stages"]["sum"]}}
BUCKETS = {**ONE, "stages": {"sum": {**ONE["stages"]["sum"], "buckets": 4}}}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, engine=LocalEngine)
    made.controller.register(ONE)
    yield made
    made.close()


def play(world: World, *numbers: int) -> None:
    for number in numbers:
        world.clock.advance(1)
        world.arrive("one", "a", (f"w{number % 2}", number))
        world.ticks()


def back(world: World, to: str) -> Any:
    done = world.controller.amendments.roll_back("one", to, who="me", why="bad", pause=True)
    return done.position


def sums(world: World, stage: str) -> Any:
    return world.picture()[f"one {stage}.sums"]


def test_a_changed_dataflow_goes_back_within_its_version(world: World) -> None:
    """Down to where the version began, and on again from there; never behind it."""
    play(world, 1, 2)
    begun = world.picture()
    world.controller.change(TWO)
    play(world, 3, 4)
    after = world.picture()
    assert back(world, "sum:1").version == 2
    assert sums(world, "sum") == begun["one sum.sums"]
    assert sums(world, "more") == []
    assert world.picture()["one queues"]["more"] == {"items": ["a/2", "a/3"]}
    world.controller.resume("one")
    world.ticks()
    assert world.picture() == after
    with pytest.raises(RollbackImpossibleError) as refused:
        back(world, "sum:0")
    assert world.picture() == after
    first = refused.value.details["position"]
    assert world.controller.housekeeping.reach("one").oldest_position == first
    assert back(world, str(first)).number == first
    assert sums(world, "sum") == begun["one sum.sums"]


@pytest.mark.parametrize("before", [(), (1, 2)])
def test_it_goes_back_to_where_a_version_began_that_altered_its_tables(
    world: World, before: tuple[int, ...]
) -> None:
    """What altered a table at its begin belongs to it, whether runs came before or not."""
    play(world, *before)
    world.controller.change(BUCKETS)
    begun = world.picture()
    play(world, 3, 4)
    after = world.picture()
    assert back(world, str(len(before))).version == 2
    assert sums(world, "sum") == begun["one sum.sums"]
    world.controller.resume("one")
    world.ticks()
    assert world.picture() == after


def test_the_store_of_a_dataflow_that_changed_behind_a_roll_back_can_be_lost(
    world: World, tmp_path: Path
) -> None:
    """The older generation is not begun again: the newer version replaces it."""
    play(world, 1, 2, 3)
    back(world, "sum:1")
    world.controller.resume("one")
    world.ticks()
    world.controller.change(TWO)
    play(world, 4)
    new = lose_the_store(world, tmp_path / "new", {"a": 4})
    assert new.picture() == world.picture()
    for one in (world, new):
        play(one, 5)
    assert new.picture() == world.picture()
    new.close()


def test_a_roll_back_behind_a_change_outlives_the_store(world: World, tmp_path: Path) -> None:
    """Brought back, it is where the roll-back left it, as the newest version."""
    play(world, 1)
    world.controller.change(TWO)
    play(world, 2, 3)
    back(world, "more:0")
    new = lose_the_store(world, tmp_path / "new", {"a": 3})
    new.controller.pause("one")
    assert new.picture() == world.picture()
    for one in (world, new):
        one.controller.resume("one")
        one.ticks()
    assert new.picture() == world.picture()
    new.close()


@pytest.mark.soak
def test_a_stage_that_came_behind_a_roll_back_is_collected_and_shown(tmp_path: Path) -> None:
    """Its tables have no mark of the generation, and count by it all the same."""
    tiny = Retention(versions_min=1, versions_max=1, seconds=0, attempt_seconds=0)
    one = LoopLimits(records_kept=1)
    world = World(tmp_path, engine=LocalEngine, retention=tiny, collect_every=2, limits=one)
    world.controller.register(ONE)
    play(world, 1, 2)
    back(world, "sum:0")
    world.controller.resume("one")
    world.ticks()
    world.controller.change(TWO)
    play(world, *range(3, 30))
    assert world.controller.snapshots.take("one").epochs == {"sum": 28, "more": 26}
    table = Path(world.tables) / "one/state/more.sums"
    assert len(list(table.rglob("*.parquet"))) < 30
    world.close()
