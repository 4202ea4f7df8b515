"""Retention in the service: what everybody has read goes, what somebody needs stays.

Inputs go only when nothing needs them, and what is left has no gaps. A dry run removes nothing and
says why the rest stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cbp import Input, Loopback, Output, State
from cbp.engine.direct import LocalEngine
from cbp.engine.interface.garbage_collector import Retention
from cbp.engine.storage.failpoints import NO_FAULTS
from cbp.errors import IncrementCollectedError
from cbp.model.flow.retention import FlowRetention
from controller.loop import LoopLimits
from controller.loop.housekeeping.input_retention import Keep
from tests.controller.lost import lose_the_store
from tests.controller.retained import OFTEN, TINY, play
from tests.controller.world import ONE, SCHEMA, Sum, World
from tests.planned_faults import Crash, PlannedFaults

NOTHING = Keep(FlowRetention(0), 5)
EPOCHS = 20


pytestmark = pytest.mark.usefixtures("without_syncs")


class Hourly(Sum):
    """Cuts its input by a column."""

    items = Input(SCHEMA, route_by="word", frame_by="n")


class Rumour(Sum):
    """Adds up, and emits the next two words of each number."""

    items = Input(SCHEMA, route_by="word")
    mail = Loopback(SCHEMA, route_by="word")
    sums = State(SCHEMA)
    totals = Output(SCHEMA, key="word")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        n = sum(row.n for row in group.sums)
        for row in group.items:
            n += row.n
            out.mail(f"{row.word}'", 1)
        for row in group.mail:
            n += 1
            if row.n:
                out.mail(f"{row.word}'", row.n - 1)
        out.sums(key.word, n)
        out.totals(key.word, n)


def world_on(root: Path, **more: Any) -> World:
    made: dict[str, Any] = {
        "retention": TINY,
        "collect_every": 3,
        **OFTEN,
        "keep": NOTHING,
        **more,
    }
    document = made.pop("document", ONE)
    world = World(root, engine=LocalEngine, **made)
    world.controller.register(document)
    return world


def inputs(world: World) -> list[int]:
    folder = Path(world.tables) / "one/sources/a"
    return sorted(int(path.name[:12]) for path in folder.glob("*.parquet"))


def test_what_everybody_has_read_goes(tmp_path: Path) -> None:
    """Files and rows; state, outputs, queues and epochs are those of who keeps everything."""
    kept, all_ = world_on(tmp_path / "a"), world_on(tmp_path / "b", keep=Keep(NOTHING.inputs, 999))
    play(kept, EPOCHS)
    assert len(inputs(kept)) < 10
    assert inputs(kept)[-1] == EPOCHS - 1
    assert len(kept.store.runs("one").items) < 12
    assert len(kept.store.increments("one", "sum.totals").items) < 12
    play(all_, EPOCHS)
    assert kept.picture() == all_.picture()
    assert kept.store.next_index("one", "a") == EPOCHS
    kept.close()
    all_.close()


def saying(**keep: Any) -> dict[str, Any]:
    return {**ONE, "sources": {"a": {**ONE["sources"]["a"], "keep": keep}}}


@pytest.mark.part(every=2)
@pytest.mark.parametrize(
    ("keep", "stays"),
    [
        ({"hours": 1}, range(EPOCHS)),
        ({"hours": 1, "bytes": 1}, range(EPOCHS - 10, EPOCHS)),
        ({"bytes": 1}, range(EPOCHS - 10, EPOCHS)),
        ({"until": "snapshot"}, range(EPOCHS - 10, EPOCHS)),
        ({}, range(EPOCHS - 10, EPOCHS)),
    ],
)
def test_a_dataflow_says_how_long_its_inputs_stay(
    tmp_path: Path, keep: dict[str, Any], stays: range
) -> None:
    """By age, by bytes, both, or until a snapshot; what is left open is as the service has it."""
    world = world_on(tmp_path, document=saying(**keep))
    play(world, EPOCHS)
    left = inputs(world)
    assert left[-1] == EPOCHS - 1
    assert set(left) <= set(stays)
    assert (len(left) == EPOCHS) == (len(stays) == EPOCHS)
    world.close()


@pytest.mark.soak
def test_a_service_that_keeps_everything_is_overruled(tmp_path: Path) -> None:
    """The other way round, and from the version on that says so."""
    world = world_on(tmp_path, keep=Keep(FlowRetention(10**6), 5))
    play(world, EPOCHS)
    assert len(inputs(world)) == EPOCHS
    world.controller.change(saying(hours=0))
    play(world, EPOCHS, EPOCHS)
    assert len(inputs(world)) < 10
    world.close()


def test_what_waits_stays(tmp_path: Path) -> None:
    """However old it is: a paused dataflow loses nothing, and reads it all in the end."""
    world = world_on(tmp_path)
    play(world, 10)
    world.controller.pause("one")
    for _ in range(20):
        world.clock.advance(86_400)
        world.arrive("one", "a", ("late", 1))
    world.controller.housekeeping.collect("one")
    assert set(range(10, 30)) <= set(inputs(world))
    world.controller.resume("one")
    world.ticks()
    (row,) = world.controller.reading.look_up("one", "sum", "sums", {"word": "late"})
    assert row["n"] == 20
    world.close()


def test_what_was_framed_is_not_framed_again_by_a_lost_store(tmp_path: Path) -> None:
    """Its files are gone, though every record is there: the position says how far framing is."""
    every = LoopLimits(records_kept=1000)
    often: dict[str, Any] = {"retention": TINY, "collect_every": 1, **OFTEN, "limits": every}
    world = World(tmp_path / "a", engine=LocalEngine, keep=NOTHING, **often)
    world.translators["sum"] = Hourly
    world.restart()
    world.controller.register(ONE)
    play(world, 6)
    assert inputs(world) == [5]
    new = lose_the_store(world, tmp_path / "b", {"a": 6})
    new.ticks()
    assert new.store.stages("one")[0].paused_because == ""
    assert new.picture() == world.picture()
    for one in (world, new):
        play(one, 2, start=6)
    assert new.picture() == world.picture()
    world.close()
    new.close()


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Callable[..., World]]:
    """Return what makes a world whose stage sends messages to itself."""
    worlds = []

    def made(name: str, retention: Retention, **keep: Any) -> World:
        stage = {**ONE["stages"]["sum"], "keep": keep}
        options = {"retention": retention, "collect_every": 3, "keep": NOTHING, **OFTEN}
        world = World(tmp_path / name, engine=LocalEngine, **options)
        world.translators["sum"] = Rumour
        world.restart()
        world.controller.register({**ONE, "stages": {"sum": stage}})
        worlds.append(world)
        play(world, EPOCHS)
        return world

    yield made
    for world in worlds:
        world.close()


def test_messages_go_once_they_are_read(told: Callable[..., World]) -> None:
    """They are no result, unless the stage declares how long they are kept."""
    goes, keeps = told("goes", TINY), told("keeps", TINY, mail={"hours": 10**4})
    reads = [each.controller.reading.read_flow for each in (goes, keeps)]
    oldest = [read("one", "sum.mail", None, 1)[0][0]["_epoch"] for read in reads]
    assert oldest[0] > EPOCHS
    assert oldest[1] == 0


@pytest.mark.soak
def test_a_roll_back_reads_messages_again(told: Callable[..., World]) -> None:
    """As far back as it may go they are there, and give the same once more."""
    retention = Retention(versions_min=12, versions_max=12, seconds=3600, attempt_seconds=0)
    world = told("back", retention)
    expected = world.picture()["one sum.sums"]
    assert world.controller.reading.read_flow("one", "sum.mail", None, 1)[0][0]["_epoch"] > 0
    world.controller.housekeeping.collect("one")
    epoch = world.store.stages("one")[0].epoch
    back = world.controller.amendments.roll_back
    back("one", f"sum:{epoch - 8}", who="me", why="x", pause=True)
    world.controller.resume("one")
    world.ticks()
    assert world.picture()["one sum.sums"] == expected


def test_a_roll_back_finds_what_it_reads_again(tmp_path: Path) -> None:
    """Wherever it may go, its inputs are there."""
    keep = Retention(versions_min=12, versions_max=12, seconds=3600, attempt_seconds=0)
    world = world_on(tmp_path, retention=keep)
    play(world, EPOCHS)
    expected = world.picture()
    world.controller.housekeeping.collect("one")
    back = world.controller.amendments.roll_back
    back("one", f"sum:{EPOCHS - 8}", who="me", why="x", pause=True)
    world.controller.resume("one")
    world.ticks()
    assert world.picture() == expected
    world.close()


@pytest.mark.part(every=3)
@pytest.mark.parametrize("point", ["dead_file", "sql_commit", "dead_record"])
def test_crashes_change_nothing(tmp_path: Path, point: str) -> None:
    """Killed while inputs go, again and again: a restart goes on."""
    world, whole = world_on(tmp_path / "a"), world_on(tmp_path / "b")
    for number in range(EPOCHS):
        world.faults.to = PlannedFaults(f"{point}.{'before' if number % 2 else 'after'}")
        with suppress(Crash):
            world.controller.housekeeping.collect("one")
        world.faults.to = NO_FAULTS
        world.restart()
        world.controller.recover()
        for one in (world, whole):
            play(one, 1, start=number)
    assert world.picture() == whole.picture()
    world.controller.housekeeping.collect("one")
    assert len(inputs(world)) < 10
    world.close()
    whole.close()


def test_a_look_removes_nothing_and_tells_why(tmp_path: Path) -> None:
    """What goes and what stays, with the reasons."""
    world = world_on(tmp_path, collect_every=10**6)
    play(world, EPOCHS)
    world.controller.housekeeping._keep_position(world.store.dataflow("one"))
    before = sorted(str(path) for path in Path(world.tables).rglob("*"))
    actual = world.controller.housekeeping.look("one")
    assert sorted(str(path) for path in Path(world.tables).rglob("*")) == before
    assert actual.inputs["a"].gone
    assert "roll-back" in actual.inputs["a"].stays or not actual.inputs["a"].stays
    plan = actual.tables["state/sum.sums"]
    assert plan.dead
    assert any("newest" in kept.because for kept in plan.kept)
    stored = sum(
        path.is_file()
        for kind in ("_runs", "_vectors")
        for path in (Path(world.tables) / "one/state/sum.sums" / kind).rglob("*")
    )
    assert stored == len(plan.dead) + sum(kept.files for kept in plan.kept)
    world.close()


def test_a_source_is_read_from_the_oldest_that_is_there(tmp_path: Path) -> None:
    """From the begin; a cursor whose increment is gone is refused, so that nobody misses one."""
    world = world_on(tmp_path)
    play(world, EPOCHS)
    oldest = inputs(world)[0]
    assert oldest > 0
    for cursor in (None, f"{oldest}.0"):
        records, _ = world.controller.reading.read_flow("one", "a", cursor, 1)
        assert records[0]["n"] == oldest
    with pytest.raises(IncrementCollectedError) as told:
        world.controller.reading.read_flow("one", "a", f"{oldest - 1}.0", 1)
    assert told.value.details == {"flow": "a", "index": oldest - 1, "oldest": oldest}
    world.close()


def test_a_lost_store_is_brought_back_without_them(tmp_path: Path) -> None:
    """The position replaces them."""
    world = world_on(tmp_path / "a")
    play(world, EPOCHS)
    new = lose_the_store(world, tmp_path / "new", {"a": EPOCHS})
    assert new.store.stages("one")[0].epoch == EPOCHS
    assert new.picture() == world.picture()
    new.close()
    world.close()


@pytest.mark.parametrize("again", [False, True])
def test_a_lost_store_says_from_when_on_input_is_kept(tmp_path: Path, again: bool) -> None:
    """As before, also after a version that keeps no earlier position; what is damaged stays known.

    The logs of sources name what was removed, too. It must not count as kept: a replacement would
    be accepted that no stage can apply.
    """
    world = world_on(tmp_path / "a", keep=Keep(FlowRetention(10), 5))
    play(world, EPOCHS)
    if again:
        world.controller.change(saying(hours=1))
    oldest, *_, damaged, _ = inputs(world)
    assert oldest > 0
    (path,) = (Path(world.tables) / "one/sources/a").glob(f"{damaged:012d}-*.parquet")
    path.unlink()
    new = lose_the_store(world, tmp_path / "new", {"a": EPOCHS})
    known = [one.increment.index for one in new.store.oldest_increments("one", "a")]
    assert known == list(range(oldest, EPOCHS))
    (reach,) = new.controller.housekeeping.reach("one").sources
    assert (reach.first, reach.complete) == (oldest, False)
    new.close()
    world.close()
