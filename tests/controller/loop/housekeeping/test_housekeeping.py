"""Housekeeping: bounded folders, and the picture of a service that never collects."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cbp.engine.direct import LocalEngine
from cbp.engine.interface.garbage_collector import Retention
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.engine.storage.failpoints import NO_FAULTS
from cbp.errors import DiskFullError
from controller.loop import LoopLimits
from tests.controller.lost import SourceLogs
from tests.controller.world import DIAMOND, ONE, Deferred, World
from tests.planned_faults import Crash, PlannedFaults

TINY = Retention(versions_min=1, versions_max=1, seconds=0, attempt_seconds=0)
EPOCHS = 20


@pytest.fixture(scope="module", autouse=True)
def _fast() -> Iterator[None]:
    """Leave out the syncs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


def world_on(root: Path, *, every: int = 6, **more: Any) -> World:
    often = EngineLimits(checkpoint_entries=4)  # so that there is something to collect
    more = {"engine_limits": often, "collect_every": every, **more}
    return World(root, engine=LocalEngine, retention=TINY, **more)


def play(world: World, epochs: int = EPOCHS) -> None:
    """Bring increments to both sides, some of the right one late."""
    if not world.store.dataflows():
        world.controller.register(DIAMOND)
    for number in range(epochs):
        world.clock.advance(1)
        world.arrive("diamond", "a", (f"w{number % 3}", number))
        if number % 2:
            for _ in range(2):
                world.arrive("diamond", "b", ("w1", number))
        world.ticks()


def files(world: World) -> int:
    """Count the files of tables."""
    folder = Path(world.tables) / "diamond"
    return sum(path.is_file() for kind in ("state", "flows") for path in (folder / kind).rglob("*"))


@pytest.fixture(scope="module")
def unkept(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], int]:
    """Return picture and number of files of a service that never collects."""
    world = world_on(tmp_path_factory.mktemp("unkept"), every=10**6)
    play(world)
    actual = world.picture(), files(world)
    world.close()
    return actual


def test_a_kept_service_looks_the_same_and_smaller(
    tmp_path: Path, unkept: tuple[dict[str, Any], int]
) -> None:
    """Same queues, epochs, states and every record of every flow; fewer files."""
    world = world_on(tmp_path)
    play(world)
    assert files(world) < unkept[1] / 2
    assert world.picture() == unkept[0]
    world.close()


def test_crashes_while_it_keeps_house_change_nothing(tmp_path: Path) -> None:
    """Killed at any effect of a collection, again and again: a restart goes on."""
    world = world_on(tmp_path, every=1)
    world.controller.register(ONE)
    points = [f"{e}.{s}" for e in ("dead_entry", "dead_file") for s in ("before", "after")]
    struck = set()
    for number in range(20):
        world.arrive("one", "a", ("x", 1), (f"y{number}", 1))
        for point in points[number % 4 :] + points[: number % 4]:
            world.faults.to = PlannedFaults(point, passage=1 + number % 2)
            try:
                world.ticks()
            except Crash:
                struck.add(point)
                world.restart()
                world.controller.recover()
        world.faults.to = NO_FAULTS
        world.ticks()
    assert struck == set(points)
    sums = {r["word"]: r["n"] for r in world.controller.reading.read_state("one", "sum", "sums")}
    assert sums == {"x": 20} | {f"y{number}": 1 for number in range(20)}
    assert [r["n"] for r in world.flow("one", "sum.totals") if r["word"] == "x"] == [*range(1, 21)]
    world.close()


@pytest.mark.part(every=2)
@pytest.mark.parametrize("publish", [None, {"epochs": 3}])
def test_a_lost_store_begins_at_the_newest_position(tmp_path: Path, publish: Any) -> None:
    """The first records are gone; queues, epochs, states and old increments are not."""
    old = world_on(tmp_path / "old", every=4, limits=LoopLimits(records_kept=3))
    document = {**DIAMOND, "publish": publish} if publish else DIAMOND
    old.controller.register(document)
    play(old, 10)
    old.controller.pause("diamond")
    old.ticks()
    before = old.picture()
    log = old.parts.open_log(f"{old.tables}/diamond")
    assert (log.oldest("left") or 0) > 3
    increments = [
        old.store.increment("diamond", flow, n).increment for flow in "ab" for n in range(10)
    ]
    old.close()
    new = world_on(tmp_path / "new")
    new.tables = old.tables
    new.restart()

    new.arrivals = SourceLogs(new, "diamond", increments)
    assert new.controller.rebuild() == ["diamond"]
    new.controller.pause("diamond")
    assert new.picture() == before
    new.close()


def test_crashes_while_records_are_trimmed_change_nothing(tmp_path: Path) -> None:
    """Killed before or after any step: the position is there before a record goes."""
    world = world_on(tmp_path, every=1, limits=LoopLimits(records_kept=2))
    world.controller.register(ONE)
    points = [f"{e}.{s}" for e in ("snapshot", "dead_record") for s in ("before", "after")]
    struck = set()
    log = world.parts.open_log(f"{world.tables}/one")
    for number in range(12):
        world.arrive("one", "a", ("x", 1))
        for point in points[number % 4 :] + points[: number % 4]:
            world.faults.to = PlannedFaults(point)
            try:
                world.ticks()
            except Crash:
                struck.add(point)
                world.restart()
                world.controller.recover()
            world.faults.to = NO_FAULTS
            position, oldest = log.position(), log.oldest("sum")
            assert not oldest or (position and position.stages["sum"].epoch >= oldest)
        world.ticks()
    assert struck == set(points)
    (row,) = world.controller.reading.read_state("one", "sum", "sums")
    assert row["n"] == 12
    assert 8 <= (log.oldest("sum") or 0) <= 10
    world.close()


def test_runs_under_way_and_collections_do_not_meet(tmp_path: Path) -> None:
    """A run that was started before a collection ends after it as if there was none."""
    executor = Deferred()
    world = world_on(tmp_path, every=1, executor=executor)
    world.controller.register(ONE)
    total = 0
    for number in range(20):
        world.arrive("one", "a", ("x", number))
        total += number
        world.controller.tick()
        for _ in range(3):
            world.controller.tick()  # calm: the run is under way, and houses are kept
        while executor.waiting:
            executor.run_next()
            world.controller.tick()
    (row,) = world.controller.reading.read_state("one", "sum", "sums")
    assert row == {"word": "x", "n": total}
    assert [r["n"] for r in world.flow("one", "sum.totals")][-1] == total
    world.close()


def test_a_failing_collection_stops_nothing(tmp_path: Path) -> None:
    """It is reported, and tried again when it is due again."""
    world = world_on(tmp_path, every=2)
    world.controller.register(ONE)
    for number in range(14):
        world.faults.to = PlannedFaults("dead_entry.before", error=DiskFullError("/x"))
        world.arrive("one", "a", ("x", number))
        world.ticks()
    assert world.store.stages("one")[0].epoch == 14
    world.close()


def test_a_parked_stage_is_left_alone(tmp_path: Path) -> None:
    """What a publication that stopped half-way names is in no table yet."""
    world = world_on(tmp_path, every=1)
    world.controller.register(ONE)
    world.arrive("one", "a", ("x", 1))
    world.ticks()
    collected: list[str] = []
    collect = world.engine.garbage.collect

    def watched(folder: str, node: Any, **more: Any) -> Any:
        collected.append(node.name)
        return collect(folder, node, **more)

    world.engine.garbage.collect = watched
    world.faults.to = PlannedFaults("log_entry.before", error=DiskFullError("/x"))
    world.arrive("one", "a", ("x", 2))
    world.controller.tick()
    world.controller.tick()
    assert collected == []
    world.clock.advance(10)
    world.ticks()
    assert collected
    world.close()


def test_a_requested_collection_that_fails_says_so(tmp_path: Path) -> None:
    """It does not report files as removed that are still there."""
    world = world_on(tmp_path, every=10**6)
    play(world)
    world.faults.to = PlannedFaults("dead_entry.before", error=DiskFullError("/x"))
    with pytest.raises(DiskFullError):
        world.controller.housekeeping.collect("diamond")
    last = world.controller.housekeeping.last("diamond")
    assert last is not None
    assert last.by == "idle work"
    world.close()
