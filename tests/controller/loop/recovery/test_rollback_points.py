"""A position is one thing, however it is named: by its number, by its last run, or by its time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cbp.engine.direct import LocalEngine
from cbp.engine.interface.garbage_collector import Retention
from cbp.model.version.rollback_point import PointAfterRun
from controller.loop import LoopLimits
from tests.controller.rollbacks import back, plan
from tests.controller.world import ONE, World

pytestmark = pytest.mark.usefixtures("without_syncs")

WAYS = ["number", "epoch", "time"]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Return a dataflow that has read three files, eleven seconds apart, with one that waits."""
    made = World(tmp_path, engine=LocalEngine)
    made.controller.register(ONE)
    for word in ("before", "between", "after"):
        made.clock.advance(11)
        made.arrive("one", "a", (word, 1))
        made.clock.advance(2)  # a file waits a little before it is read
        made.ticks()
    made.controller.pause("one")
    made.clock.advance(11)
    made.arrive("one", "a", ("waiting", 1))
    yield made
    made.close()


def named(world: World, position: int, way: str) -> str:
    """Return the name of a position, as `--moments` prints it."""
    moments = world.controller.amendments.moments("one", limit=10)
    (moment,) = (one for one in moments if one.point.number == position)
    at = datetime.fromtimestamp(moment.point.at_ms / 1000, UTC).isoformat()
    return {
        "number": str(position),
        "epoch": f"{moment.stage}:{moment.epoch}",
        "time": at,
    }[way]


def words(world: World) -> list[str]:
    rows = world.engine.records.read_state(
        world.store.dataflow("one").folder,
        world.controller.dataflow("one").stages["sum"],
        "sums",
    )
    return sorted(row["word"] for row in rows)


@pytest.mark.part(every=15)
@pytest.mark.parametrize("drop_later", [False, True])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("position", [0, 1, 2, 3])
def test_a_position_is_one_thing_however_it_is_named(
    world: World, position: int, way: str, drop_later: bool
) -> None:
    """Files that its runs read stay; all others are dropped, or applied again: by any name."""
    if position == 0 and way == "epoch":
        pytest.skip("no run is before it")
    to = named(world, position, way)
    planned = plan(world, to, name="one", drop_later=drop_later)
    assert planned.generation.position.number == position
    assert planned.queued_before == {}
    later = 4 - position
    assert dict(planned.generation.dropped) == ({"a": later} if drop_later else {})
    assert planned.queued == {"sum.items": 0 if drop_later else later}
    back(world, to, name="one", drop_later=drop_later)
    world.controller.resume("one")
    world.ticks()
    every = ["before", "between", "after", "waiting"]
    assert words(world) == sorted(every[:position] if drop_later else every)


@pytest.mark.parametrize("way", WAYS)
def test_a_kept_position_does_not_bring_back_what_arrived_before_it_was_put(
    tmp_path: Path, way: str
) -> None:
    """The oldest moment is that of a position, which holds a file that came after its last run."""
    keep = Retention(versions_min=50, versions_max=50, seconds=3600, attempt_seconds=0)
    few = LoopLimits(records_kept=1)
    world = World(tmp_path, engine=LocalEngine, retention=keep, collect_every=99, limits=few)
    world.controller.register(ONE)
    for number in range(4):
        world.clock.advance(11)
        world.arrive("one", "a", (f"w{number}", 1))
        world.ticks()
    world.controller.pause("one")
    world.clock.advance(11)
    world.arrive("one", "a", ("bad", 1))
    world.controller.housekeeping.collect("one")
    world.controller.resume("one")
    world.ticks()
    oldest = world.controller.amendments.moments("one", limit=10)[-1]
    assert oldest.point.number == 4
    to = named(world, 4, way)
    planned = plan(world, to, name="one", drop_later=True)
    assert (dict(planned.generation.dropped), planned.queued_before) == ({"a": 1}, {})
    back(world, to, name="one", drop_later=True)
    world.ticks()
    assert words(world) == ["w0", "w1", "w2", "w3"]
    world.close()


@pytest.mark.parametrize("drop_later", [False, True])
def test_moments_are_listed_in_parts(world: World, drop_later: bool) -> None:
    """Below any position, as many as are asked for: together they are all moments, once each."""
    moments = world.controller.amendments.moments
    every = moments("one", limit=10, drop_later=drop_later)
    assert [one.point.number for one in every] == [3, 2, 1, 0]
    parts, below = list[PointAfterRun](), None
    while part := moments("one", limit=2, below=below, drop_later=drop_later):
        parts += part
        below = part[-1].point.number
    assert parts == every


def test_a_file_that_was_dropped_stays_so_behind_a_restart(world: World) -> None:
    """Nothing that a plan said to drop is back when the service starts again."""
    back(world, "1", name="one", drop_later=True)
    world.restart()
    world.controller.recover()
    world.controller.resume("one")
    world.ticks()
    assert words(world) == ["before"]
