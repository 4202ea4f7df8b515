"""A machine's clock that is set: nothing waits for longer than twice its time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cbp.errors import OperatingError
from controller.clock import LEAD_MAX, SteadyClock, bring_forward
from controller.ingest.folder.folder_report import MOST_SECONDS, SourceTroubles
from controller.loop.runs import isolation
from controller.loop.runs.isolation import Isolation
from controller.loop.runs.retry_policy import RetryPolicy
from controller.store.base import StageRecord
from tests.controller.world import ONE, World

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


class Machine:
    """A machine whose clock can be set while its seconds go on."""

    def __init__(self) -> None:
        self.wall, self.seconds = NOW, 100.0

    def __call__(self) -> datetime:
        return self.wall

    def go_on(self, seconds: float) -> None:
        self.wall += timedelta(seconds=seconds)
        self.seconds += seconds


def clock_of(machine: Machine) -> SteadyClock:
    return SteadyClock(machine, lambda: machine.seconds)


def test_a_clock_that_is_not_set_is_the_machines() -> None:
    """And one that is set ahead is followed at once."""
    machine = Machine()
    clock = clock_of(machine)
    for seconds in (0, 0.5, 3600):
        machine.go_on(seconds)
        assert clock() == machine.wall
    machine.wall += HOUR
    assert clock() == machine.wall


def test_set_back_it_goes_on_at_half_its_pace_until_they_meet() -> None:
    """So what waits for ten seconds waits for twenty, and not for an hour more."""
    machine = Machine()
    clock = clock_of(machine)
    machine.wall -= HOUR
    assert clock() == NOW
    machine.go_on(20)
    assert clock() == NOW + timedelta(seconds=10)
    machine.go_on(2 * 3600 - 20)
    assert clock() == machine.wall == NOW + HOUR
    machine.go_on(1)
    assert clock() == machine.wall


def test_a_clock_that_was_wrong_by_days_is_followed_back() -> None:
    """Else a year that was typed wrong would stay for a year."""
    machine = Machine()
    clock = clock_of(machine)
    machine.wall += 30 * LEAD_MAX
    clock()
    machine.wall -= 30 * LEAD_MAX
    assert clock() == machine.wall


def test_timers_further_away_than_their_interval_are_due() -> None:
    """The scheduler's own library would wait until the old time comes again."""
    moved: dict[str, datetime] = {}

    def job(name: str, away: float, every: float = 10.0) -> Any:
        def modify(next_run_time: datetime) -> None:
            moved[name] = next_run_time

        trigger = SimpleNamespace(interval=timedelta(seconds=every))
        when = NOW + timedelta(seconds=away)
        return SimpleNamespace(next_run_time=when, trigger=trigger, modify=modify)

    jobs = [job("set back", 3600), job("soon", 9), job("late", -5), job("rare", 599, 600.0)]
    bring_forward(jobs, NOW)
    assert moved == {"set back": NOW}


@pytest.mark.parametrize("tries", [1, 3, 12])
def test_an_hour_back_keeps_no_source_and_no_dataflow_resting(tries: int) -> None:
    """A stage that rests after failures is tried at once, and rests after the next one as ever."""
    machine, place = Machine(), Path("drop/shop/orders")
    sources = SourceTroubles(machine)
    dataflows = Isolation(clock=machine, on_conflict=lambda _: None)
    for _ in range(tries):
        sources.failed(place, "orders", OperatingError("no device"))
        dataflows.attempt("shop", "published", lambda: 1 / 0)
        machine.go_on(isolation.MOST_SECONDS)
    machine.go_on(-isolation.MOST_SECONDS)
    assert dataflows.resting("shop", "published") is not None
    assert (sources.resting(place) is not None) == (tries > 2)
    machine.wall -= HOUR
    assert dataflows.resting("shop", "published") is None
    assert sources.resting(place) is None
    dataflows.attempt("shop", "published", lambda: 1 / 0)
    for _ in range(3):
        sources.failed(place, "orders", OperatingError("no device"))
    assert sources.resting(place) is not None
    assert dataflows.resting("shop", "published") is not None
    machine.go_on(max(isolation.MOST_SECONDS, MOST_SECONDS))
    assert sources.resting(place) is None
    assert dataflows.resting("shop", "published") is None


def test_an_hour_back_keeps_no_stage_waiting(tmp_path: Path) -> None:
    """Its pause is kept in the store, beyond a restart; it runs once no pause can be so long."""
    world = World(tmp_path)
    world.controller.register(ONE)
    world.arrive("one", "a", ("x", 1))
    fails = [OperatingError("the disk is away")]

    def flaky(*_: Any) -> None:
        if fails:
            raise fails[0]

    world.engine.on_prepare = flaky
    world.ticks()
    (stage,) = world.store.stages("one")
    assert stage.retry_at is not None
    assert stage.retry_at > world.clock()
    fails.clear()
    world.ticks()
    assert world.store.stages("one")[0].epoch == 0
    world.restart()
    world.clock.advance(seconds=-3600)
    world.ticks()
    assert world.store.stages("one")[0].epoch == 1
    world.close()


def test_an_hour_back_keeps_no_epoch_from_being_finished(tmp_path: Path) -> None:
    """What is recorded and could not be published is published once it can be."""
    world = World(tmp_path)
    world.controller.register(ONE)
    world.arrive("one", "a", ("x", 1))
    fails = [OperatingError("the disk is away")]

    def flaky(*_: Any) -> None:
        if fails:
            raise fails[0]

    world.engine.on_publish = flaky
    world.ticks()
    assert world.parts.parked.all()
    fails.clear()
    world.ticks()
    assert world.parts.parked.all()
    world.clock.advance(seconds=-3600)
    world.ticks()
    assert not world.parts.parked.all()
    assert world.flow("one", "sum.totals") == [{"word": "x", "n": 1}]
    world.close()


def test_a_pause_that_was_kept_is_waited_for_to_its_end() -> None:
    """Whatever part of the tries was operating, and after a restart too."""
    policy = RetryPolicy(3, (1.0, 5.0), 300.0)
    for tries in range(1, 12):
        end = policy.lasting(tries, NOW, 1.0).end
        for failures in (tries, tries + 3):
            stage = StageRecord("d", "s", 0, NOW, failures=failures, retry_at=end)
            assert policy.not_before(stage.retry_at, stage.failures, NOW) == end
            assert policy.not_before(stage.retry_at, stage.failures, NOW - HOUR) is None
