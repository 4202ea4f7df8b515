"""Recovery: killed at any named point, a restart alone leads where an unbroken run leads."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from cbp.engine.direct import LocalEngine
from cbp.engine.storage.failpoints import NO_FAULTS
from cbp.errors import DiskFullError, ForeignWriterError
from tests.controller.crashes import CRASHES, play, rows
from tests.controller.lost import SourceLogs
from tests.controller.world import DIAMOND, ONE, World
from tests.planned_faults import Crash, PlannedFaults

pytestmark = pytest.mark.usefixtures("without_syncs")

# The points that the controller's own path passes; the engine and ingestion have more.
POINTS = [
    f"{effect}.{side}"
    for effect in ("job", "intention", "log_entry", "data_file", "sql_commit")
    for side in ("before", "after")
]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    world = World(tmp_path_factory.mktemp("unbroken"))
    play(world)
    picture = world.picture()
    world.close()
    return picture


def test_the_script_does_something(unbroken: dict[str, Any]) -> None:
    """The picture that crashes are compared with holds epochs of all stages."""
    assert unbroken["diamond epochs"] == {"left": 3, "right": 2, "join": 2}
    assert len(unbroken["diamond join.pairs"]) == 4


@pytest.mark.part(every=15)
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("every", [1, 2, 3])
def test_crashes_at_any_passage_of_a_point_change_nothing(
    point: str, every: int, tmp_path: Path, unbroken: dict[str, Any]
) -> None:
    """Killed at every n-th passage, recovery included: same queues, epochs and tables."""
    world = World(tmp_path)
    crashes = play(world, *[PlannedFaults(point, passage=every) for _ in range(CRASHES)])
    assert crashes >= min(CRASHES, 7 // every)
    assert world.picture() == unbroken
    assert world.store.intended_runs() == []
    world.close()


@pytest.mark.part(every=4)
@pytest.mark.service
@pytest.mark.parametrize(
    ("point", "every"),
    [
        ("sql_commit.before", 2),
        ("sql_commit.after", 2),
        ("sql_commit.after", 1),
        ("intention.after", 1),
    ],
)
def test_crashes_on_postgresql_change_nothing(
    point: str,
    every: int,
    tmp_path: Path,
    unbroken: dict[str, Any],
    new_postgres_database: Callable[[], str],
) -> None:
    """The part of the matrix in which the database takes part: what was not committed is undone."""
    world = World(tmp_path, database_url=new_postgres_database())
    assert world.store._database.label.startswith("postgresql")
    crashes = play(world, *[PlannedFaults(point, passage=every) for _ in range(CRASHES)])
    assert crashes >= min(CRASHES, 7 // every)
    assert world.picture() == unbroken
    assert world.store.intended_runs() == []
    world.close()


@pytest.mark.part(every=2)
@pytest.mark.service
@pytest.mark.parametrize("every", [3, 7])
def test_deaths_inside_a_transaction_on_postgresql_change_nothing(
    every: int,
    tmp_path: Path,
    unbroken: dict[str, Any],
    new_postgres_database: Callable[[], str],
) -> None:
    """Between its statements, at every n-th one that writes: what it wrote so far is undone."""
    world = World(tmp_path, database_url=new_postgres_database())
    written = itertools.count(1)

    @event.listens_for(world.store._database._engine, "after_cursor_execute")
    def die(connection: Any, cursor: Any, statement: str, *more: Any) -> None:
        if statement.startswith(("INSERT", "UPDATE", "DELETE")):
            number = next(written)
            if number % every == 0 and number // every <= CRASHES:
                point = f"statement {number}"
                raise Crash(point)

    assert play(world) == CRASHES
    assert world.picture() == unbroken
    assert world.store.intended_runs() == []
    world.close()


@pytest.mark.part(every=4)
@pytest.mark.parametrize(
    "point",
    [
        "data_file.after",
        "job.after",
        "data_sync.before",
        "data_file.before",
        "intention.after",
        "data_sync.after",
        "log_entry.after",
        "log_entry.before",
        "sql_commit.before",
        "sql_commit.after",
    ],
)
def test_the_direct_engine_is_recovered_too(point: str, tmp_path: Path) -> None:
    """The same with real tables: what readers see is what translators say, crashes or not."""
    world = World(tmp_path, engine=LocalEngine)
    crashes = play(world, *[PlannedFaults(point, passage=2) for _ in range(CRASHES)])
    assert crashes > 0
    picture = world.picture()
    assert picture["diamond left.sums"] == rows(("x", 6), ("y", 3))
    assert picture["diamond right.sums"] == rows(("x", 2), ("y", 4))
    both = [(row["word"], row["n"], row["_epoch"]) for row in picture["diamond join.both"]]
    assert both == [("x", 3, 0), ("y", 7, 1)]
    assert picture["diamond epochs"] == {"left": 3, "right": 2, "join": 2}
    world.close()


def test_a_run_without_a_record_is_interrupted_and_runs_again(world: World) -> None:
    """A crash during the job leaves a run that is no failure, and a new attempt follows."""
    world.controller.register(ONE)
    world.arrive("one", "a", ("x", 1))
    for _ in range(4):
        world.faults.to = PlannedFaults("job.after")
        with pytest.raises(Crash):
            world.controller.tick()
        world.faults.to = NO_FAULTS
        world.restart()
        world.controller.recover()
    world.ticks()
    runs = world.store.runs().items
    assert [run.attempt for run in runs] == [5, 4, 3, 2, 1]
    assert {(run.error or {}).get("error_code") for run in runs[1:]} == {"run_interrupted"}
    assert world.store.stages("one")[0].epoch == 1


def test_an_epoch_that_is_recorded_is_never_run_again(world: World) -> None:
    """Even if recovery could not look at the log: a tick that finds a record redoes it."""
    world.controller.register(ONE)
    world.arrive("one", "a", ("x", 1))
    world.faults.to = PlannedFaults("sql_commit.before", passage=2)
    with pytest.raises(Crash):
        world.controller.tick()
    world.faults.to = NO_FAULTS
    world.restart()
    world.ticks()
    assert world.engine.prepared == []
    assert [run.status.value for run in world.store.runs().items] == ["COMMITTED"]
    assert world.store.stages("one")[0].epoch == 1


def test_interruptions_do_not_count_towards_the_pause(world: World) -> None:
    """Two crashes and one failure are one failure, not three."""
    world.controller.register(ONE)
    world.arrive("one", "a", ("x", 1))
    for _ in range(2):
        world.faults.to = PlannedFaults("job.before")
        with pytest.raises(Crash):
            world.controller.tick()
        world.faults.to = NO_FAULTS
        world.restart()
        world.controller.recover()
    world.faults.to = PlannedFaults("job.before", error=DiskFullError("/x"))
    world.controller.tick()
    stage = world.store.stages("one")[0]
    assert stage.paused_because == ""
    assert stage.retry_at is not None
    assert (stage.retry_at - world.clock()).total_seconds() == 1.0


def test_a_record_that_cannot_be_published_at_start_does_not_stop_the_others(world: World) -> None:
    """A foreign writer that recovery finds pauses one stage; everything else starts."""
    world.controller.register(DIAMOND)
    world.arrive("diamond", "a", ("x", 1))
    world.faults.to = PlannedFaults("sql_commit.before", passage=2)
    with pytest.raises(Crash):
        world.ticks()
    world.faults.to = NO_FAULTS
    world.restart()
    error = ForeignWriterError("/t", version=1, operation="DELETE", engine="Someone")

    def refuse(intention: Any) -> None:
        if intention.stage == "left" and not world.store.stages("diamond")[1].paused_because:
            raise error

    world.engine.on_publish = refuse
    world.controller.recover()
    world.arrive("diamond", "b", ("y", 1))
    world.ticks()
    stages = {stage.stage: stage for stage in world.store.stages("diamond")}
    assert "Someone" in stages["left"].paused_because
    assert stages["right"].epoch == 1


def test_a_lost_store_is_rebuilt_from_the_folders(tmp_path: Path) -> None:
    """Descriptions and logs are enough: a new database gets the same queues and epochs."""
    world = World(tmp_path / "old")
    play(world)
    before = world.picture()
    flows = {"a": 3, "b": 2}
    increments = [
        world.store.increment("diamond", flow, index).increment
        for flow, count in flows.items()
        for index in range(count)
    ]
    world.close()
    new = World(tmp_path / "new")
    new.tables = world.tables
    new.restart()

    new.arrivals = SourceLogs(new, "diamond", increments)
    assert new.controller.rebuild() == ["diamond"]
    assert new.picture() == before
    assert new.engine.prepared == []
    assert new.controller.rebuild() == []
    new.close()


def test_an_unreadable_record_pauses_its_stage(world: World) -> None:
    """A damaged log entry is never skipped: its stage stops and says so."""
    world.controller.register(ONE)
    world.arrive("one", "a", ("x", 1))
    world.files.put_if_absent(world.parts.open_log(f"{world.tables}/one")._path("sum", 0), b"{")
    world.controller.recover()
    world.ticks()
    because = world.store.stages("one")[0].paused_because
    assert "_intentions/sum/00000000000000000000.json is damaged: its content" in because
    assert "`cbp backfill one sum`" in because
    assert world.engine.prepared == []


def test_what_a_purge_left_behind_is_removed(world: World) -> None:
    """A crash in the middle of a purge leaves nothing under the name, and nothing for long."""
    world.controller.register(ONE)
    folder = Path(world.tables) / "one"
    left = Path(world.tables) / ".purged-one-1"
    folder.rename(left)
    world.restart()
    world.controller.recover()
    assert not left.exists()
