"""Timers: a stage runs when one is due, once, through crashes, roll-backs and other versions."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cbp import Input, Output, State, Timers, Translate
from cbp.model.run.correction import Correction
from cbp.model.version.version_change import Choice
from tests.controller.lost import SourceLogs
from tests.controller.verified import verified, world_of
from tests.controller.world import ONE, SCHEMA, World
from tests.planned_faults import Crash, PlannedFaults


class Expire(Translate):
    """Tell of each word that no record of it has come for `n` minutes since its last one."""

    items = Input(SCHEMA, route_by="word")
    seen = State("word STRING, times BIGINT")
    wake = Timers()
    gone = Output("word STRING, times BIGINT, at TIMESTAMP")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        times, waits = sum(row.times for row in group.seen), [row.n for row in group.items]
        if waits:
            out.seen(key.word, times + len(waits))
            out.wake(key.word, at=group.run.time + timedelta(minutes=waits[-1]))
        else:
            out.gone(key.word, times, group.run.time)


class Later(Expire):
    """The same in another version: it counts a hundred more."""

    seen = State("word STRING, times BIGINT")
    gone = Output("word STRING, times BIGINT, at TIMESTAMP")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        times = sum(row.times for row in group.seen)
        if any(True for _ in group.items):
            out.seen(key.word, times)
        else:
            out.gone(key.word, 100 + times, group.run.time)


def document(translator: str = "expire") -> dict[str, Any]:
    stages = {
        "first": {"translator": "upper", "inputs": {"words": "a"}},
        "expire": {"translator": translator, "inputs": {"items": "first.capitals"}, "buckets": 2},
        "count": {"translator": "tally", "inputs": {"gone": "expire.gone"}},
    }
    return {**ONE, "stages": stages}


class Tally(Translate):
    """Count how often a word was gone."""

    gone = Input("word STRING", route_by="word")
    sums = State("word STRING, n BIGINT")
    totals = Output("word STRING, n BIGINT", key="word")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        n = sum(1 for _ in group.gone) + sum(row.n for row in group.sums)
        out.sums(key.word, n)
        out.totals(key.word, n)


@pytest.fixture
def world(tmp_path: Path, without_syncs: None) -> Iterator[World]:
    made = world_of(tmp_path, expire=Expire, later=Later, tally=Tally)
    made.controller.register(document())
    yield made
    made.close()


def minutes(world: World, number: float) -> None:
    """Let time pass, minute by minute, as ticks do."""
    for _ in range(round(number * 2)):
        world.clock.advance(30)
        world.ticks()


def gone(world: World) -> list[tuple[str, int]]:
    return [(row["word"], row["times"]) for row in world.flow("one", "expire.gone")]


def pending(world: World) -> list[tuple[str, datetime]]:
    record = world.store.dataflow("one")
    node = world.controller.dataflow("one").stages["expire"]
    rows = world.engine.records.read_state(record.folder, node, "wake")
    return sorted((row["word"], row["at"].astimezone(UTC).replace(microsecond=0)) for row in rows)


def test_a_run_is_started_when_a_timer_is_due_and_not_before(world: World) -> None:
    """Without input, once for each timer that is not set anew; the wait says the time."""
    world.arrive("one", "a", ("x", 10), ("y", 20), ("z", 5))
    world.ticks()
    wait = world.controller.waits("one")["first"]
    assert wait.kind == "timer"
    assert wait.words.endswith("waits for its timer at 2026-01-01 00:05:00 UTC")
    minutes(world, 4)
    world.arrive("one", "a", ("z", 20))
    minutes(world, 5.5)
    assert gone(world) == []
    minutes(world, 1)
    assert gone(world) == [("X", 1)]
    minutes(world, 20)
    assert sorted(gone(world)) == [("X", 1), ("Y", 1), ("Z", 2)]
    epochs = {stage.stage: stage.epoch for stage in world.store.stages("one")}
    minutes(world, 60)
    assert {stage.stage: stage.epoch for stage in world.store.stages("one")} == epochs
    assert world.controller.waits("one")["first"].kind == "input"
    assert pending(world) == []
    counted = {row["word"]: row["n"] for row in world.flow("one", "count.totals")}
    assert counted == {"X": 1, "Y": 1, "Z": 1}


@pytest.mark.parametrize("point", ["job.after", "intention.before", "intention.after"])
def test_a_timer_fires_once_through_crashes(point: str, world: World) -> None:
    """Killed before or after the record of the run that it started: one call in all."""
    world.arrive("one", "a", ("x", 1), ("y", 1))
    world.ticks()
    for _ in range(2):
        world.faults.to = PlannedFaults(point)
        with pytest.raises(Crash):
            minutes(world, 3)
        world.faults.to = lambda point: None
        world.restart()
        world.controller.recover()
        world.arrive("one", "a", ("w", 1))
    minutes(world, 10)
    assert sorted(gone(world)) == [("W", 2), ("X", 1), ("Y", 1)]


def test_a_roll_back_cancels_what_was_set_and_brings_back_what_had_fired(world: World) -> None:
    """Timers are those of the point: one fires again, one never; verification agrees."""
    world.arrive("one", "a", ("x", 3))
    world.ticks()
    minutes(world, 0.5)
    world.arrive("one", "a", ("late", 5))
    world.ticks()
    minutes(world, 4)
    assert gone(world) == [("X", 1)]
    world.controller.amendments.roll_back("one", "first:0", who="me", why="", drop_later=True)
    assert pending(world) == [("X", datetime(2026, 1, 1, 0, 3, tzinfo=UTC))]
    assert gone(world) == []
    minutes(world, 10)
    assert gone(world) == [("X", 1)]
    assert verified(world, "one").status == "equal"


def test_timers_outlive_the_database(world: World) -> None:
    """Rebuilt from the folders, a dataflow waits for the same time."""
    world.arrive("one", "a", ("x", 3), ("y", 4))
    minutes(world, 3)
    due = [stage.due_ms for stage in world.store.stages("one")]
    kept = [world.store.increment("one", "a", 0).increment]
    world.arrivals = SourceLogs(world, "one", kept)
    world.store.delete("one")
    assert world.controller.rebuild() == ["one"]
    assert [stage.due_ms for stage in world.store.stages("one")] == due
    minutes(world, 3)
    assert gone(world) == [("X", 1), ("Y", 1)]


def test_another_version_keeps_the_timers(world: World) -> None:
    """The new code is called when they are due."""
    world.arrive("one", "a", ("x", 3))
    minutes(world, 1)
    world.controller.change(document("later"), choice=Choice(keep=frozenset({"expire", "count"})))
    minutes(world, 1)
    assert gone(world) == []
    minutes(world, 2)
    assert gone(world) == [("X", 101)]


def test_a_timer_that_an_operator_sets_fires(world: World) -> None:
    """A correction of the state of timers counts, also where none was pending."""
    world.arrive("one", "a", ("x", 30))
    world.ticks()
    at = world.clock() + timedelta(minutes=2)
    soon = [Correction({"word": "X"}, "records", ({"at": at},))]
    world.controller.amendments.correct("one", "expire", "wake", soon, who="me", why="sooner")
    minutes(world, 3)
    assert gone(world) == [("X", 1)]
    new = [Correction({"word": "NEW"}, "records", ({"at": at},))]
    world.controller.amendments.correct("one", "expire", "wake", new, who="me", why="also")
    minutes(world, 1)
    assert gone(world) == [("X", 1), ("NEW", 0)]


def test_what_timers_gave_is_verified_at_the_recorded_times(world: World) -> None:
    """Each epoch is repeated at its time; a wrong value is found."""
    for number in range(4):
        world.arrive("one", "a", (f"w{number}", number), ("x", 7))
        minutes(world, 2)
    minutes(world, 20)
    verification = verified(world, "one")
    assert (verification.status, verification.error) == ("equal", None)
    compared = {v.table: v.records for v in verification.tables if v.status == "equal"}
    assert compared["flows/expire.gone"] == len(gone(world)) * 2


def test_a_paused_dataflow_fires_when_it_is_resumed(world: World) -> None:
    """A timer that came due meanwhile is late, and not lost."""
    world.arrive("one", "a", ("x", 1))
    world.ticks()
    world.controller.pause("one")
    minutes(world, 5)
    assert gone(world) == []
    world.controller.resume("one")
    world.ticks()
    assert gone(world) == [("X", 1)]
