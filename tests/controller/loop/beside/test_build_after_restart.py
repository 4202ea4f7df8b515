"""A rebuild beside outlives the process: what was accepted ends, wherever a crash happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cbp.engine.storage.failpoints import NO_FAULTS
from cbp.errors import NotFoundError
from controller.loop import LoopLimits
from controller.loop.beside.build_order import read_order
from controller.loop.beside.rebuild_job import RebuildJob
from controller.loop.records.description_log import path_of
from tests.controller.loop.beside.test_build_beside import Beside, arrive, document
from tests.controller.world import Deferred
from tests.planned_faults import Crash, PlannedFaults

pytestmark = pytest.mark.usefixtures("without_syncs")

EFFECTS = (
    "build_order", "data_file", "data_sync", "log_entry", "description", "sql_commit", "clean_up",
)  # fmt: skip
POINTS = [f"{effect}.{side}" for effect in EFFECTS for side in ("before", "after")]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Beside]:
    made = Beside(tmp_path)
    yield made
    made.close()


def begun(world: Beside) -> None:
    world.controller.register(document())
    arrive(world, 0, 4)
    world.ticks()


def restart(world: Beside) -> None:
    world.faults.to = NO_FAULTS
    world.restart()
    world.controller.recover()


def jobs(world: Beside) -> list[RebuildJob]:
    return world.controller.rebuild_jobs.all("d")


def order(world: Beside) -> Any:
    return read_order(world.files, world.store.dataflow("d").folder)


def test_a_build_that_a_kill_interrupted_begins_anew(world: Beside, tmp_path: Path) -> None:
    """Under its id, from all input; inputs are kept meanwhile, and it waits for its swap."""
    begun(world)
    world.faults.to = PlannedFaults("data_file.before", passage=3)
    with pytest.raises(Crash):
        world.start(document("tripled"))
    given = order(world)
    restart(world)
    assert [(job.id, job.status) for job in jobs(world)] == [(given.id, "building")]
    assert "anew" in jobs(world)[0].step
    assert "d" in world.parts.building
    world.controller.tick()
    (job,) = jobs(world)
    assert (job.status, job.exact) == ("ready", True), job.error
    assert world.sums()["x"] == 6, "nobody asked for the swap"
    assert world.swap(job).status == "swapped"
    assert world.sums()["x"] == 18
    assert order(world) is None
    assert not list((tmp_path / "tables").glob(".scratch*"))
    assert not world.parts.building


def test_a_build_that_is_ready_is_ready_again(world: Beside) -> None:
    """A kill between the comparison and the swap costs the build, and nothing else."""
    begun(world)
    before = world.build(document("tripled"))
    restart(world)
    arrive(world, 4, 5)
    world.ticks()
    (after,) = jobs(world)
    assert (after.id, after.status) == (before.id, "ready")
    assert [one.table for one in after.tables] == [one.table for one in before.tables]
    world.swap(after)
    assert world.sums()["x"] == 3 * sum(range(5))


@pytest.mark.part(every=9)
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("passage", [1, 2, 3, 5])
def test_a_swap_that_was_asked_for_is_carried_out(point: str, passage: int, tmp_path: Path) -> None:
    """Killed before and after every effect of build and swap: the old tables, then the new ones."""
    world = Beside(tmp_path / "world")
    begun(world)
    old = world.seen()

    def build() -> None:
        world.start(document("tripled"))

    def swap() -> None:
        (job,) = jobs(world)
        world.swap(job)

    steps: list[Callable[[], None]] = [build, swap]
    crashes = 0
    for step in steps:
        world.faults.to = PlannedFaults(point, passage=passage)
        accepted = True
        try:
            step()
        except Crash:
            crashes += 1
            accepted = order(world) is not None
            world.faults.to = NO_FAULTS
            world.restart()
            if not world.files.exists(path_of(world.store.dataflow("d").folder, 2)):
                assert world.seen() == old, "half of it is seen"
            world.controller.recover()
            world.ticks()
        world.faults.to = NO_FAULTS
        if step is build and not accepted:
            assert not jobs(world)
            world.start(document("tripled"))
        if step is swap and world.store.dataflow("d").version == 1:
            (job,) = jobs(world)
            assert (job.status, order(world).swaps) == ("ready", False), "it was not asked for"
            world.swap(job)
    assert world.sums()["x"] == 18
    assert order(world) is None
    assert not list(Path(world.tables).glob(".scratch*"))
    assert all(job.status == "swapped" for job in jobs(world))
    world.close()


def test_a_build_that_swaps_by_itself_does_so_after_kills(world: Beside) -> None:
    """Its order says so from the start."""
    begun(world)
    world.faults.to = PlannedFaults("log_entry.before", passage=4)
    dataflow = world.controller.validate(document("tripled"))
    with pytest.raises(Crash):
        world.controller.rebuild_jobs.start(document("tripled"), dataflow, swaps=True)
    for passage in (2, 3):
        restart(world)
        world.faults.to = PlannedFaults("data_file.after", passage=passage)
        with pytest.raises(Crash):
            world.controller.tick()
    restart(world)
    world.controller.tick()
    assert jobs(world)[0].status == "swapped"
    assert world.sums()["x"] == 18


def test_what_was_cancelled_does_not_begin_again(world: Beside) -> None:
    """A cancellation is durable once it is answered."""
    begun(world)
    job = world.build(document("tripled"))
    world.controller.rebuild_jobs.cancel("d", job.id)
    restart(world)
    assert not jobs(world)
    with pytest.raises(NotFoundError):
        world.controller.rebuild_jobs.show("d", job.id)


def test_a_roll_back_ends_a_build_that_was_interrupted(tmp_path: Path) -> None:
    """What it would build may have been undone: it fails, and says so."""
    world = Beside(tmp_path, limits=LoopLimits(), collect_every=10**6)
    begun(world)
    world.build(document("tripled"))
    world.controller.amendments.roll_back("d", "0", who="me", why="a try")
    restart(world)
    world.ticks()
    (job,) = jobs(world)
    assert job.status == "failed"
    assert job.error is not None
    assert "another version took over, or a roll-back" in job.error.message
    assert order(world) is None
    world.close()


def test_other_code_than_was_asked_for_is_not_swapped_in(world: Beside) -> None:
    """A build that begins anew compares the code that is loaded with that of its order."""
    begun(world)
    world.build(document("tripled"))
    world.translators["tripled"] = world.translators["sum"]
    restart(world)
    world.ticks()
    (job,) = jobs(world)
    assert job.status == "failed"
    assert job.error is not None
    assert job.error.code == "change_refused"


def test_a_service_that_stops_keeps_the_order(tmp_path: Path) -> None:
    """Whatever it was doing; the next one goes on, and swaps if that was asked for."""
    world = Beside(tmp_path, verifier=(later := Deferred()))
    begun(world)
    world.start(document("tripled"))
    later.run_next()
    (job,) = jobs(world)
    world.controller.rebuild_jobs.swap("d", job.id)
    world.controller.stop_starting()
    later.run_next()
    assert jobs(world)[0].status == "cancelled"
    assert order(world).swaps
    restart(world)
    world.controller.tick()
    later.run_next()
    assert world.sums()["x"] == 18
    world.close()


def test_a_leader_that_leads_again_begins_anew(world: Beside) -> None:
    """What it had built in its earlier term is given up: its folder was taken away."""
    begun(world)
    job = world.build(document("tripled"))
    world.controller.recover()
    world.ticks()
    assert [(one.id, one.status) for one in jobs(world)] == [(job.id, "ready")]
    assert "d" in world.parts.building
    world.swap(jobs(world)[0])
    assert world.sums()["x"] == 18


def test_nothing_begins_before_its_dataflow_is_recovered(world: Beside) -> None:
    """And before the engine can run it."""
    begun(world)
    world.build(document("tripled"))
    restart(world)
    world.parts.holds.held["d"] = "waits"
    world.controller.rebuild_jobs.go_on()
    assert jobs(world)[0].status == "building"
    del world.parts.holds.held["d"]
    world.controller.rebuild_jobs.go_on()
    assert jobs(world)[0].status == "ready"
