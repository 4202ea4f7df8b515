"""The service publishes by policy: several epochs at once, nothing lost in between.

Killed between or within publications, with any policy, a restart leads to the same tables, and a
torn publication to one timestamp.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from cbp.engine.commit.release import release_table
from cbp.engine.delta.log import DeltaLog
from cbp.engine.direct import LocalEngine
from cbp.engine.interface.garbage_collector import Retention
from cbp.engine.storage.failpoints import NO_FAULTS
from cbp.engine.storage.files import LocalFiles
from cbp.errors import DataflowBusyError, ForeignWriterError
from cbp.model.run.correction import Correction
from tests.controller.crashes import CRASHES, play, rows
from tests.controller.lost import SourceLogs
from tests.controller.rollbacks import back
from tests.controller.rollbacks import number as moment
from tests.controller.world import DIAMOND, ONE, Deferred, World
from tests.planned_faults import Crash, PlannedFaults

pytestmark = pytest.mark.usefixtures("without_syncs")

STATE = "state/sum.sums"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, engine=LocalEngine)
    yield made
    made.close()


def times_of(world: World, dataflow: str, table: str) -> list[int]:
    """Return the times of a table's versions, but of the first."""
    log = DeltaLog(f"{world.tables}/{dataflow}/{table}", LocalFiles())
    return [log.stamp(version) for version in log.versions()[1:]]


def publishing(document: dict[str, Any], epochs: int, seconds: float = 60.0) -> dict[str, Any]:
    return {**document, "publish": {"epochs": epochs, "seconds": seconds}}


def arrive(world: World, *records: tuple[str, int]) -> None:
    """Bring one increment to the only source, and let it be processed."""
    world.arrive("one", "a", *records)
    world.ticks()


def shown(world: World) -> list[str]:
    """Return what readers of the state see."""
    return sorted(map(repr, world.controller.reading.read_state("one", "sum", "sums")))


def entries(world: World, table: str = STATE) -> int:
    """Return how many entries a table of the dataflow `one` has, but the first."""
    return DeltaLog(f"{world.tables}/one/{table}", LocalFiles()).latest_version()


def test_tables_show_several_epochs_at_once(world: World) -> None:
    """Runs go on at full pace; state and outputs become visible at every third epoch."""
    world.controller.register(publishing(ONE, 3))
    for number in range(7):
        arrive(world, ("x", 1))
        assert len(world.flow("one", "sum.totals")) == number + 1
        published = (number + 1) // 3
        assert entries(world) == entries(world, "flows/sum.totals") == published
        assert shown(world) == (rows(("x", 3 * published)) if published else [])
        records = world.controller.reading.look_up("one", "sum", "sums", {"word": "x"})
        assert [row["n"] for row in records] == ([3 * published] if published else [])
        assert world.parts.publisher.unpublished("one") == {"sum": (number + 1) % 3}


def test_tables_have_one_time_though_the_clock_goes_back_behind_registration(world: World) -> None:
    """Also where an epoch changes one of them only: as of any time they show one epoch."""
    world.controller.register(ONE)
    world.clock.advance(-3)
    world.restart()
    right = [Correction({"word": "x"}, "records", ({"n": 5},))]
    world.controller.amendments.correct("one", "sum", "sums", right, who="me", why="first")
    arrive(world, ("x", 1))
    logs = [DeltaLog(f"{world.tables}/one/{t}", LocalFiles()) for t in (STATE, "flows/sum.totals")]
    assert [log.latest_version() for log in logs] == [2, 1]
    assert len({log.stamp(log.latest_version()) for log in logs}) == 1
    assert len({log.stamp(0) for log in logs}) == 1


def test_no_record_waits_longer_than_its_seconds(world: World) -> None:
    """A dataflow that falls idle is published by a later tick."""
    world.controller.register(publishing(ONE, 9, seconds=5.0))
    world.clock.advance(1)  # else the record's time is behind that of its tables, not now
    arrive(world, ("x", 1))
    world.clock.advance(4.9)
    world.ticks()
    assert shown(world) == []
    world.clock.advance(0.1)
    world.ticks()
    assert shown(world) == rows(("x", 1))


@pytest.mark.parametrize("how", ["pause", "drain", "delete"])
def test_who_stops_a_dataflow_publishes_it(how: str, world: World) -> None:
    """What is finished is visible before nothing runs any more."""
    world.controller.register(publishing(ONE, 9))
    arrive(world, ("x", 1))
    arrive(world, ("x", 2))
    assert entries(world) == 0
    if how == "pause":
        world.controller.pause("one")
        world.controller.tick()
    elif how == "drain":
        assert world.controller.drain(1.0)
    else:
        world.controller.delete("one")
    assert entries(world) == 1


@pytest.mark.parametrize("recovers", [True, False], ids=["recover", "tick"])
def test_a_kill_between_publications_loses_nothing(recovers: bool, world: World) -> None:
    """The next run builds on records that no table shows, found from the log alone."""
    world.controller.register(publishing(ONE, 9))
    for number in range(4):
        arrive(world, ("x", 1), (f"y{number}", 1))
    world.restart()
    if recovers:
        world.controller.recover()
        assert len(shown(world)) == 5
    arrive(world, ("x", 1))
    assert world.flow("one", "sum.totals")[-1]["n"] == 5
    world.controller.drain(1.0)
    assert rows(("x", 5))[0] in shown(world)


@pytest.mark.part(every=8)
@pytest.mark.parametrize("epochs", [2, 5])
@pytest.mark.parametrize(
    "point",
    [
        f"{effect}.{side}"
        for effect in ("intention", "vectors_file", "log_entry", "sql_commit")
        for side in ("before", "after")
    ],
)
def test_crashes_at_any_point_change_nothing(point: str, epochs: int, tmp_path: Path) -> None:
    """Killed again and again: the tables of an unbroken run, whatever the policy."""
    world = World(tmp_path, engine=LocalEngine)
    faults = [PlannedFaults(point, passage=2) for _ in range(CRASHES)]
    crashes = play(world, *faults, document=publishing(DIAMOND, epochs))
    assert crashes > 0 or point.startswith("vectors_file")
    world.controller.drain(1.0)
    picture = world.picture()
    assert picture["diamond left.sums"] == rows(("x", 6), ("y", 3))
    assert picture["diamond right.sums"] == rows(("x", 2), ("y", 4))
    both = [(row["word"], row["n"], row["_epoch"]) for row in picture["diamond join.both"]]
    assert both == [("x", 3, 0), ("y", 7, 1)]
    assert picture["diamond epochs"] == {"left": 3, "right": 2, "join": 2}
    world.close()


def test_a_torn_publication_is_made_whole_with_its_timestamp(world: World) -> None:
    """Killed between two tables, a restart publishes the rest at the same timestamp."""
    world.controller.register(publishing(ONE, 2))
    arrive(world, ("x", 1))
    world.arrive("one", "a", ("x", 1))
    # The first entry is the record's, the second the state's, the third the output's.
    world.faults.to = PlannedFaults("log_entry.before", passage=3)
    with pytest.raises(Crash):
        world.controller.tick()
    assert entries(world) == 1
    assert entries(world, "flows/sum.totals") == 0
    world.faults.to = NO_FAULTS
    world.clock.advance(1_000)
    world.restart()
    world.controller.recover()
    stamps = {
        DeltaLog(f"{world.tables}/one/{table}", LocalFiles()).stamp(1)
        for table in (STATE, "flows/sum.totals")
    }
    assert len(stamps) == 1
    assert entries(world) == 1


def test_a_publication_that_failed_in_the_middle_is_made_whole_first(world: World) -> None:
    """By the next try, though the policy would wait for more epochs."""
    world.controller.register(publishing(ONE, 9))
    arrive(world, ("x", 1))
    world.restart()
    world.faults.to = PlannedFaults("log_entry.before", passage=2, error=OSError("full"))
    world.controller.recover()
    assert (entries(world), entries(world, "flows/sum.totals")) == (1, 0)
    world.clock.advance(60)
    world.ticks()
    assert times_of(world, "one", STATE) == times_of(world, "one", "flows/sum.totals")
    assert entries(world) == 1


def test_no_run_under_way_joins_a_publication_that_failed_in_the_middle(tmp_path: Path) -> None:
    """It is made whole with its timestamp before the run is recorded."""
    executor = Deferred()
    world = World(tmp_path, engine=LocalEngine, executor=executor)
    world.controller.register(publishing(DIAMOND, 9, seconds=5.0))
    world.clock.advance(1)
    world.arrive("diamond", "a", ("x", 1))
    world.controller.tick()
    executor.run_next()
    for source in "ba":
        world.arrive("diamond", source, ("x", 1))
        world.controller.tick()
    world.clock.advance(5)
    # The first entry is the record's of `right`, the second that of the state of `left`.
    world.faults.to = PlannedFaults("log_entry.before", passage=3, error=OSError("full"))
    executor.run_next()
    assert "left" in {stage for _, stage in world.parts.parked.all()}
    executor.run_next()
    times = times_of(world, "diamond", "state/left.sums")
    assert len(times) == 2
    assert times == times_of(world, "diamond", "flows/left.totals")
    world.close()


def test_timestamps_rise_over_all_stages(world: World) -> None:
    """All tables of a publication have its timestamp, even if the clock was set back."""
    world.controller.register(publishing(DIAMOND, 2))
    for number in range(4):
        world.arrive("diamond", "a", ("x", number))
        world.arrive("diamond", "b", ("x", number))
        world.ticks()
        world.clock.advance(-30.0)
    world.controller.drain(1.0)
    records_log = world.parts.open_log(f"{world.tables}/diamond")
    records = [one for stage in ("left", "right", "join") for one in records_log.since(stage, 0)]
    assert len({one.prepared_ms for one in records}) == len(records)
    for stage in ("left", "right", "join"):
        times = [one.prepared_ms for one in records_log.since(stage, 0)]
        assert times == sorted(times)
    stamps = []
    for stage, state in (("left", "sums"), ("right", "sums"), ("join", "pairs")):
        log = DeltaLog(f"{world.tables}/diamond/state/{stage}.{state}", LocalFiles())
        actual = [log.stamp(version) for version in log.versions()[1:]]
        assert actual == sorted(set(actual))
        stamps.append(actual)
    assert stamps[0][-1] == stamps[1][-1] == stamps[2][-1]


def test_a_foreign_entry_stops_the_stage_and_not_the_others(world: World) -> None:
    """Its records stay, the others publish; once it is mended, the stage goes on."""
    world.controller.register(publishing(DIAMOND, 2))
    broken = True
    publish = world.engine.publisher.publish

    def refuse(folder: str, intentions: Any, *, timestamp_ms: int) -> Any:
        if broken and intentions[0].stage == "left":
            raise ForeignWriterError("/t", version=1, operation="DELETE", engine="Someone")
        return publish(folder, intentions, timestamp_ms=timestamp_ms)

    world.engine.publisher.publish = refuse
    for number in range(3):
        world.arrive("diamond", "a", ("x", number))
        world.arrive("diamond", "b", ("x", number))
        world.ticks()
    stages = {stage.stage: stage for stage in world.store.stages("diamond")}
    assert "Someone" in stages["left"].paused_because
    assert stages["right"].paused_because == ""
    assert stages["right"].epoch == 3
    broken = False
    world.controller.retry("diamond", "left")
    world.ticks()
    world.controller.drain(1.0)
    assert {stage.epoch for stage in world.store.stages("diamond")} == {3}
    assert world.picture()["diamond left.sums"] == rows(("x", 3))


def test_a_collector_keeps_what_records_name(world: World) -> None:
    """Files of unpublished records are needed until they are published."""
    world.controller.register(publishing(ONE, 3))
    arrive(world, ("x", 1))
    arrive(world, ("y", 1))
    needed = world.parts.publisher.files_needed("one")
    assert len([path for path in needed if path.startswith(STATE)]) == 2
    assert all((Path(world.tables) / "one" / path).exists() for path in needed)
    arrive(world, ("z", 1))
    assert world.parts.publisher.files_needed("one") == set()


def test_a_lost_store_finds_what_is_not_published(tmp_path: Path) -> None:
    """Records alone are enough, published or not."""
    world = World(tmp_path / "old", engine=LocalEngine)
    world.controller.register(publishing(ONE, 3))
    for _ in range(5):
        arrive(world, ("x", 1))
    increments = [world.store.increment("one", "a", index).increment for index in range(5)]
    assert shown(world) == rows(("x", 3))
    world.close()
    new = World(tmp_path / "new", engine=LocalEngine)
    new.tables = world.tables
    new.restart()

    new.arrivals = SourceLogs(new, "one", increments)
    assert new.controller.rebuild() == ["one"]
    assert shown(new) == rows(("x", 5))
    assert new.store.stages("one")[0].epoch == 5
    new.close()


def test_a_table_is_published_before_it_is_released(world: World) -> None:
    """Taking a table over finds everything that was finished."""
    world.controller.register(publishing(ONE, 9))
    arrive(world, ("x", 1))
    arrive(world, ("x", 2))
    path = f"{world.tables}/one/{STATE}"
    files = LocalFiles()
    assert release_table(path, files=files, now_ms=1) == 2
    assert release_table(path, files=files, now_ms=1) == 2
    frame = pl.scan_delta(path).select("word", "n").collect()
    assert frame.to_dicts() == [{"word": "x", "n": 3}]


def test_a_table_can_be_released_right_after_a_roll_back(world: World) -> None:
    """A stage that has not run since the roll-back has nothing to publish."""
    world.controller.register(ONE)
    arrive(world, ("x", 1))
    picture = world.picture()
    arrive(world, ("x", 2))
    back(world, moment(picture, "one"), name="one", pause=True)
    path = f"{world.tables}/one/{STATE}"
    release_table(path, files=LocalFiles(), now_ms=1)
    frame = pl.scan_delta(path).select("word", "n").collect()
    assert frame.to_dicts() == [{"word": "x", "n": 1}]


def test_a_table_is_not_released_within_a_roll_back(world: World) -> None:
    """Killed once it was recorded, it is finished by a service; the table shows what it undid."""
    world.controller.register(ONE)
    arrive(world, ("x", 1))
    picture = world.picture()
    arrive(world, ("x", 2))
    path, files = f"{world.tables}/one/{STATE}", LocalFiles()
    world.faults.to = PlannedFaults("generation.after")
    with pytest.raises(Crash):
        back(world, moment(picture, "one"), name="one", pause=True)
    with pytest.raises(DataflowBusyError, match="roll-back is recorded"):
        release_table(path, files=files, now_ms=1)
    world.restart()
    world.faults.to = NO_FAULTS
    world.controller.recover()
    release_table(path, files=files, now_ms=1)
    frame = pl.scan_delta(path).select("word", "n").collect()
    assert frame.to_dicts() == [{"word": "x", "n": 1}]


def test_collection_after_every_epoch_loses_nothing(world: World) -> None:
    """Files of records that no table shows outlive any collection."""
    world.controller.register(publishing(ONE, 4))
    everything = Retention(versions_min=0, versions_max=1, seconds=0.0, attempt_seconds=0.0)
    node = world.controller.dataflow("one").stages["sum"]
    for number in range(14):
        arrive(world, ("x", 1), (f"y{number % 3}", 1))
        world.engine.garbage.collect(
            f"{world.tables}/one",
            node,
            queued=lambda: world.parts.publisher.files_needed("one"),
            retention=everything,
        )
    world.controller.drain(1.0)
    assert shown(world) == rows(("x", 14), ("y0", 5), ("y1", 5), ("y2", 4))


def test_a_log_is_never_trimmed_beyond_what_a_restart_reads(world: World) -> None:
    """With just the records that are needed left, a restart finds what is not published."""
    world.controller.register(publishing(ONE, 4))
    for _ in range(6):
        arrive(world, ("x", 1))
    log = world.parts.open_log(f"{world.tables}/one")
    newest = log.read("sum", 5)
    assert newest is not None
    assert newest.unpublished_from == 4
    log.trim({"sum": newest.unpublished_from})
    world.restart()
    world.controller.recover()
    assert shown(world) == rows(("x", 6))
