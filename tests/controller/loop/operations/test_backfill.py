"""Back-fill: a stage that came late ends where it would be, had it been there from the first."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cbp.engine.direct import LocalEngine
from cbp.engine.storage.failpoints import NO_FAULTS
from cbp.model.version.version_change import Choice
from tests.controller.world import ONE, World
from tests.planned_faults import Crash, PlannedFaults

TWO = {**ONE, "stages": {**ONE["stages"], "late": ONE["stages"]["sum"]}}
AGAIN = Choice(rebuild=frozenset({"late"}))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        made = World(tmp_path, engine=LocalEngine)
        made.controller.register(ONE)
        for number in range(3):
            made.arrive("one", "a", (f"w{number % 2}", number + 1))
            made.ticks()
        made.controller.change(TWO)
        made.arrive("one", "a", ("w0", 10))
        made.ticks()
        yield made
        made.close()


def states(world: World) -> list[Any]:
    picture = world.picture()
    return [picture[f"one {stage}.sums"] for stage in ("sum", "late")]


def test_the_plan_tells_what_is_read_again(world: World) -> None:
    """Increments, records and bytes; nothing is changed."""
    before = world.picture()
    plan = world.controller.change(TWO, choice=AGAIN, dry_run=True)
    (queue,) = plan.succession.queues
    assert (queue.stage, len(queue.queued)) == ("late", 4)
    assert sum(increment.records for increment in queue.queued) == 4
    assert world.picture() == before


def test_a_late_stage_reads_everything_that_is_retained(world: World) -> None:
    """It has what it would have, and goes on with what arrives."""
    assert states(world)[0] != states(world)[1]
    world.controller.change(TWO, choice=AGAIN)
    world.ticks()
    assert states(world)[0] == states(world)[1]
    world.arrive("one", "a", ("w1", 5))
    world.ticks()
    assert states(world)[0] == states(world)[1]


@pytest.mark.parametrize("point", ["description.before", "description.after", "sql_commit.before"])
def test_a_crash_ends_before_or_after(world: World, point: str) -> None:
    """Killed anywhere, the stage has read all of it again, or nothing."""
    before = states(world)
    world.faults.to = PlannedFaults(point)
    with suppress(Crash):
        world.controller.change(TWO, choice=AGAIN)
    world.faults.to = NO_FAULTS
    world.restart()
    world.controller.recover()
    world.ticks()
    sum_, late = states(world)
    assert sum_ == before[0]
    assert late == (before[0] if world.store.dataflow("one").version == 3 else before[1])
