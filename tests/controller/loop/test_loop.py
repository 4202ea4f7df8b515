"""The loop, stepped by hand: what starts, what waits, and how it stops."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.controller.world import DIAMOND, ONE, Deferred, World, only_stage, statuses


def test_an_arrival_is_applied_and_comes_out(world: World) -> None:
    """One increment through one stage: committed, published, readable, dequeued."""
    world.controller.register(ONE)
    world.arrive("one", "a", ("x", 1), ("y", 2))
    world.ticks()
    assert statuses(world) == [("COMMITTED", 0, 1)]
    assert world.flow("one", "sum.totals") == [{"word": "x", "n": 1}, {"word": "y", "n": 2}]
    key = {"word": "y"}
    assert world.controller.reading.look_up("one", "sum", "sums", key) == [{"word": "y", "n": 2}]
    assert world.store.connectors("one")["sum"]["items"].queue == ()
    assert world.controller.waiting("one") == {"sum": "waits for an increment on items"}


def test_independent_stages_run_at_the_same_time(deferred: World) -> None:
    """Both sides are under way before either ends; the join runs when both have ended."""
    deferred.controller.register(DIAMOND)
    deferred.arrive("diamond", "a", ("x", 1))
    deferred.arrive("diamond", "b", ("x", 2))
    assert {start.stage for start in deferred.controller.tick().starts} == {"left", "right"}
    assert deferred.controller.tick().starts == ()
    executor: Any = deferred.executor
    executor.run_next()
    assert deferred.controller.tick().starts == ()
    executor.run_next()
    assert [start.stage for start in deferred.controller.tick().starts] == ["join"]


def test_no_more_runs_than_places(tmp_path: Path) -> None:
    """The limit holds over all dataflows, and the one that waits says so."""
    world = World(tmp_path, executor=Deferred(), parallel_max=1)
    world.controller.register(DIAMOND)
    world.arrive("diamond", "a", ("x", 1))
    world.arrive("diamond", "b", ("x", 2))
    assert len(world.controller.tick().starts) == 1
    assert len(world.parts.in_flight.busy()) == 1
    assert "waits for a free slot (1 in all)" in world.controller.waiting("diamond").values()
    world.close()


def test_a_stage_never_runs_beside_itself(deferred: World) -> None:
    """Epochs of one stage are serial, however often the loop looks."""
    deferred.controller.register(ONE)
    deferred.arrive("one", "a", ("x", 1))
    deferred.arrive("one", "a", ("x", 2))
    started = [len(deferred.controller.tick().starts) for _ in range(3)]
    assert started == [1, 0, 0]
    assert deferred.controller.waiting("one") == {"sum": "runs epoch 0"}


def test_a_run_that_ends_during_a_tick_is_not_started_again(
    deferred: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A queue loaded before a run ended is never taken for the queue after it.

    (1) the tick notes who runs (2) the tick loads the queue (3) the run commits
    (4) the tick decides: the stage must still count as running.
    """
    deferred.controller.register(ONE)
    deferred.arrive("one", "a", ("x", 1))
    deferred.controller.tick()
    executor: Any = deferred.executor
    load = deferred.store.connectors

    def ends_after_loading(name: str) -> Any:
        loaded = load(name)
        while executor.waiting:
            executor.run_next()
        return loaded

    monkeypatch.setattr(deferred.store, "connectors", ends_after_loading)
    assert deferred.controller.tick().starts == ()
    monkeypatch.undo()
    assert deferred.controller.tick().starts == ()
    assert statuses(deferred) == [("COMMITTED", 0, 1)]


def test_several_dataflows_do_not_mix(world: World) -> None:
    """The same names in two dataflows are two things."""
    other = copy.deepcopy(ONE) | {"name": "two"}
    world.controller.register(ONE)
    world.controller.register(other)
    world.arrive("one", "a", ("x", 1))
    world.arrive("two", "a", ("y", 2))
    world.ticks()
    assert world.flow("one", "sum.totals") == [{"word": "x", "n": 1}]
    assert world.flow("two", "sum.totals") == [{"word": "y", "n": 2}]


def test_prepared_times_rise_even_if_the_clock_goes_back(world: World) -> None:
    """In-commit timestamps of a table must rise, whatever the clock does, restarts too."""
    world.controller.register(ONE)
    log = world.parts.open_log(f"{world.tables}/one")
    for step in range(3):
        world.arrive("one", "a", ("x", step))
        world.ticks()
        world.clock.advance(-3600)
        world.restart()
    times = [intention.prepared_ms for intention in log.since("sum", 0)]
    assert times == sorted(set(times))
    assert len(times) == 3


def test_run_ids_sort_by_time_of_decision(world: World) -> None:
    """The newest run has the greatest id, also within one millisecond."""
    world.controller.register(ONE)
    for step in range(4):
        world.arrive("one", "a", ("x", step))
    world.ticks()
    runs = world.store.runs().items
    assert [run.epoch for run in sorted(runs, key=lambda run: run.id)] == [0, 1, 2, 3]


def test_an_end_wakes_the_next_tick(world: World) -> None:
    """What waits for a run does not wait for the next poll."""
    world.controller.register(ONE)
    world.arrive("one", "a", ("x", 1))
    world.controller.wait(0)
    world.controller.tick()
    assert world.parts.woken.is_set()


def test_a_drained_controller_starts_nothing(world: World) -> None:
    """After drain nothing runs, and nothing starts."""
    world.controller.register(ONE)
    world.ticks()
    assert world.controller.drain(timeout=0)
    world.arrive("one", "a", ("x", 1))
    assert world.controller.tick().starts == ()
    assert world.controller.waiting("one") == {"sum": "the service is stopping"}


@pytest.mark.timeout(30)
def test_a_run_that_outlasts_the_drain_is_interrupted(tmp_path: Path) -> None:
    """A stop cancels what takes too long; that is no failure, and it runs again."""
    threads = ThreadPoolExecutor(1)
    world = World(tmp_path, executor=threads)
    begun = world.block_runs()
    world.controller.register(ONE)
    world.arrive("one", "a", ("x", 1))
    world.controller.tick()
    begun.wait()
    assert not world.controller.drain(timeout=0.01)
    threads.shutdown()
    assert only_stage(world).paused_because == ""
    (run,) = world.store.runs().items
    assert run.error is not None
    assert run.error["error_code"] == "run_interrupted"
    world.close()
