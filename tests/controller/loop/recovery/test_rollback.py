"""Roll-back: tables, queues and epochs of one moment, whatever crashes; then on from there.

Rolled back to any moment and run on, a dataflow gives the same epochs, flows, state and queues. A
crash ends before the roll-back or after it; a lost store finds the newest generation.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
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
    DataflowBusyError,
    DefinitionError,
    DiskFullError,
    LogConflictError,
    NotFoundError,
    OperatingError,
    RollbackImpossibleError,
)
from controller.loop import LoopLimits
from controller.loop.records.description_log import Descriptions
from controller.loop.recovery import past_position
from controller.store.base import open_scratch
from tests.controller.framed_workload import DOCUMENT as FRAMED
from tests.controller.framed_workload import play as play_framed
from tests.controller.framed_workload import standing
from tests.controller.framings import ByKey, ByStretch
from tests.controller.lost import lose_the_store
from tests.controller.world import DIAMOND, FUSED, ONE, Deferred, World
from tests.planned_faults import Crash, PlannedFaults
from tests.sampling import sampled

pytestmark = pytest.mark.usefixtures("without_syncs")

TINY = Retention(versions_min=1, versions_max=1, seconds=0, attempt_seconds=0)
POINTS = [
    f"{e}.{s}" for e in ("generation", "log_entry", "sql_commit") for s in ("before", "after")
]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, engine=LocalEngine)
    yield made
    made.close()


def play(world: World, epochs: int, *, name: str = "diamond", start: int = 0) -> list[Any]:
    """Bring increments, and return the picture behind each."""
    pictures = [world.picture()]
    for number in range(start, start + epochs):
        world.clock.advance(1)
        world.arrive(name, "a", (f"w{number % 3}", number), ("w", 1))
        if name == "diamond" and number % 2:
            world.arrive(name, "b", (f"w{number % 2}", number), ("w", 1))
        world.ticks()
        pictures.append(world.picture())
    return pictures


def back(world: World, to: str, *, name: str = "diamond", **more: Any) -> Any:
    return world.controller.amendments.roll_back(name, to, who="me", why="a bad file", **more)


def plan(world: World, to: str, *, name: str = "diamond", **more: Any) -> Any:
    return world.controller.amendments.plan_roll_back(name, to, **more)


def number(picture: dict[str, Any], name: str = "diamond") -> str:
    return str(sum(picture[f"{name} epochs"].values()))


def tables(picture: dict[str, Any], name: str = "diamond") -> dict[str, Any]:
    """Return what of a picture lies in tables."""
    return {k: v for k, v in picture.items() if not k.endswith(("queues",))}


@pytest.mark.parametrize(
    "document", sampled([{**DIAMOND, "publish": {"epochs": 3}}, FUSED, DIAMOND], every=3)
)
def test_back_and_on_again_is_as_if_nothing_had_been(world: World, document: Any) -> None:
    """Rolled back to every moment in turn, the replay gives the same epochs, flows and state."""
    name = document["name"]
    world.controller.register(document)
    pictures = play(world, 5, name=name)
    world.controller.drain(0)
    world.restart()
    last = world.picture()
    for picture in reversed(pictures[:-1]):
        back(world, number(picture, name), name=name, pause=True)
        world.ticks()
        now = world.picture()
        if "publish" not in document:
            assert tables(now, name) == tables(picture, name)
        assert now[f"{name} epochs"] == picture[f"{name} epochs"]
        world.controller.resume(name)
        world.ticks()
        world.controller.pause(name)
        world.ticks()
        assert world.picture() == last
        world.controller.resume(name)
    world.ticks()
    play(world, 2, name=name, start=5)
    assert world.store.stages(name)[0].failures == 0


def test_what_is_recorded_and_not_told_is_finished_before(world: World) -> None:
    """An answer of the disk was lost: the record stands, and the run waits for another try."""
    world.controller.register(ONE)
    pictures = play(world, 2, name="one")

    def lost(point: str) -> None:
        if point == "intention.after":
            raise OSError("no answer")

    world.faults.to = lost
    world.arrive("one", "a", ("late", 1))
    world.ticks()
    assert world.store.stages("one")[0].epoch == 2
    with pytest.raises(DataflowBusyError) as busy:
        back(world, "1", name="one")
    assert (busy.value.code, busy.value.details["dataflow"]) == ("dataflow_busy", "one")
    world.faults.to = lambda point: None
    assert dict(back(world, "1", name="one", pause=True).undone) == {"sum": 3}
    world.ticks()
    assert tables(world.picture(), "one") == tables(pictures[1], "one")
    world.controller.resume("one")
    world.ticks()
    assert world.picture()["one epochs"] == {"sum": 3}


def test_inputs_behind_the_cut_stand_in_the_queues_again(world: World) -> None:
    """What was read is unread; what arrived later waits behind it."""
    world.controller.register(ONE)
    play(world, 3, name="one")
    world.controller.pause("one")
    world.arrive("one", "a", ("late", 1))
    planned = plan(world, "sum:0", name="one")
    assert planned.point.epochs == {"sum": 1}
    assert planned.queued == {"sum.items": 3}
    back(world, "sum:0", name="one", pause=True)
    assert world.picture()["one queues"] == {"sum": {"items": ["a/1", "a/2", "a/3"]}}
    world.controller.resume("one")
    world.ticks()
    assert [r["n"] for r in world.flow("one", "sum.totals") if r["word"] == "late"] == [1]


def test_the_cost_follows_what_is_undone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What no run up to the point has read waits, and does not pass through the scratch store."""
    world.controller.register(ONE)
    play(world, 3, name="one")
    world.controller.pause("one")
    for number_ in range(20):
        world.arrive("one", "a", ("late", number_))
    passed: list[int] = []

    def watched(url: str) -> Any:
        store = open_scratch(url)
        accept = store.accept_all

        def accept_all(arrivals: Any) -> None:
            passed.extend(record.increment.index for _, record in arrivals)
            accept(arrivals)

        monkeypatch.setattr(store, "accept_all", accept_all)
        return store

    monkeypatch.setattr(past_position, "open_scratch", watched)
    planned = plan(world, "2", name="one")
    assert passed == [0, 1]
    assert planned.queued == {"sum.items": 21}
    assert [one.index for one in planned.generation.position.newest if one.flow == "a"] == [22]


def test_the_plan_names_the_inputs_that_it_undoes(world: World) -> None:
    """Those that some undone run read, by source; what waits now as then is not undone."""
    world.controller.register(DIAMOND)
    pictures = play(world, 4)
    world.controller.pause("diamond")
    world.arrive("diamond", "a", ("late", 1))
    to = number(pictures[2])

    def undone(**more: Any) -> list[tuple[str, int, bool]]:
        inputs = plan(world, to, **more).undone_inputs
        return [(one.source, one.index, one.again) for one in inputs]

    assert undone() == [("a", 2, True), ("a", 3, True), ("b", 1, True)]
    assert undone(drop_later=True) == [
        ("a", 2, False), ("a", 3, False), ("a", 4, False), ("b", 1, False),
    ]  # fmt: skip
    back(world, to, pause=True)
    assert undone() == []


def test_of_an_input_that_had_come_before_the_point_the_plan_says_that_it_comes_again(
    world: World,
) -> None:
    """Also where later arrivals are dropped: it was there, and nothing had read it."""
    world.controller.register(ONE)
    world.controller.pause("one")
    for number_ in range(2):
        world.arrive("one", "a", ("w", number_))
    to = world.clock.now.isoformat()
    world.clock.advance(1)
    world.controller.resume("one")
    world.ticks()
    for drop_later in (False, True):
        planned = plan(world, to, name="one", drop_later=drop_later)
        assert [(one.index, one.again) for one in planned.undone_inputs] == [(0, True), (1, True)]
    assert planned.queued_before == {"a": 2}


def test_later_inputs_can_be_dropped(world: World, tmp_path: Path) -> None:
    """They are counted with the roll-back, and stay dropped when the store is lost."""
    world.controller.register(ONE)
    play(world, 3, name="one")
    begun = back(world, "sum:0", name="one", drop_later=True)
    assert begun.dropped == {"a": 2}
    world.ticks()
    assert world.picture()["one queues"] == {"sum": {"items": []}}
    world.arrive("one", "a", ("w", 10))
    world.ticks()
    assert world.picture()["one sum.sums"] == ["{'word': 'w', 'n': 11}", "{'word': 'w0', 'n': 0}"]
    again = lose_the_store(world, tmp_path / "new", {"a": 4})
    assert again.picture() == world.picture()
    again.close()


def test_what_came_before_something_that_stays_is_not_dropped(world: World) -> None:
    """Nor what a record that stays has read, though the clock went back behind its arrival."""
    world.controller.register(ONE)
    world.clock.advance(10)
    world.arrive("one", "a", ("x", 1))
    world.clock.advance(-5)
    world.ticks()
    world.controller.pause("one")
    world.clock.advance(1)
    for back_by in (-10, 5, -10):
        world.clock.advance(-back_by)
        world.arrive("one", "a", ("x", 1))
    to = (world.clock() - timedelta(seconds=8)).isoformat()
    early = plan(world, "sum:0", name="one", drop_later=True)
    assert (dict(early.generation.dropped), dict(early.queued_before)) == ({"a": 3}, {})
    planned = plan(world, to, name="one", drop_later=True)
    assert planned.point.epochs == {"sum": 1}
    assert dict(planned.generation.dropped) == {"a": 1}
    assert planned.queued == {"sum.items": 2}
    assert planned.queued_before == {"a": 2}
    assert plan(world, to, name="one").queued_before == {}


def test_a_lost_store_finds_the_newest_generation(world: World, tmp_path: Path) -> None:
    """Roll-backs are beside the tables: what was undone stays undone, twice in a row."""
    world.controller.register(DIAMOND)
    pictures = play(world, 5)
    back(world, number(pictures[3]))
    world.ticks()
    back(world, number(pictures[2]), pause=True)
    new = lose_the_store(world, tmp_path / "new", {"a": 5, "b": 2})
    new.controller.pause("diamond")
    assert new.picture() == world.picture()
    for one in (world, new):
        one.controller.resume("diamond")
        one.ticks()
        assert one.picture() == pictures[-1]
    new.close()


class Played:
    """A history that is played once, and stands again for every crash."""

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


@pytest.mark.part(every=3)
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize(
    ("played", "passage"),
    sampled([(FRAMED, 2), (DIAMOND, 2), (DIAMOND, 4), (FRAMED, 1)], every=4),
    indirect=["played"],
    ids=["framed-2", "diamond-2", "diamond-4", "framed-1"],
    scope="module",
)
def test_a_crash_ends_before_or_after(played: Played, point: str, passage: int) -> None:
    """Killed anywhere in a roll-back, a restart stands where it was, or where it was to go."""
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
        with pytest.raises(DataflowBusyError):  # whatever it is: it stands nowhere yet
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
    world.controller.resume("one")
    world.controller.tick()
    threads.run_next()
    assert world.store.stages("one")[0].epoch == 1
    world.close()


def test_every_moment_that_is_listed_is_one_to_go_back_to(world: World) -> None:
    """Each is accepted by a plan, by its number and by its epoch, and means the same position."""
    world.controller.register(DIAMOND)
    pictures = play(world, 4)
    moments = world.controller.amendments.moments("diamond", limit=50)
    runs = sum(pictures[-1]["diamond epochs"].values())
    assert [one.point.number for one in moments] == list(range(runs, -1, -1))
    for one in moments:
        by_number = plan(world, str(one.point.number))
        assert by_number.point.epochs == one.point.epochs
        if one.stage:
            assert plan(world, f"{one.stage}:{one.epoch}").point.epochs == one.point.epochs
    assert len(world.controller.amendments.moments("diamond", limit=3)) == 3
    back(world, str(moments[3].point.number), pause=True)
    assert world.controller.amendments.moments("diamond", limit=1)[0].point == moments[3].point
    with pytest.raises(NotFoundError):
        world.controller.amendments.moments("nobody", limit=1)


def test_the_plan_changes_nothing(world: World) -> None:
    """A dry run tells tables, epochs, records and bytes; not even an unseen file is written."""
    stages = {"sum": {**ONE["stages"]["sum"], "buckets": 2}}
    world.controller.register({**ONE, "stages": stages, "publish": {"epochs": 4}})
    world.arrive("one", "a", ("w", 0), *((f"k{number}", 1) for number in range(20)))
    world.ticks()
    pictures = play(world, 3, name="one")
    files = _files_of(world)
    planned = plan(world, "sum:2", name="one")
    assert world.picture() == pictures[-1]
    assert world.controller.amendments.rollbacks("one") == ()
    assert planned.generation.undone == {"sum": 4}
    assert planned.records_undone == 2
    totals = planned.tables["flows/sum.totals"]
    assert (totals.records_now, totals.records_then) == (27, 25)
    assert totals.bytes_now > totals.bytes_then > 0
    # Between publications, what a state showed then has vectors that no log names yet.
    sums = planned.tables["state/sum.sums"]
    assert (sums.records_now, sums.records_then) == (24, 23)
    assert _files_of(world) == files
    back(world, "sum:2", name="one", pause=True)
    assert "{'word': 'w', 'n': 2}" in world.picture()["one sum.sums"]
    vectors = [path for path in _files_of(world) - files if "_vectors" in path]
    assert len(vectors) == 1


def _files_of(world: World) -> set[str]:
    return {str(path) for path in Path(world.tables).rglob("*") if path.is_file()}


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
    """Though the clock stands still or goes back: roll-backs, versions and runs in a row."""
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


def test_a_request_is_done_once(world: World) -> None:
    """Asked again under its name, it tells what was done and undoes nothing more."""
    world.controller.register(ONE)
    play(world, 3, name="one")
    first = back(world, "sum:0", name="one", request="r1")
    world.ticks()
    assert back(world, "sum:0", name="one", request="r1") == first
    assert world.store.stages("one")[0].epoch == 3


def test_who_and_why_are_kept(world: World) -> None:
    """Every roll-back is found again, with its reason and what it undid."""
    world.controller.register(ONE)
    play(world, 2, name="one")
    back(world, "sum:0", name="one")
    (actual,) = world.controller.amendments.rollbacks("one")
    assert (actual.number, actual.who, actual.why) == (1, "me", "a bad file")
    assert (actual.start("sum"), actual.undone) == (1, {"sum": 2})


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


def test_a_past_that_is_not_kept_is_refused(tmp_path: Path) -> None:
    """Collected tables or trimmed records: nothing is changed, and the reason is told."""
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


@pytest.mark.parametrize(
    ("to", "error"),
    [
        ("sum:9", DefinitionError),
        ("99", DefinitionError),
        ("x", DefinitionError),
        ("nobody:0", NotFoundError),
    ],
)
def test_a_goal_that_is_none_is_refused(world: World, to: str, error: type[Exception]) -> None:
    """Before anything is cancelled."""
    world.controller.register(ONE)
    play(world, 1, name="one")
    with pytest.raises(error):
        back(world, to, name="one")
