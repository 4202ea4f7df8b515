"""Giving way: what holds all slots or places is cancelled for others' sake, and runs again.

What hangs in every slot, or in more runs than may go on without a place, gives way once it is slow,
and runs again beside the others; what has much to do ends. It is no failed try, and an operator's
cancel wins.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cbp.engine.interface.runs import RunPlan
from cbp.errors import OperatingError, SparkJobError
from cbp.model.run.intention import RunStatus
from cbp.model.schedule.parallel_runs import STARVED_SECONDS
from controller.loop.runs.time_limit import GIVE_UP_SECONDS
from tests.controller.world import ONE, Deferred, World

SLOW = 120.0
BESIDE = (
    "the run gave way to other dataflows once, so it now uses at most half of the engine's slots"
)
TURN = "waits for its turn: only one run that gave way is allowed at a time"


@pytest.fixture
def runs() -> Deferred:
    return Deferred()


@pytest.fixture
def world(tmp_path: Path, runs: Deferred) -> Iterator[World]:
    made = World(tmp_path, executor=runs)
    yield made
    made.close()


def begin(world: World, *names: str) -> None:
    """Let dataflows of one stage run; their runs are under way."""
    for name in names:
        world.controller.register({**ONE, "name": name})
        world.arrive(name, "a", ("x", 1))
        world.controller.tick()


def newest(world: World, name: str) -> Any:
    return world.store.runs(name, limit=1).items[0]


def words(world: World, name: str) -> str:
    """Return what a stage says at the next tick: one that starts says nothing yet."""
    world.controller.tick()
    return world.controller.waits(name)["sum"].words


def starve(world: World, name: str) -> None:
    """Let a run have no slot for so long that another one, if it is late, gives way."""
    world.engine.without_slots = {newest(world, name).id}
    world.controller.tick()
    world.clock.advance(STARVED_SECONDS)
    world.controller.tick()


def end(runs: Deferred, at: int = 0) -> None:
    """Let a run come to its end."""
    runs.waiting.rotate(-at)
    runs.run_next()
    runs.waiting.rotate(at)


def test_who_is_late_gives_way_and_runs_again_beside(world: World, runs: Deferred) -> None:
    """Its epoch runs again at once, with half of the slots; it counts as no failure."""
    plans: list[RunPlan] = []
    begin(world, "bad", "good")
    bad = newest(world, "bad").id
    world.clock.advance(SLOW)
    starve(world, "good")
    assert world.engine.cancelled == [bad]
    world.controller.tick()
    assert world.engine.cancelled == [bad], "once"
    end(runs)
    shown = newest(world, "bad")
    assert (shown.status, shown.error["error_code"]) == (RunStatus.FAILED, "run_gave_way")
    details = {"run": bad, "stage": "sum", "seconds": 125.0, "to": "good"}
    assert shown.error["details"] == details
    assert world.store.stages("bad")[0].paused_because == ""
    world.engine.on_prepare = plans.append
    world.controller.tick()
    assert words(world, "bad") == f"runs epoch 0; {BESIDE}"
    end(runs)
    assert world.store.stages("good")[0].epoch == 1
    assert newest(world, "bad").attempt == 2
    end(runs)
    assert [(plan.dataflow, plan.slots_max) for plan in plans] == [("good", None), ("bad", 1)]
    assert [row["n"] for row in world.flow("bad", "sum.totals")] == [1]
    world.arrive("bad", "a", ("x", 1))
    world.controller.tick()
    end(runs)
    assert plans[-1].slots_max is None, "the next epoch has all slots again"


def test_who_has_a_slot_now_and_then_makes_nobody_give_way(world: World) -> None:
    """Slots change hands: only who had none for some seconds on end starves."""
    begin(world, "bad", "good")
    world.clock.advance(SLOW)
    for without in 3 * [{newest(world, "good").id}, set()]:
        world.engine.without_slots = without
        world.clock.advance(STARVED_SECONDS)
        world.controller.tick()
    assert world.engine.cancelled == []
    starve(world, "good")
    assert world.engine.cancelled == [newest(world, "bad").id]


def test_a_turn_begins_with_a_slot(world: World, runs: Deferred) -> None:
    """Who got one only when another gave way does not give way to that one at once."""
    begin(world, "bad", "good")
    world.clock.advance(SLOW)
    starve(world, "good")
    end(runs)
    world.controller.tick()
    world.engine.cancelled.clear()
    world.engine.without_slots = set()
    world.clock.advance(1)
    world.controller.tick()
    starve(world, "bad")
    assert world.engine.cancelled == [], "it had none until now"
    world.clock.advance(SLOW)
    world.controller.tick()
    assert world.engine.cancelled == [newest(world, "good").id]


def test_who_starves_behind_one_that_gave_way_is_counted_anew(world: World, runs: Deferred) -> None:
    """What the first one leaves may do: nobody else gives way while it ends, nor at once then."""
    begin(world, "bad0", "bad1")
    world.clock.advance(SLOW)
    begin(world, "good")
    starve(world, "good")
    cancelled = [newest(world, "bad0").id]
    for _ in range(2):
        world.clock.advance(STARVED_SECONDS)
        world.controller.tick()
    end(runs)
    world.controller.tick()
    assert world.engine.cancelled == cancelled
    world.clock.advance(STARVED_SECONDS)
    world.controller.tick()
    assert world.engine.cancelled == [*cancelled, newest(world, "bad1").id]


@pytest.mark.parametrize("asked_by", ["who starves", "an operator", "its time limit"])
def test_one_that_ends_between_two_looks_makes_room_too(
    world: World, runs: Deferred, asked_by: str
) -> None:
    """It is gone at the next tick: who starves is counted anew, and takes what that one left."""
    begin(world, "bad0", "bad1")
    world.clock.advance(SLOW)
    begin(world, "good")
    first = newest(world, "bad0").id
    if asked_by == "who starves":
        starve(world, "good")
    else:
        world.engine.without_slots = {newest(world, "good").id}
        world.controller.tick()
        world.clock.advance(STARVED_SECONDS - 1)
        world.controller.tick()
        if asked_by == "an operator":
            world.controller.cancel(first)
        else:
            world.parts.in_flight._busy["bad0", "sum"].seconds_max = SLOW
            world.parts.time_limit.keep()
    assert world.engine.cancelled == [first]
    end(runs)
    world.clock.advance(1)
    world.controller.tick()
    for seconds in (0, 1, STARVED_SECONDS - 2):
        world.clock.advance(seconds)
        world.controller.tick()
        assert world.engine.cancelled == [first]
    world.clock.advance(1)
    world.controller.tick()
    assert world.engine.cancelled == [first, newest(world, "bad1").id]


def test_what_is_recorded_gives_no_way(world: World, runs: Deferred) -> None:
    """It has no slots any more: the engine is not asked; and who asks too late changes nothing."""
    begin(world, "bad", "good")
    world.clock.advance(SLOW)
    asked: list[list[str]] = []

    def slow(intention: Any) -> None:
        world.engine.control.starved = asked.append
        starve(world, "good")
        world.parts.in_flight.give_way(newest(world, "bad").id, "good")

    world.engine.on_publish = slow
    end(runs)
    assert (asked, world.engine.cancelled) == ([], [])
    assert newest(world, "bad").status is RunStatus.COMMITTED


def test_in_peace_time_the_engine_is_not_asked(world: World) -> None:
    """And one that cannot tell stops nobody."""
    asked: list[int] = []

    def unable(runs: list[str]) -> list[str]:
        asked.append(len(runs))
        message = "gone"
        raise OperatingError(message)

    world.engine.control.starved = unable
    begin(world, "bad", "good")
    world.controller.tick()
    assert asked == []
    world.clock.advance(SLOW)
    world.controller.tick()
    assert (asked, world.engine.cancelled) == ([2], [])


def test_where_too_many_hang_who_began_first_gives_way(world: World, runs: Deferred) -> None:
    """Eight may hold no place; where two more hold both, one of all makes room for others."""
    for n in range(5):
        begin(world, f"bad{2 * n}", f"bad{2 * n + 1}")
        world.clock.advance(SLOW)
    begin(world, "good")
    assert len(runs.waiting) == 10
    assert world.engine.cancelled == [newest(world, "bad0").id]
    end(runs)
    world.controller.tick()
    assert words(world, "good") == "runs epoch 0"
    assert BESIDE in words(world, "bad0")


def test_the_narrow_place_goes_round(world: World, runs: Deferred) -> None:
    """Two that hang and do not even stop share it in turns, also after a restart."""
    begin(world, "bad0", "bad1")
    world.clock.advance(SLOW)
    begin(world, "good")
    starve(world, "good")
    for name in ("bad0", "bad1"):
        assert newest(world, name).id in world.engine.cancelled, name
        world.clock.advance(GIVE_UP_SECONDS)
        world.controller.tick()
        assert newest(world, name).status is RunStatus.FAILED or name == "bad0"
        world.controller.tick()
        starve(world, "good")
    said = {name: words(world, name) for name in ("bad0", "bad1")}
    assert BESIDE in said["bad0"]
    assert said["bad1"] == f"gave way to other dataflows once and {TURN}"
    world.engine.without_slots = set()
    world.clock.advance(2 * SLOW)
    world.controller.tick()
    world.clock.advance(GIVE_UP_SECONDS)
    for _ in range(2):
        world.controller.tick()
    said = {name: words(world, name) for name in ("bad0", "bad1")}
    assert said["bad0"] == f"gave way to other dataflows 2 times and {TURN}"
    assert said["bad1"].endswith(f"; {BESIDE}")
    runs.waiting.clear()
    world.restart()
    world.controller.recover()
    world.controller.tick()
    assert "gave way to other dataflows 2 times" in words(world, "bad0")


def test_an_operators_cancel_wins(world: World, runs: Deferred) -> None:
    """Cancelling a run that gives way, or would have to, keeps it from running again."""
    begin(world, "bad", "good")
    world.clock.advance(SLOW)
    starve(world, "good")
    world.controller.cancel(newest(world, "bad").id)
    world.parts.in_flight.give_way(newest(world, "bad").id, "good")
    end(runs)
    assert newest(world, "bad").error["error_code"] == "run_cancelled"
    assert "`cbp resume` runs epoch 0 again" in world.store.stages("bad")[0].paused_because
    world.controller.retry("bad", "sum")
    world.controller.tick()
    assert "narrow" not in words(world, "bad")


def test_giving_way_is_no_failed_try(world: World, runs: Deferred) -> None:
    """It pauses no stage, however often tries of its own failed before."""

    def fail(plan: RunPlan) -> None:
        raise SparkJobError(plan.run, "a worker died")  # counts as a try, unlike a full disk

    begin(world, "bad")
    world.engine.on_prepare = fail
    for _ in range(2):
        end(runs)
        world.clock.advance(60)
        world.controller.tick()
    world.engine.on_prepare = lambda plan: None
    begin(world, "good")
    world.clock.advance(SLOW)
    starve(world, "good")
    end(runs)
    stage = world.store.stages("bad")[0]
    assert (stage.failures, stage.paused_because) == (3, "")
    world.controller.tick()
    world.engine.on_prepare = fail
    end(runs, 1)
    assert world.store.stages("bad")[0].paused_because
