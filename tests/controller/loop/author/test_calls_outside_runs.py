"""Runnables are asked beside the thread that ticks: what hangs or is slow stops nobody else."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cbp import Connector, Decision
from cbp.engine.storage.failpoints import NO_FAULTS
from cbp.errors import OperatingError
from controller.loop.runs.threads import Here, Threads
from tests.controller.world import ONE, Deferred, Sum, World, until
from tests.planned_faults import PlannedFaults

LIMIT = 60.0
CHAIN: dict[str, Any] = {
    "name": "chain",
    "sources": ONE["sources"],
    "stages": {
        "sum": {"translator": "sum", "inputs": {"items": "a"}},
        "last": {"translator": "slow", "inputs": {"items": "sum.totals"}},
    },
}
WAIT_SECONDS = 120


GATE = SimpleNamespace(held=threading.Event(), asked=[])
"""What `Slow` waits for, and how often it was asked; no state of the author's class."""


class Slow(Sum):
    """Reads the oldest increment, once it is let; counts how often it was asked."""

    def runnable(self, connectors: Mapping[str, Connector], memo: Any) -> Decision:
        waiting = [increment.index for increment in connectors["items"].unread]
        GATE.asked.append(len(waiting))
        GATE.held.wait(WAIT_SECONDS)
        chosen = {"items": tuple(waiting[:1])} if waiting else {}
        return Decision(chosen, chosen, waits_for="waits for news")


@pytest.fixture
def held() -> Iterator[threading.Event]:
    """What is asked waits for this; set at the end, so that no thread is left behind."""
    GATE.held, GATE.asked = threading.Event(), []
    yield GATE.held
    GATE.held.set()


def two(root: Path, **more: Any) -> World:
    """Return a service with the dataflows `bad`, whose Runnable is slow, and `good`."""
    world = World(root, runnable_seconds_max=LIMIT, **more)
    world.translators["slow"] = Slow
    world.restart()
    for name, translator in (("bad", "slow"), ("good", "sum")):
        document = copy.deepcopy(ONE)
        document["name"], document["stages"]["sum"]["translator"] = name, translator
        world.controller.register(document)
    return world


def epoch(world: World, name: str) -> int:
    return world.store.stages(name)[0].epoch


def test_a_runnable_that_never_returns_stops_its_stage_only(
    tmp_path: Path, held: threading.Event
) -> None:
    """Another dataflow goes on at every tick; at its limit the stage stops and says where."""
    world = two(tmp_path, answerers=Threads("answer"))
    for number in range(3):
        world.arrive("bad", "a", ("x", number))
        world.arrive("good", "a", ("x", number))
        world.controller.tick()
        assert epoch(world, "good") == number + 1
    wait = world.controller.waits("bad")["sum"]
    assert (wait.kind, "answer of runnable" in wait.words, __file__ in wait.words) == (
        "asking",
        True,
        True,
    )
    world.clock.advance(LIMIT + 1)
    world.arrive("good", "a", ("x", 3))
    world.controller.tick()
    assert epoch(world, "good") == 4
    (stage,) = world.store.stages("bad")
    error = stage.error or {}
    assert error["error_code"] == "answer_late"
    details = error["details"]
    assert (details["stage"], details["function"]) == ("sum", "runnable")
    assert details["place"].startswith(f"{__file__}:")
    assert (details["seconds"], details["setting"]) == (LIMIT, "runnable_seconds_max")
    assert stage.paused_because == error["message"]
    assert "runnable_seconds_max" in error["message"]
    assert GATE.asked == [1], "it is asked once, however many ticks pass"
    threads = [t for t in threading.enumerate() if t.name.startswith("answer")]
    held.set()
    until(lambda: not any(thread.is_alive() for thread in threads))
    world.controller.tick()
    assert (epoch(world, "bad"), len(GATE.asked)) == (0, 1), "what it brings counts no more"
    world.controller.retry("bad", "sum")
    until(lambda: (world.controller.tick(), epoch(world, "bad"))[1] == 3)
    world.close()


def test_a_late_answer_wakes_the_next_tick(tmp_path: Path, held: threading.Event) -> None:
    """It came behind the grace of its tick: nobody waits a whole tick for it."""
    world = two(tmp_path, answerers=Threads("answer"))
    world.arrive("bad", "a", ("x", 1))
    world.controller.wait(0)
    world.controller.tick()
    assert world.controller.waits("bad")["sum"].kind == "asking"
    world.controller.wait(0)
    held.set()
    until(world.parts.woken.is_set)
    world.controller.tick()
    assert epoch(world, "bad") == 1
    world.close()


def test_a_decision_holds_though_more_has_come(tmp_path: Path, held: threading.Event) -> None:
    """As one of an earlier tick does; what came since is decided about behind its run."""
    held.set()
    answerers = Deferred()
    world = two(tmp_path, answerers=answerers)
    world.arrive("bad", "a", ("x", 1))
    world.controller.tick()
    world.arrive("bad", "a", ("x", 2))
    world.controller.tick()
    assert len(answerers.waiting) == 1
    answerers.run_next()
    world.controller.tick()
    (run,) = world.store.runs("bad").items
    assert (run.read["items"], GATE.asked) == ((0,), [1])
    world.close()


def test_nothing_to_read_is_asked_again_when_something_came(
    tmp_path: Path, held: threading.Event
) -> None:
    """And only then: a Runnable is a function of what waits and of its memo."""
    held.set()
    world = two(tmp_path, answerers=Here())
    for _ in range(3):
        world.controller.tick()
    assert (world.controller.waiting("bad")["sum"], GATE.asked) == ("waits for news", [0])
    document = world.store.dataflow("bad").document
    world.controller.delete("bad", purge=True)
    world.controller.register(document)
    world.controller.tick()
    assert GATE.asked == [0, 0], "of a dataflow that is gone, no answer is kept"
    world.arrive("bad", "a", ("x", 1))
    world.controller.tick()
    assert (epoch(world, "bad"), GATE.asked) == (1, [0, 0, 1])
    world.close()


def test_an_answer_to_an_earlier_question_starts_nothing(
    tmp_path: Path, held: threading.Event
) -> None:
    """Deleted and registered anew, a dataflow is asked anew."""
    held.set()
    answerers = Deferred()
    world = two(tmp_path, answerers=answerers)
    world.arrive("bad", "a", ("x", 1))
    world.controller.tick()
    document = world.store.dataflow("bad").document
    world.controller.delete("bad", purge=True)
    world.controller.register(document)
    world.controller.tick()
    assert len(answerers.waiting) == 2
    answerers.run_next()
    world.controller.tick()
    assert (epoch(world, "bad"), world.controller.waits("bad")["sum"].kind) == (0, "asking")
    answerers.run_next()
    world.controller.tick()
    assert world.controller.waiting("bad") == {"sum": "waits for news"}
    world.close()


def test_an_answer_of_an_undone_life_starts_nothing(tmp_path: Path, held: threading.Event) -> None:
    """Rolled back meanwhile, a stage reads what its Runnable says of the queues of then."""
    held.set()
    answerers = Deferred()
    world = two(tmp_path, answerers=answerers)
    for number in range(2):
        world.arrive("bad", "a", ("x", number))
        world.controller.tick()
        if not number:
            answerers.run_next()
            world.controller.tick()
    world.controller.tick()
    assert (epoch(world, "bad"), len(answerers.waiting)) == (1, 1)
    world.controller.amendments.roll_back("bad", "0", who="me", why="wrong")
    answerers.run_next()
    world.controller.tick()
    assert (epoch(world, "bad"), len(answerers.waiting)) == (0, 1)
    answerers.run_next()
    world.controller.tick()
    assert world.store.runs("bad").items[0].read["items"] == (0,)
    world.close()


def test_an_answer_behind_a_roll_back_of_what_feeds_it_starts_nothing(
    tmp_path: Path, held: threading.Event
) -> None:
    """The stage itself is where it was, at its first epoch; its queue is not."""
    held.set()
    answerers = Deferred()
    world = World(tmp_path, answerers=answerers)
    world.translators["slow"] = Slow
    world.restart()
    world.controller.register(CHAIN)
    for number in range(2):
        world.arrive("chain", "a", ("x", number))
        world.controller.tick()
    assert len(answerers.waiting) == 1
    world.controller.amendments.roll_back("chain", "0", who="me", why="wrong", pause=True)
    answerers.run_next()
    world.controller.resume("chain")
    world.controller.tick()
    assert len(answerers.waiting) == 1
    world.close()


@pytest.mark.parametrize("away", [False, True])
def test_what_is_late_is_wanted_no_more_whatever_fails(
    away: bool, tmp_path: Path, held: threading.Event
) -> None:
    """Each of several that are late; none is waited for, even if its stage could not be stopped."""
    answerers = Deferred()
    world = World(tmp_path, answerers=answerers, runnable_seconds_max=LIMIT)
    world.translators["slow"] = Slow
    world.restart()
    for name in ("b", "c"):
        document = copy.deepcopy(ONE)
        document["name"], document["stages"]["sum"]["translator"] = name, "slow"
        world.controller.register(document)
        world.arrive(name, "a", ("x", 1))
    world.controller.tick()
    assert len(answerers.waiting) == 2
    world.clock.advance(seconds=LIMIT + 1)
    if away:
        world.faults.to = PlannedFaults("sql_commit.before", error=OperatingError("away"))
        world.controller.tick()
        world.faults.to = NO_FAULTS
    world.controller.tick()
    stopped = [world.store.stages(name)[0].error for name in ("b", "c")]
    asked = len(answerers.waiting) - 2
    assert sum(error is not None for error in stopped) + asked == 2
    held.set()
    world.close()


class Leaves(Sum):
    """Ends the thread that asks it."""

    def runnable(self, connectors: Mapping[str, Connector], memo: Any) -> Decision:
        raise SystemExit


def test_a_runnable_that_ends_its_thread_stops_its_stage_only(tmp_path: Path) -> None:
    """What is no ordinary exception is an author's error too, with its line."""
    world = World(tmp_path, answerers=Threads("answer"))
    world.translators["sum"] = Leaves
    world.restart()
    world.controller.register(ONE)
    world.arrive("one", "a", ("x", 1))
    until(lambda: (world.controller.tick(), world.store.stages("one")[0].error)[1])
    (stage,) = world.store.stages("one")
    assert (stage.error or {})["error_code"] == "author_code_failed"
    assert "SystemExit" in stage.paused_because
    world.close()
