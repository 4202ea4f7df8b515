"""Tables after a roll-back: generations, times, other readers and writers, collection."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars
import pytest

from cbp.engine.delta.log import DeltaLog
from cbp.engine.direct import LocalEngine
from cbp.engine.interface.garbage_collector import Retention
from cbp.engine.storage.failpoints import NO_FAULTS
from cbp.engine.storage.file_names import bucket_file
from cbp.errors import (
    LogConflictError,
    OperatingError,
    RollbackImpossibleError,
)
from controller.loop import LoopLimits
from controller.loop.records.version_log import Descriptions
from tests.controller.rollbacks import TINY, back, play
from tests.controller.world import ONE, World
from tests.planned_faults import PlannedFaults

pytestmark = pytest.mark.usefixtures("without_syncs")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, engine=LocalEngine)
    yield made
    made.close()


def test_a_snapshot_behind_a_roll_back_is_of_the_new_generation(world: World) -> None:
    """Epochs that were undone are in no snapshot, and those made again are."""
    world.controller.register(ONE)
    play(world, 3, name="one")
    back(world, "sum:0", name="one", pause=True)
    assert world.controller.snapshots.take("one").epochs == {"sum": 0}
    world.controller.resume("one")
    world.ticks()
    assert world.controller.snapshots.take("one").epochs == {"sum": 2}
    assert world.controller.snapshots.take("one", epoch=1).epochs == {"sum": 1}


def test_times_rise_from_amendment_to_amendment(world: World) -> None:
    """Though the clock stops or goes back: roll-backs, versions and runs in a row."""
    world.controller.register(ONE)
    play(world, 2, name="one")
    times = [back(world, goal, name="one").prepared_ms for goal in ("sum:0", "0", "0")]
    record = world.store.dataflow("one")
    more = {**ONE, "stages": {**ONE["stages"], "more": ONE["stages"]["sum"]}}
    world.clock.advance(-5)
    world.controller.change(more)
    begin = Descriptions(world.files).of(world.store.dataflow("one")).begin
    assert begin is not None
    world.ticks()
    runs = [world.parts.open_log(record.folder).read("sum", n) for n in (0, 1)]
    shown = {*times, *(run.prepared_ms for run in runs if run is not None)}
    times += [begin.at_ms, *(run.prepared_ms for run in runs if run is not None)]
    assert times == sorted(set(times))
    assert len(times) == 6
    for table in ("state/sum.sums", "flows/sum.totals"):
        log = DeltaLog(f"{record.folder}/{table}", world.files)
        stamps = [log.stamp(version) for version in log.readable()]
        assert shown <= set(stamps), table  # the version alters no table


def test_times_rise_behind_an_amendment_whose_answer_was_lost(world: World) -> None:
    """The store has it and said nothing: what comes next is later all the same."""
    world.controller.register(ONE)
    play(world, 2, name="one")
    lost = OperatingError("no answer")
    world.faults.to = PlannedFaults("sql_commit.after", error=lost)
    with pytest.raises(OperatingError):
        back(world, "0", name="one")
    world.faults.to = NO_FAULTS
    world.controller.resume("one")
    back(world, "0", name="one")
    times = [one.prepared_ms for one in world.controller.amendments.rollbacks("one")]
    more = {**ONE, "stages": {**ONE["stages"], "more": ONE["stages"]["sum"]}}
    world.faults.to = PlannedFaults("sql_commit.after", error=lost)
    with pytest.raises(OperatingError):
        world.controller.change(more)
    world.faults.to = NO_FAULTS
    world.controller.change(ONE)
    assert world.store.dataflow("one").version == 3
    for version in (2, 3):
        record = replace(world.store.dataflow("one"), version=version)
        begin = Descriptions(world.files).of(record).begin
        times.append(begin.at_ms if begin is not None else 0)
    assert times == sorted(set(times))


def test_other_readers_see_the_past_again(world: World) -> None:
    """Polars reads state and output as they were, with the vectors of then."""
    world.controller.register(ONE)
    play(world, 4, name="one")
    folder = world.store.dataflow("one").folder

    def read(table: str) -> list[Any]:
        frame = polars.read_delta(f"{folder}/{table}")
        return sorted(frame.select("word", "n").rows())

    back(world, "sum:1", name="one", pause=True)
    assert read("state/sum.sums") == [("w", 2), ("w0", 0), ("w1", 1)]
    assert read("flows/sum.totals") == [("w", 1), ("w", 2), ("w0", 0), ("w1", 1)]


def test_a_writer_of_the_old_generation_is_refused(world: World) -> None:
    """A controller that slept through a roll-back neither records nor publishes a run."""
    world.controller.register(ONE)
    play(world, 3, name="one")
    record = world.store.dataflow("one")
    late = world.parts.open_log(record.folder).read("sum", 2)
    assert late is not None
    back(world, "sum:0", name="one", pause=True)
    with pytest.raises(LogConflictError):
        world.parts.open_log(record.folder).put(late)
    with pytest.raises(LogConflictError):
        world.engine.publisher.publish(record.folder, [late], timestamp_ms=late.prepared_ms)


@pytest.mark.soak
def test_a_past_that_is_not_kept_is_refused(tmp_path: Path) -> None:
    """Collected tables or trimmed records: nothing is changed, and the reason is given."""
    one = LoopLimits(records_kept=1)
    world = World(tmp_path, engine=LocalEngine, retention=TINY, collect_every=2, limits=one)
    world.controller.register(ONE)
    pictures = play(world, 60, name="one")
    for to in ("0", "sum:0", "2026-01-01T00:00:03Z"):
        with pytest.raises(RollbackImpossibleError):
            back(world, to, name="one")
    assert world.picture() == pictures[-1]
    world.close()


@pytest.mark.soak
def test_collection_goes_on_behind_a_roll_back(tmp_path: Path) -> None:
    """Files of the new generation are never taken for those of an epoch long published."""
    few = LoopLimits(records_kept=1, positions_kept=4)
    keep = Retention(versions_min=4, versions_max=4, seconds=3600, attempt_seconds=0)
    world = World(tmp_path, engine=LocalEngine, retention=keep, collect_every=1, limits=few)
    world.controller.register(ONE)
    expected = play(world, 12, name="one")[-1]
    back(world, "sum:9", name="one", pause=True)
    record, node = world.store.dataflow("one"), world.controller.dataflow("one").stages["sum"]
    # What a run writes that is not recorded yet: its epoch was published once, and undone.
    fresh = Path(record.folder) / "state/sum.sums" / bucket_file(0, 10, "run", 0)
    fresh.write_bytes(b"")
    plans = world.engine.garbage.collect(
        record.folder, node, queued=set, retention=keep, dry_run=True
    )
    dead = {file.path for plan in plans.values() for file in plan.dead}
    assert not any(path.endswith(fresh.name) for path in dead)
    world.controller.resume("one")
    world.ticks()
    assert world.picture() == expected
    play(world, 60, name="one", start=12)
    (row,) = world.controller.reading.look_up("one", "sum", "sums", {"word": "w"})
    assert row["n"] == 72
    left = list((Path(world.tables) / "one" / "_intentions").rglob("*.json"))
    assert len(left) < 30
    assert not fresh.exists()
    world.close()
