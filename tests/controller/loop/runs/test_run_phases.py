"""Phases of runs: shown while a run is under way, and recorded with its figures when it ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cbp.engine.direct import LocalEngine
from cbp.model.run.timeline import Phase, timeline
from controller.loop.runs.in_flight import RunPhases
from tests.controller.api.clicks import NOON
from tests.controller.world import FUSED, ONE, Deferred, SettableClock, World


@pytest.fixture
def runs() -> Deferred:
    return Deferred()


@pytest.fixture
def world(tmp_path: Path, runs: Deferred) -> Iterator[World]:
    made = World(tmp_path, executor=runs)
    made.controller.register(ONE)
    made.arrive("one", "a", ("x", 1))
    yield made
    made.close()


def newest(world: World) -> Any:
    return world.store.runs("one", limit=1).items[0]


def test_a_run_under_way_says_its_phase_and_a_committed_one_all(
    world: World, runs: Deferred
) -> None:
    """It waits 3 seconds for a thread, and its tasks work for 5; the record has the same times."""
    seen: list[tuple[Phase, ...]] = []

    def work(plan: Any) -> None:
        seen.append(timeline(world.controller.phases(plan.run), None))
        world.clock.advance(5)

    world.engine.on_prepare = work
    world.controller.tick()
    assert timeline(world.controller.phases(newest(world).id), None) == (Phase("start", 0, None),)
    world.clock.advance(3)
    runs.run_next()
    assert seen == [(Phase("start", 0, 3), Phase("plan", 3, 3), Phase("job", 3, None))]
    run = newest(world)
    seconds = (run.finished_at - run.started_at).total_seconds()
    assert timeline(run.figures, seconds) == (
        Phase("start", 0, 3),
        Phase("plan", 3, 3),
        Phase("job", 3, 8),
        Phase("finish", 8, seconds),
    )


def test_a_failed_run_says_how_far_it_came(world: World, runs: Deferred) -> None:
    """Its last phase is the one in which it failed, and ends with it."""

    def fail(plan: Any) -> None:
        world.clock.advance(7)
        raise ValueError("bad")

    world.engine.on_prepare = fail
    world.controller.tick()
    runs.run_next()
    assert timeline(newest(world).figures, 7.0)[-1] == Phase("job", 0, 7)


def test_a_real_engine_goes_through_every_phase(tmp_path: Path) -> None:
    """Fused stages of two phases plan and work twice; the beginnings never go back."""
    world = World(tmp_path, engine=LocalEngine)
    world.controller.register(FUSED)
    world.arrive("fused", "a", ("a", 1), ("b", 2))
    world.ticks()
    (run,) = world.store.runs("fused").items
    phases = timeline(run.figures, None)
    names = [phase.name for phase in phases]
    assert names[:4] == ["start", "plan", "job", "assemble"]
    assert names[-1] == "finish"
    begins = [phase.begin for phase in phases]
    assert begins == sorted(begins)
    world.close()


def test_only_the_newest_runs_are_kept() -> None:
    """What is kept does not grow with the runs; a run that is not known has no phases."""
    phases = RunPhases(SettableClock())
    for n in range(1001):
        phases.begin(f"r{n}", NOON)
    phases.enter("r0", "job")
    assert phases.figures("r0") == {}
    assert phases.figures("r1") == {"begin_00_start": 0.0}
