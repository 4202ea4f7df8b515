"""The time of a run is in its record: a redo, a second attempt and a verification agree with it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from cbp import Input, Output, State, Translate
from cbp.engine.commit.intention_log import IntentionLog
from cbp.model.dataflow.run_context import time_of
from cbp.model.run.intention import Intention
from tests.controller.verified import verified, world_of
from tests.controller.world import ONE, SCHEMA, World
from tests.planned_faults import Crash, PlannedFaults

WRONG: dict[str, int] = {}
"""Word to what its lines are wrong by; of the module, so that no code is another."""


class Timed(Translate):
    """Note the run of each record, and the first run of each word."""

    items = Input(SCHEMA, route_by="word")
    first = State("word STRING, at TIMESTAMP")
    totals = Output("word STRING, n BIGINT, epoch BIGINT, at TIMESTAMP, first TIMESTAMP")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        first = next((row.at for row in group.first), group.run.time)
        out.first(word=key.word, at=first)
        n = sum(row.n for row in group.items) + WRONG.get(key.word, 0)
        run = group.run
        out.totals(word=key.word, n=n, epoch=run.epoch, at=run.time, first=first)


STAGES = {
    "timed": {"translator": "timed", "inputs": {"items": "a"}, "buckets": 2},
    "plain": {"translator": "sum", "inputs": {"items": "a"}},
    "behind": {"translator": "sum", "inputs": {"items": "timed.totals"}},
}
DOCUMENT = {**ONE, "stages": STAGES}


@pytest.fixture
def world(tmp_path: Path, without_syncs: None) -> Iterator[World]:
    made = world_of(tmp_path, timed=Timed)
    made.controller.register(DOCUMENT)
    yield made
    WRONG.clear()
    made.close()


def record(world: World, epoch: int) -> Intention:
    found = IntentionLog(world.store.dataflow("one").folder, world.files).read("timed", epoch)
    assert found is not None
    return found


def lines(world: World) -> list[dict[str, Any]]:
    return list(world.flow("one", "timed.totals"))


@pytest.mark.parametrize("point", ["intention.before", "intention.after", "sql_commit.before"])
def test_a_run_that_is_done_again_after_a_crash_has_one_time(point: str, world: World) -> None:
    """Recorded or not, the tables show the time of the record; if it was recorded, the first."""
    world.arrive("one", "a", ("a", 1))
    began = world.clock()
    world.faults.to = PlannedFaults(point)
    with pytest.raises(Crash):
        world.ticks()
    recorded = IntentionLog(world.store.dataflow("one").folder, world.files).read("timed", 0)
    world.clock.advance(3600)
    world.faults.to = lambda point: None
    world.restart()
    world.controller.recover()
    world.ticks()
    assert [row["at"] for row in lines(world)] == [time_of(record(world, 0).time_ms)]
    if recorded is not None:
        assert record(world, 0) == recorded
        assert (lines(world)[0]["at"] - began).total_seconds() < 1


def test_times_rise_from_epoch_to_epoch_even_if_the_clock_is_set_back(world: World) -> None:
    """A later epoch is never at an earlier time, whichever machine leads."""
    for seconds in (5, -3600, 1):
        world.arrive("one", "a", ("a", 1))
        world.ticks()
        world.clock.advance(seconds)
        world.restart()
    times = [record(world, epoch).time_ms for epoch in range(3)]
    assert times == sorted(set(times))
    assert [row["at"] for row in lines(world)] == list(map(time_of, times))
    assert {row["first"] for row in lines(world)} == {time_of(times[0])}


def test_what_depends_on_the_time_of_runs_is_verified_at_the_recorded_times(world: World) -> None:
    """Such a stage and those behind it are repeated, the others recomputed; what is wrong shows."""
    for number in range(4):
        world.arrive("one", "a", ("a", number), ("b", 1))
        world.clock.advance(100 * number + 1)
        world.ticks()
    verification = verified(world, "one")
    assert (verification.status, verification.error) == ("equal", None)
    since = {table.table: table.since for table in verification.tables}
    assert since == {
        "state/timed.first": 0,
        "flows/timed.totals": 0,
        "state/plain.sums": None,
        "flows/plain.totals": None,
        "state/behind.sums": 0,
        "flows/behind.totals": 0,
    }
    assert all(table.status == "equal" and table.records for table in verification.tables)
    WRONG["a"] = 1
    world.arrive("one", "a", ("a", 7))
    world.ticks()
    WRONG.clear()
    verification = verified(world, "one")
    assert (verification.status, verification.suspect) == ("differs", "timed")


def test_the_time_of_a_run_is_when_it_started(world: World) -> None:
    """Not some milliseconds later, when the plan is made."""
    world.arrive("one", "a", ("x", 1))
    clock = world.clock

    def passing() -> datetime:
        clock.advance(0.01)
        return clock()

    world.parts.starts.clock = world.parts.publisher.clock = passing
    world.ticks()
    (run,) = world.store.runs("one", stage="timed", limit=9).items
    assert record(world, 0).time_ms == int(run.started_at.timestamp() * 1000)
