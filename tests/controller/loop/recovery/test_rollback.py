"""Roll-back: tables, queues and epochs of one moment, whatever crashes; then on from there.

Rolled back to any moment and run on, a dataflow gives the same epochs, flows, state and queues. A
crash ends before the roll-back or after it; a lost store finds the newest generation.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cbp.engine.direct import LocalEngine
from cbp.errors import (
    DataflowBusyError,
    DefinitionError,
    NotFoundError,
)
from controller.loop.recovery import past_position
from controller.store.base import open_scratch
from tests.controller.lost import lose_the_store
from tests.controller.rollbacks import back, number, plan, play, tables
from tests.controller.world import DIAMOND, FUSED, ONE, World

pytestmark = pytest.mark.usefixtures("without_syncs")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, engine=LocalEngine)
    yield made
    made.close()


@pytest.mark.part(every=3)
@pytest.mark.parametrize("document", [{**DIAMOND, "publish": {"epochs": 3}}, FUSED, DIAMOND])
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
    """An answer of the disk was lost: the record is there, and the run waits for another try."""
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


@pytest.mark.soak
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


def test_an_increment_names_the_moment_before_it(world: World) -> None:
    """That of a source is read again first, that of a stage is made again first; then the rest."""
    world.controller.register(ONE)
    for n in range(4):
        world.clock.advance(60)
        world.arrive("one", "a", ("x", n), ("y", 2))
        world.ticks()
    last = world.picture()
    for to in ("a/2", "sum.totals/2"):
        assert plan(world, to, name="one").point.epochs == {"sum": 2}
    assert plan(world, "a/0", name="one").point.epochs == {"sum": 0}
    back(world, "a/2", name="one")
    world.ticks()
    assert world.picture() == last


def test_moments_are_listed_by_time(world: World) -> None:
    """From a time on, and before one; the moment before the first run has none."""
    world.controller.register(ONE)
    noon = world.clock()
    for n in range(3):
        world.arrive("one", "a", ("x", n))
        world.ticks()
        world.clock.advance(3600)
    moments = world.controller.amendments.moments

    def epochs(**times: Any) -> list[int]:
        return [one.epoch for one in moments("one", limit=9, **times)]

    hour = timedelta(hours=1)
    assert epochs() == [2, 1, 0, -1]
    assert epochs(since=noon + hour) == [2, 1]
    assert epochs(until=noon + 2 * hour) == [1, 0]
    assert epochs(since=noon + hour, until=noon + 2 * hour) == [1]


def test_the_plan_changes_nothing(world: World) -> None:
    """A dry run shows tables, epochs, records and bytes; not even an unseen file is written."""
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


def test_a_request_is_done_once(world: World) -> None:
    """Asked again under its name, it returns what was done and undoes nothing more."""
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


@pytest.mark.parametrize(
    ("to", "error"),
    [
        ("sum:9", DefinitionError),
        ("99", DefinitionError),
        ("x", DefinitionError),
        ("nobody:0", NotFoundError),
        ("a/9", NotFoundError),
        ("sum.totals/9", NotFoundError),
        ("nobody.totals/0", NotFoundError),
    ],
)
def test_a_goal_that_is_none_is_refused(world: World, to: str, error: type[Exception]) -> None:
    """Before anything is cancelled."""
    world.controller.register(ONE)
    play(world, 1, name="one")
    with pytest.raises(error):
        back(world, to, name="one")


def _files_of(world: World) -> set[str]:
    return {str(path) for path in Path(world.tables).rglob("*") if path.is_file()}
