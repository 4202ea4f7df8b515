"""Which sinks get a pass: those with something to do, however that is known; others in turn."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from cbp.model.schedule.idle_until import TURNS
from controller.loop.runs.dataflow_locks import DataflowLocks
from controller.sinks import SinkPublishing
from tests.controller.sinks import sunk
from tests.controller.world import World

pytestmark = pytest.mark.usefixtures("without_syncs")

FILES: dict[str, Any] = {"flow": sunk.FLOW, "to": "parquet"}
MANY = {f"s{number:02d}": {**FILES, "path": f"s{number:02d}"} for number in range(12)}
WAIT_SECONDS = 60
ALL = {("one", name) for name in MANY}


def passed(sinks: SinkPublishing) -> set[tuple[str, str]]:
    """Make a pass over each sink that is due; return which these were."""
    due = sinks.due()
    for pair in due:
        while sinks.publish(*pair):
            pass
    return set(due)


def quiet(sinks: SinkPublishing) -> None:
    """Make passes until only those are due whose turn it is."""
    for _ in range(5):
        if len(passed(sinks)) == 1:
            return
    raise AssertionError("sinks in which nothing happens get passes again and again")


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = sunk.sink_world(tmp_path)
    made.controller.register(sunk.document(MANY))
    return made


def test_a_sink_begins_in_its_first_pass_though_files_are_being_read(world: World) -> None:
    """It waits for the listing that has the dataflow: a mere try misses the moments between two."""
    taken, asked = threading.Event(), threading.Event()

    class Asked(DataflowLocks):
        def attempt(self, name: str, purpose: str, *, seconds: float = 0.0) -> Any:
            asked.set()
            return super().attempt(name, purpose, seconds=seconds)

    locks = Asked()

    def read() -> None:
        with locks.hold("one", "has its files read"):
            taken.set()
            assert asked.wait(WAIT_SECONDS)

    reading = threading.Thread(target=read, daemon=True)
    reading.start()
    assert taken.wait(WAIT_SECONDS)
    sunk.sinks_of(world, exclusion=locks, pass_seconds=WAIT_SECONDS).publish("one", "s00")
    reading.join(WAIT_SECONDS)
    assert {row.sink for row in world.store.sinks("one")} == {"s00"}
    world.close()


def test_a_sink_that_is_done_has_a_pass_in_turn_only(world: World) -> None:
    """Before the first increment, and behind it."""
    sinks = sunk.sinks_of(world)
    assert passed(sinks) == ALL
    quiet(sinks)
    world.arrive("one", "a", ("x", 1))
    world.ticks()
    assert passed(sinks) == ALL
    quiet(sinks)
    assert len(MANY) < TURNS
    seen = {pair for _ in MANY for pair in passed(sinks)}
    assert seen == ALL
    world.close()


def test_a_sink_that_failed_is_due_when_it_is_tried_again(world: World) -> None:
    """Not before, though nothing else changes; a pause ends the tries."""
    sinks = sunk.sinks_of(world)
    passed(sinks)
    quiet(sinks)
    make = sinks.make_target

    def fails(*_: Any) -> Any:
        message = "the target is away"
        raise OSError(message)

    sinks.make_target = fails
    world.arrive("one", "a", ("x", 1))
    world.ticks()
    assert passed(sinks) == ALL
    passed(sinks)
    assert len(passed(sinks)) <= 1
    world.clock.advance(3600)
    sinks.make_target = make
    assert passed(sinks) == ALL
    quiet(sinks)
    world.close()
