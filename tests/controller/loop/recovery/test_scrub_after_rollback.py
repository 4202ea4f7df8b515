"""A scrub after a roll-back: nothing is lost but what is gone, of whatever generation it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cbp.engine.direct import LocalEngine
from cbp.engine.interface.garbage_collector import Retention
from cbp.engine.read.scrub import scrub
from controller.loop import LoopLimits
from tests.controller.rollbacks import back, play
from tests.controller.world import DIAMOND, World

pytestmark = pytest.mark.usefixtures("without_syncs")


@pytest.fixture(params=[1, 3], ids=["each-run", "every-third-run"])
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    """Return a dataflow that publishes each run, or several together."""
    made = World(tmp_path, engine=LocalEngine)
    made.controller.register({**DIAMOND, "publish": {"epochs": request.param}})
    play(made, 4)
    yield made
    made.close()


def damages(world: World) -> list[str]:
    folder = world.store.dataflow("diamond").folder
    return [f"{one.path}: {one.damage}" for one in scrub(folder, world.files) if one.damage]


def position(world: World) -> int:
    return sum(stage.epoch for stage in world.store.stages("diamond"))


@pytest.mark.part(every=2)
def test_a_roll_back_loses_nothing(world: World) -> None:
    """To the newest position, an earlier one, the first; twice in a row, and with runs between."""
    newest = position(world)
    for to in (newest, newest - 1, newest - 3, newest - 3, 0, 0):
        back(world, str(to), pause=True)
        assert damages(world) == [], to
    world.controller.resume("diamond")
    world.ticks()
    assert damages(world) == []
    back(world, str(position(world)), pause=True)
    assert damages(world) == []


@pytest.mark.part(every=2)
def test_a_record_that_is_lost_after_a_roll_back_is_missed(world: World) -> None:
    """The tables show its epoch, which belongs to the generation before the roll-back."""
    back(world, str(position(world)), pause=True)
    folder = Path(world.store.dataflow("diamond").folder)
    record = max((folder / "_intentions" / "left").glob("*.json"))
    record.unlink()
    assert [one for one in damages(world) if str(record) in one]


@pytest.mark.soak
def test_a_scrub_misses_no_record_that_was_collected(tmp_path: Path) -> None:
    """After a roll-back, with records that go as soon as they may."""
    keep = Retention(versions_min=2, versions_max=2, seconds=0, attempt_seconds=0)
    few = LoopLimits(records_kept=1, positions_kept=2)
    world = World(tmp_path, engine=LocalEngine, retention=keep, collect_every=1, limits=few)
    world.controller.register(DIAMOND)
    play(world, 6)
    back(world, str(position(world)))
    play(world, 6, start=6)
    back(world, str(position(world)))
    for _ in range(3):
        world.controller.housekeeping.collect("diamond")
        assert damages(world) == []
    world.close()
