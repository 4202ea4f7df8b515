"""Expiry of state: records go once their group was not called for the age, and only then."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from cbp import Input, Output, State, Translate, View
from cbp.model.run.correction import Correction
from cbp.model.version.version_change import Choice
from controller.loop.reading.reader import AsOf
from tests.controller.lost import SourceLogs
from tests.controller.verified import WAYS, verified, world_of
from tests.controller.world import ONE, SCHEMA, World
from tests.planned_faults import Crash, PlannedFaults


class Sessions(Translate):
    """Count each word, in a view that forgets a word after sixteen minutes of silence."""

    items = Input(SCHEMA, route_by="word")
    times = View("word STRING, n BIGINT", key="word", expire="16 minutes")
    every = State("word STRING, n BIGINT")
    lines = Output("word STRING, n BIGINT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        came = sum(1 for _ in group.items)
        n = came + sum(row.n for row in group.times)
        out.times(key.word, n)
        out.every(key.word, came + sum(row.n for row in group.every))
        out.lines(key.word, n)


class Forever(Sessions):
    """The same without the age."""

    times = View("word STRING, n BIGINT", key="word")


class Kept(Sessions):
    """The same, with records that are kept, and in vain put again."""

    times = View("word STRING, n BIGINT", key="word", keep=True, expire="16 minutes")


class Shown(Translate):
    """The changes, as a stage reads them."""

    changes = Input("word STRING, n BIGINT, sign INT", route_by="word", changes="signed")
    sums = State("word STRING, n BIGINT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        n = sum(row.sign * row.n for row in group.changes) + sum(row.n for row in group.sums)
        if n:
            out.sums(key.word, n)


def document(translator: str = "sessions") -> dict[str, Any]:
    stages = {
        "count": {"translator": translator, "inputs": {"items": "a"}, "buckets": 2},
        "shown": {"translator": "shown", "inputs": {"changes": "count.times"}},
    }
    return {**ONE, "stages": stages}


@pytest.fixture
def world(tmp_path: Path, without_syncs: None) -> Iterator[World]:
    made = world_of(tmp_path, sessions=Sessions, forever=Forever, kept=Kept, shown=Shown)
    made.controller.register(document())
    yield made
    made.close()


def minutes(world: World, number: float) -> None:
    """Let time pass, minute by minute, as ticks do."""
    for _ in range(round(number * 2)):
        world.clock.advance(30)
        world.ticks()


def state(world: World, name: str = "times", stage: str = "count") -> dict[str, int]:
    record = world.store.dataflow("one")
    node = world.controller.dataflow("one").stages[stage]
    rows = list(world.engine.records.read_state(record.folder, node, name))
    assert len({row["word"] for row in rows}) == len(rows)
    return {row["word"]: row["n"] for row in rows}


def timers(world: World) -> dict[str, datetime]:
    record = world.store.dataflow("one")
    node = world.controller.dataflow("one").stages["count"]
    rows = list(world.engine.records.read_state(record.folder, node, "times_expiry"))
    assert len({row["word"] for row in rows}) == len(rows)
    return {row["word"]: row["at"].astimezone(UTC) for row in rows}


def epoch(world: World) -> int:
    return next(one.epoch for one in world.store.stages("one") if one.stage == "count")


@pytest.mark.parametrize("translator", ["sessions", "kept"])
def test_a_group_that_is_silent_for_the_age_loses_its_records(
    translator: str, world: World
) -> None:
    """Not before, and at most a sixteenth late; its other states stay, its changes say delete."""
    if translator != "sessions":
        choice = Choice(rebuild=frozenset({"count", "shown"}))
        world.controller.change(document(translator), choice=choice)
    world.arrive("one", "a", ("x", 1), ("y", 1))
    minutes(world, 10)
    world.arrive("one", "a", ("y", 2))
    minutes(world, 5.5)
    assert state(world) == {"x": 1, "y": 2}
    assert world.controller.waits("one")["count"].kind == "timer"
    minutes(world, 2)
    assert state(world) == {"y": 2}
    assert state(world, "every") == {"x": 1, "y": 2}
    assert state(world, "sums", "shown") == {"y": 2}
    gone = [(row["word"], row["n"], row["change_type"]) for row in world.flow("one", "count.times")]
    assert gone[-1] == ("x", 1, "delete")
    assert [row["word"] for row in world.flow("one", "count.lines")] == ["x", "y", "y"]
    world.arrive("one", "a", ("x", 1))
    world.ticks()
    assert state(world) == {"x": 1, "y": 2}
    minutes(world, 40)
    assert (state(world), timers(world)) == ({}, {})
    last = epoch(world)
    minutes(world, 40)
    assert epoch(world) == last
    assert state(world, "every") == {"x": 2, "y": 2}


def test_a_timer_that_is_set_often_is_written_rarely(world: World) -> None:
    """Within a sixteenth of the age it stays as it is, so that a call does not rewrite it."""
    world.arrive("one", "a", ("x", 1))
    world.ticks()
    first = timers(world)
    world.clock.advance(20)
    world.arrive("one", "a", ("x", 1))
    world.ticks()
    assert timers(world) == first
    folder = Path(world.store.dataflow("one").folder) / "state/count.times_expiry/_delta_log"
    entries = len(list(folder.glob("*.json")))
    world.clock.advance(20)
    world.arrive("one", "a", ("x", 1))
    world.ticks()
    assert (timers(world), len(list(folder.glob("*.json")))) == (first, entries)
    world.clock.advance(60)
    world.arrive("one", "a", ("x", 1))
    world.ticks()
    assert timers(world)["x"] == first["x"] + timedelta(minutes=1)


@pytest.mark.parametrize("point", ["job.after", "intention.before", "intention.after"])
def test_records_expire_once_through_crashes(point: str, world: World) -> None:
    """Killed before or after the record of the run: each word is deleted once."""
    world.arrive("one", "a", ("x", 1), ("y", 1))
    world.ticks()
    world.faults.to = PlannedFaults(point)
    with pytest.raises(Crash):
        minutes(world, 18)
    world.faults.to = lambda point: None
    world.restart()
    world.controller.recover()
    minutes(world, 2)
    assert (state(world), state(world, "sums", "shown")) == ({}, {})
    changes = [(row["word"], row["sign"]) for row in world.flow("one", "count.times")]
    assert sorted(changes) == [("x", -1), ("x", 1), ("y", -1), ("y", 1)]


@pytest.mark.part(every=2)
@pytest.mark.parametrize("request_", WAYS[:2], ids=lambda one: one.split)
def test_what_expired_is_verified_at_the_recorded_times(request_: Any, world: World) -> None:
    """Each epoch is repeated at its time; it is read as of every epoch."""
    seen = []
    for number in range(6):
        world.arrive("one", "a", (f"w{number % 4}", number))
        minutes(world, 6)
        seen.append((epoch(world) - 1, state(world)))
    assert any(before.keys() - after.keys() for (_, before), (_, after) in pairwise(seen))
    for at, records in seen:
        rows, _ = world.controller.reading.page_state("one", "count", "times", None, 99, AsOf(at))
        assert {row["word"]: row["n"] for row in rows} == records
    verification = verified(world, "one", request_)
    assert (verification.status, verification.error) == ("equal", None)


def test_a_roll_back_brings_back_what_had_expired(world: World) -> None:
    """With its timer, so that it expires again."""
    world.arrive("one", "a", ("x", 1))
    world.ticks()
    minutes(world, 20)
    assert state(world) == {}
    world.controller.amendments.roll_back("one", "count:0", who="me", why="", drop_later=True)
    assert state(world) == {"x": 1}
    minutes(world, 1)
    assert state(world) == {}
    assert verified(world, "one").status == "equal"


def test_ages_outlive_the_database(world: World) -> None:
    """Rebuilt from the folders, records expire at the same time."""
    world.arrive("one", "a", ("x", 1))
    minutes(world, 10)
    due = [stage.due_ms for stage in world.store.stages("one")]
    kept = [world.store.increment("one", "a", 0).increment]
    world.arrivals = SourceLogs(world, "one", kept)
    world.store.delete("one")
    assert world.controller.rebuild() == ["one"]
    assert [stage.due_ms for stage in world.store.stages("one")] == due
    minutes(world, 5.5)
    assert state(world) == {"x": 1}
    minutes(world, 2)
    assert state(world) == {}


def test_a_correction_counts_as_a_call(world: World) -> None:
    """What an operator puts right, or adds, lives for the age; what is removed has no timer."""
    world.arrive("one", "a", ("x", 1), ("y", 1))
    minutes(world, 10)
    for word, records in (("x", ({"n": 7},)), ("new", ({"n": 9},)), ("y", ())):
        one = Correction({"word": word}, "records", records)
        world.controller.amendments.correct("one", "count", "times", [one], who="me", why="")
    assert set(timers(world)) == {"x", "new"}
    minutes(world, 15)
    assert state(world) == {"x": 7, "new": 9}
    minutes(world, 3)
    assert (state(world), timers(world)) == ({}, {})


@pytest.mark.parametrize("translator", ["sessions", "kept"])
def test_a_version_can_add_the_age(translator: str, world: World) -> None:
    """Records that are there count from then; those of a group that is called meanwhile, too."""
    rebuilt = Choice(rebuild=frozenset({"count", "shown"}))
    if translator == "kept":
        world.translators["forever"] = type(
            "Forever",
            (Forever,),
            {"times": View("word STRING, n BIGINT", key="word", keep=True)},
        )
        world.restart()
    world.controller.change(document("forever"), choice=rebuilt)
    world.arrive("one", "a", *((f"w{at}", at) for at in range(20)))
    minutes(world, 60)
    assert len(state(world)) == 20
    kept = Choice(keep=frozenset({"count", "shown"}))
    world.controller.change(document(translator), choice=kept)
    world.arrive("one", "a", ("w3", 1))
    world.ticks()
    assert set(timers(world)) == set(state(world))
    minutes(world, 10)
    world.arrive("one", "a", ("w7", 1))
    minutes(world, 8)
    assert state(world) == {"w7": 2}
    minutes(world, 10)
    assert state(world) == {}
