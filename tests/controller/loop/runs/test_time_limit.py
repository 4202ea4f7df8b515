"""Time limits: what hangs is cancelled, given up, and never holds up another dataflow.

Its stage stops and says so, and others run meanwhile.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cbp import Input, framed
from cbp.engine.interface.runs import RunPlan
from cbp.model.run.intention import RunStatus
from controller.loop.runs.threads import Threads
from controller.loop.runs.time_limit import GIVE_UP_SECONDS, GIVE_UP_SHARE
from tests.controller.world import ONE, SCHEMA, Deferred, Sum, World, until

LIMIT = 60.0
WAIT_SECONDS = 120


@pytest.fixture
def runs() -> Deferred:
    return Deferred()


@pytest.fixture
def world(tmp_path: Path, runs: Deferred) -> Iterator[World]:
    made = World(tmp_path, executor=runs, framers=Threads("frame"), run_seconds_max=LIMIT)
    made.controller.register(ONE)
    made.arrive("one", "a", ("x", 1))
    yield made
    made.close()


def newest(world: World) -> Any:
    return world.store.runs("one", limit=1).items[0]


def because(world: World) -> str:
    return world.store.stages("one")[0].paused_because


def test_a_late_run_is_cancelled_and_its_stage_stops(world: World, runs: Deferred) -> None:
    """At its limit, not before; the stage says so, and runs the epoch again once resumed."""
    world.controller.tick()
    world.clock.advance(LIMIT - 1)
    world.controller.tick()
    assert world.engine.cancelled == []
    world.clock.advance(1)
    world.controller.tick()
    assert world.engine.cancelled == [newest(world).id]
    runs.run_next()
    assert (newest(world).status, newest(world).error["error_code"]) == ("FAILED", "time_limit")
    assert because(world).startswith("epoch 0 failed: run ")
    assert "did not end within 60 s" in because(world)
    world.controller.tick()
    assert not runs.waiting
    world.controller.retry("one", "sum")
    world.controller.tick()
    runs.run_next()
    assert newest(world).status is RunStatus.COMMITTED
    assert [row["n"] for row in world.flow("one", "sum.totals")] == [1]


def test_a_run_that_does_not_stop_is_given_up(world: World, runs: Deferred) -> None:
    """A quarter of its limit later its place is free; what its thread brings does not count."""
    world.controller.tick()
    world.clock.advance(LIMIT)
    world.controller.tick()
    world.clock.advance(LIMIT * GIVE_UP_SHARE - 1)
    world.controller.tick()
    assert world.parts.in_flight.busy()
    world.clock.advance(1)
    world.controller.tick()
    assert world.parts.in_flight.busy() == {}
    assert newest(world).error["error_code"] == "time_limit"
    assert world.parts.in_flight.wait(timeout=0)
    world.controller.retry("one", "sum")
    world.controller.tick()
    hung, again = runs.waiting.popleft(), runs.waiting.popleft()
    world.engine.cancelled.clear()
    hung[1]()  # it comes to an end after all, beside the run that took its place
    assert (world.store.stages("one")[0].epoch, world.parts.in_flight.busy() != {}) == (0, True)
    again[1]()
    assert world.store.stages("one")[0].epoch == 1
    assert [row["n"] for row in world.flow("one", "sum.totals")] == [1]


def test_a_run_that_ends_while_it_is_given_up(world: World, runs: Deferred) -> None:
    """It hangs in the engine, is given up there, and comes back with a result: too late."""

    def hang(plan: RunPlan) -> None:
        world.clock.advance(LIMIT)
        world.controller.tick()
        world.clock.advance(GIVE_UP_SECONDS)
        world.controller.tick()
        world.engine.cancelled.clear()

    world.controller.tick()
    world.engine.on_prepare = hang
    runs.run_next()
    assert world.engine.prepared == [("sum", 0)]
    assert (world.store.stages("one")[0].epoch, newest(world).error["error_code"]) == (
        0,
        "time_limit",
    )
    assert "did not end" in because(world)
    log = world.parts.open_log(f"{world.tables}/one")
    assert log.read("sum", 0) is None


def test_what_is_being_recorded_is_never_given_up(world: World, runs: Deferred) -> None:
    """After the record nothing fails, however long publishing takes."""

    def slow(intention: Any) -> None:
        world.clock.advance(10 * LIMIT)
        world.controller.tick()

    world.controller.tick()
    world.engine.on_publish = slow
    runs.run_next()
    assert newest(world).status is RunStatus.COMMITTED
    assert because(world) == ""


def test_an_operators_cancel_is_given_up_too(world: World, runs: Deferred) -> None:
    """A run that was cancelled by name and does not stop is shown as cancelled."""
    world.controller.tick()
    world.controller.cancel(newest(world).id)
    world.clock.advance(GIVE_UP_SECONDS)
    world.controller.tick()
    assert newest(world).error["error_code"] == "run_cancelled"
    assert "`cbp resume` runs epoch 0 again" in because(world)


def test_what_hangs_for_a_deletion_is_given_up_and_stops(world: World, runs: Deferred) -> None:
    """It would hang again; only runs that end when they are asked to run again by themselves."""
    world.controller.tick()
    world.parts.in_flight.cancel(newest(world).id, runs_again=True)
    world.clock.advance(GIVE_UP_SECONDS)
    world.controller.tick()
    assert "`cbp resume` runs epoch 0 again" in because(world)


def test_a_stage_has_its_own_limit(tmp_path: Path, runs: Deferred) -> None:
    """The document's wins over the service's; 0 is none."""
    world = World(tmp_path, executor=runs, run_seconds_max=LIMIT)
    for name, limit in (("one", 10), ("two", 0)):
        document = copy.deepcopy(ONE)
        document["name"] = name
        document["stages"]["sum"]["run_seconds_max"] = limit
        world.controller.register(document)
        world.arrive(name, "a", ("x", 1))
    world.controller.tick()
    world.clock.advance(10)
    world.controller.tick()
    assert len(world.engine.cancelled) == 1
    world.clock.advance(10**6)
    world.controller.tick()
    assert len(world.engine.cancelled) == 1
    world.close()


def hanging(dataflows: int) -> list[dict[str, Any]]:
    """Return the documents of as many dataflows with two stages that will hang, or more."""
    names = ("one", "two", "three")[: 3 if dataflows == 1 else 1]
    stages = {name: {"translator": "sum", "inputs": {"items": "a"}} for name in names}
    made = {"sources": {"a": {"schema": SCHEMA}}, "stages": stages}
    return [{"name": f"bad{n}", **made} for n in range(dataflows)]


@pytest.mark.parametrize("dataflows", [1, 2])
def test_two_that_hang_never_stall_a_third(tmp_path: Path, runs: Deferred, dataflows: int) -> None:
    """Two stages, of one dataflow or of two, have both places: another waits two minutes at most.

    From then on it runs as if they were not there, long before their time limit; their own
    dataflow starts no more of its stages.
    """
    world = World(tmp_path, executor=runs)
    bad = hanging(dataflows)
    for document in [*bad, {**ONE, "name": "good"}]:
        world.controller.register(document)
    for document in bad:
        world.arrive(str(document["name"]), "a", ("x", 1))
    world.controller.tick()
    hung = list(runs.waiting)
    assert len(hung) == 2, "they have all places, and never end"
    for number in range(3):
        world.arrive("good", "a", ("x", number))
    world.clock.advance(119)
    world.controller.tick()
    assert world.controller.waits("good")["sum"].kind == "place"
    world.clock.advance(1)
    for epoch in range(1, 4):
        world.controller.tick()
        (_, work) = runs.waiting.pop()
        work()
        assert (list(runs.waiting), world.store.stages("good")[0].epoch) == (hung, epoch)
    assert len(world.parts.in_flight.busy()) == 2
    world.close()


# real threads


class Hangs(Sum):
    """Frames by waiting for what comes when the test lets it."""

    entered = threading.Event()
    held = threading.Event()

    @staticmethod
    def hour(record: Any) -> int:
        Hangs.entered.set()
        Hangs.held.wait(WAIT_SECONDS)
        return int(record.n)

    items = Input(SCHEMA, route_by="word", frame_by=framed(lambda record: Hangs.hour(record)))

    @classmethod
    def anew(cls) -> None:
        cls.entered, cls.held = threading.Event(), threading.Event()


class Hourly(Sum):
    """Cuts its input by a column."""

    items = Input(SCHEMA, route_by="word", frame_by="n")


def test_framing_that_hangs_stops_its_stage_only(tmp_path: Path) -> None:
    """Others frame and run meanwhile; what it brings in the end is not recorded."""
    Hangs.anew()
    world = World(tmp_path, framers=Threads("frame"), run_seconds_max=LIMIT)
    world.translators["hangs"] = Hangs
    world.restart()
    for name, translator in (("bad", "hangs"), ("good", "sum")):
        document = copy.deepcopy(ONE)
        document["name"], document["stages"]["sum"]["translator"] = name, translator
        world.controller.register(document)
        world.arrive(name, "a", ("x", 1))
    world.controller.tick()
    assert Hangs.entered.wait(WAIT_SECONDS)
    assert world.store.stages("good")[0].epoch == 1
    assert world.parts.framer._questions.busy().keys() == {("bad", "sum")}
    world.clock.advance(LIMIT + 1)
    world.controller.tick()
    assert world.parts.framer._questions.busy() == {}
    reason = world.store.stages("bad")[0].paused_because
    assert "stage 'sum': items.frame_by failed at" in reason
    assert "did not answer within 60 s" in reason
    assert f"{Path(__file__).name}:" in reason
    threads = [t for t in threading.enumerate() if t.name.startswith("frame")]
    Hangs.held.set()
    until(lambda: not any(thread.is_alive() for thread in threads))
    connector = world.store.connectors("bad")["sum"]["items"]
    assert (connector.queue, len(connector.arrived)) == ((), 1)
    world.controller.retry("bad", "sum")
    world.controller.tick()
    until(lambda: not world.store.connectors("bad")["sum"]["items"].arrived)
    world.close()


@pytest.mark.parametrize("dataflows", [1, 2])
def test_framing_that_hangs_twice_leaves_others_a_place(tmp_path: Path, dataflows: int) -> None:
    """It holds no place once it is slow; another dataflow, too, is framed, and runs."""
    Hangs.anew()
    world = World(tmp_path, framers=Threads("frame"))
    world.translators |= {"hangs": Hangs, "hourly": Hourly}
    world.restart()
    bad = hanging(dataflows)
    for document in [*bad, {**ONE, "name": "good"}]:
        made = copy.deepcopy(document)
        for stage in made["stages"].values():
            stage["translator"] = "hourly" if made["name"] == "good" else "hangs"
        world.controller.register(made)
        if made["name"] != "good":
            world.arrive(made["name"], "a", ("x", 1))
    world.controller.tick()
    assert Hangs.entered.wait(WAIT_SECONDS)
    assert len(world.parts.framer._questions.busy()) == 2
    world.arrive("good", "a", ("x", 1), ("x", 2))
    world.controller.tick()
    assert len(world.store.connectors("good")["sum"]["items"].arrived) == 1, "it waits its turn"
    world.clock.advance(120)
    world.controller.tick()
    until(lambda: not world.store.connectors("good")["sum"]["items"].arrived)
    world.controller.tick()
    assert world.store.stages("good")[0].epoch == 1
    threads = [t for t in threading.enumerate() if t.name.startswith("frame")]
    Hangs.held.set()
    until(lambda: not any(thread.is_alive() for thread in threads))
    world.close()


def test_framing_beside_a_deletion_records_nothing(tmp_path: Path) -> None:
    """The name may be registered anew while the old thread still reads."""
    Hangs.anew()
    world = World(tmp_path, framers=Threads("frame"))
    world.translators["sum"] = Hangs
    world.restart()
    world.controller.register(ONE)
    world.arrive("one", "a", ("x", 1))
    world.controller.tick()
    assert Hangs.entered.wait(WAIT_SECONDS)
    world.controller.delete("one", purge=True)
    world.controller.register(ONE)
    world.arrive("one", "a", ("y", 2))
    threads = [t for t in threading.enumerate() if t.name.startswith("frame")]
    Hangs.held.set()
    until(lambda: not any(thread.is_alive() for thread in threads))
    assert len(world.store.connectors("one")["sum"]["items"].arrived) == 1
    world.controller.tick()
    until(lambda: not world.store.connectors("one")["sum"]["items"].arrived)
    framing = world.store.connectors("one")["sum"]["items"].framing
    assert framing is not None
    assert framing.open is not None
    assert framing.open.framing_key == 2
    world.close()


def test_threads_that_hang_do_not_keep_a_process() -> None:
    """They are daemons; what ended is forgotten; a shutdown waits for the others only if asked."""
    threads, held = Threads("some"), threading.Event()
    done = threads.submit(lambda: 7)
    assert done.result(WAIT_SECONDS) == 7
    failed = threads.submit(lambda: 1 / 0)
    assert isinstance(failed.exception(WAIT_SECONDS), ZeroDivisionError)
    hung = threads.submit(held.wait)
    (thread,) = [t for t in threading.enumerate() if t.name == "some_3"]
    assert thread.daemon
    threads.shutdown(wait=False)
    assert not hung.done()
    with pytest.raises(RuntimeError):
        threads.submit(held.wait)
    held.set()
    threads.shutdown(wait=True)
    assert hung.done()
