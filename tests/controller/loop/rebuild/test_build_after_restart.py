"""A rebuild beside outlives the process: it goes on, and what was accepted ends."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cbp.engine.storage.failpoints import NO_FAULTS
from cbp.errors import NotFoundError
from controller.loop import LoopLimits
from controller.loop.rebuild.build_order import open_order
from controller.loop.rebuild.checkpoint import read_checkpoint, write_checkpoint
from controller.loop.records.version_log import path_of
from tests.controller.changing import KEEPING_HOUSE
from tests.controller.changing import document as document_of
from tests.controller.loop.rebuild.beside_world import (
    Beside,
    Failing,
    arrive,
    begun,
    document,
    from_scratch,
    jobs,
    order,
    restart,
)
from tests.controller.world import SCHEMA, Deferred
from tests.planned_faults import Crash, PlannedFaults

pytestmark = pytest.mark.usefixtures("without_syncs")

EFFECTS = (
    "build_order", "data_file", "data_sync", "log_entry", "description", "sql_commit", "clean_up",
)  # fmt: skip
AT_ONCE = replace(KEEPING_HOUSE, checkpoint_seconds=0.0)
"""Every run of a build is kept."""

POINTS = [f"{effect}.{side}" for effect in EFFECTS for side in ("before", "after")]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Beside]:
    made = Beside(tmp_path)
    yield made
    made.close()


def scratch(world: Beside) -> str:
    """Return the folder in which a build works."""
    (folder,) = Path(world.tables).glob(".scratch*")
    return str(folder)


def runs_of_a_restart(world: Beside) -> int:
    """Start again, and let the build go on; return how many runs that took."""
    restart(world)
    world.faults.to = counted = PlannedFaults()
    world.controller.tick()
    world.faults.to = NO_FAULTS
    return counted.passed["job.before"]


@pytest.fixture
def killed(tmp_path: Path) -> Iterator[Beside]:
    """Give a world that was killed in the middle of a build, of which every run was kept."""
    world = Beside(tmp_path, limits=AT_ONCE)
    world.controller.register(document())
    arrive(world, 0, 6)
    world.ticks()
    world.faults.to = PlannedFaults("job.before", passage=9)
    with pytest.raises(Crash):
        world.start(document("tripled"))
    world.faults.to = NO_FAULTS
    yield world
    world.close()


def test_a_build_goes_on_where_it_was_killed(killed: Beside, tmp_path: Path) -> None:
    """It reads nothing again, and its tables are those of no kill; twice on the way."""
    kept, _ = read_checkpoint(killed.files, scratch(killed))
    assert kept is not None
    assert sum(kept.fed.values()) == 4, "the fifth was under way"
    killed.restart()
    killed.faults.to = PlannedFaults("job.before", passage=2)
    killed.controller.recover()
    with pytest.raises(Crash):
        killed.controller.tick()
    assert runs_of_a_restart(killed) == 3, "two stages over six increments, less nine"
    (job,) = jobs(killed)
    assert (job.status, job.anew) == ("ready", ""), job.error
    killed.swap(job)
    assert killed.seen() == from_scratch(tmp_path / "scratch", document("tripled"), 6)
    assert not list(Path(killed.tables).glob(".scratch*"))


@pytest.mark.parametrize("passage", range(2, 5))
def test_a_killed_build_that_reads_several_increments_at_a_time_loses_none(
    passage: int, tmp_path: Path
) -> None:
    """What is kept between two of its runs has an increment as read if its queues have it."""
    world = Beside(tmp_path, limits=replace(AT_ONCE, unit_bytes=3_000))
    stage = {"translator": "viewed", "any_order": True}
    world.controller.register(document_of(sum=stage))
    arrive(world, 0, 10)
    world.ticks()
    world.faults.to = PlannedFaults("job.before", passage=passage)
    with pytest.raises(Crash):
        world.start(document_of(sum={**stage, "buckets": 4}))
    assert runs_of_a_restart(world) < 10
    (job,) = jobs(world)
    assert (job.status, job.anew) == ("ready", ""), job.error
    assert all((one.added, one.gone, one.changed) == (0, 0, 0) for one in job.tables)
    world.swap(job)
    assert world.sums() == {"x": 45, "w0": 4, "w1": 3, "w2": 3}
    world.close()


def test_a_build_that_is_ready_stays_ready(tmp_path: Path) -> None:
    """A kill between the comparison and the swap costs the comparison, and what came since."""
    world = Beside(tmp_path, limits=AT_ONCE)
    begun(world)
    before = world.build(document("tripled"))
    assert runs_of_a_restart(world) == 0
    arrive(world, 4, 5)
    world.ticks()
    (after,) = jobs(world)
    assert (after.id, after.status, after.anew) == (before.id, "ready", "")
    world.swap(after)
    assert world.sums()["x"] == 3 * sum(range(5))
    world.close()


def damage_checkpoint(world: Beside) -> str:
    path = Path(scratch(world), "build.json")
    path.write_bytes(path.read_bytes().replace(b'"fed"', b'"fad"'))
    return "damaged"


def let_another_release_write(world: Beside) -> str:
    path = Path(scratch(world), "build.json")
    value = json.loads(path.read_bytes())
    del value["_digest"]
    path.write_text(json.dumps({**value, "release": "0.0.1"}), encoding="utf-8")
    return "another release"


def lose_files(world: Beside) -> str:
    for path in list(Path(scratch(world)).rglob("*.parquet")):
        path.unlink()
    return "damaged"


@pytest.mark.parametrize("harm", [damage_checkpoint, let_another_release_write, lose_files])
def test_what_cannot_be_believed_is_built_anew(
    harm: Callable[[Beside], str], killed: Beside, tmp_path: Path
) -> None:
    """And it says why."""
    why = harm(killed)
    restart(killed)
    killed.controller.tick()
    (job,) = jobs(killed)
    assert job.status == "ready", job.error
    assert why in job.anew
    killed.swap(job)
    assert killed.seen() == from_scratch(tmp_path / "scratch", document("tripled"), 6)
    assert not list(Path(killed.tables).glob(".scratch*"))


def test_a_former_leader_writes_beside_what_goes_on(killed: Beside) -> None:
    """Its folder was taken away: what it still writes is in none that is read."""
    was = scratch(killed)
    stale, _ = read_checkpoint(killed.files, was)
    assert stale is not None
    killed.restart()
    killed.controller.recover()
    now = scratch(killed)
    assert now != was
    write_checkpoint(killed.files, was, replace(stale, fed={"a": 0}))
    killed.controller.tick()
    assert jobs(killed)[0].status == "ready"
    killed.swap(jobs(killed)[0])
    assert killed.sums()["x"] == 3 * sum(range(6))
    restart(killed)
    assert not list(Path(killed.tables).glob(".scratch*"))


def test_what_became_of_the_last_build_is_kept(world: Beside) -> None:
    """Over restarts: who asked, who ended it, how, and why."""
    begun(world)
    jobs_of = world.controller.rebuild_jobs
    first = jobs_of.start(document(), world.controller.validate(document()), by="ann")
    jobs_of.cancel("d", first.id, by="bob")
    restart(world)
    (job,) = jobs(world)
    assert (job.id, job.status, job.by, job.ended_by) == (first.id, "cancelled", "ann", "bob")
    assert job.ended_at is not None
    assert job.ended
    shown = world.build(document("tripled"))
    world.controller.rebuild_jobs.swap("d", shown.id, by="cid")
    restart(world)
    (job,) = jobs(world)
    assert (job.id, job.status, job.ended_by, job.version) == (shown.id, "swapped", "cid", 2)
    assert job.tables == shown.tables
    assert world.controller.rebuild_jobs.show("d", shown.id) == job
    with pytest.raises(NotFoundError):
        world.controller.rebuild_jobs.show("d", first.id)


def test_why_the_last_build_failed_is_kept(world: Beside) -> None:
    """With the error that it failed with."""
    begun(world)
    world.translators["tripled"] = Failing
    restart(world)
    world.start(document("tripled"))
    (before,) = jobs(world)
    restart(world)
    (job,) = jobs(world)
    assert job.status == before.status == "failed"
    assert job.error is not None
    assert before.error is not None
    assert job.error.as_dict() == before.error.as_dict()


def test_a_build_that_a_kill_interrupted_at_once_begins_anew(world: Beside, tmp_path: Path) -> None:
    """Under its id, from all input; inputs are kept meanwhile, and it waits for its swap."""
    begun(world)
    world.faults.to = PlannedFaults("data_file.before", passage=3)
    with pytest.raises(Crash):
        world.start(document("tripled"))
    given = order(world)
    restart(world)
    assert [(job.id, job.status) for job in jobs(world)] == [(given.id, "building")]
    assert "continues after a restart" in jobs(world)[0].step
    assert "d" in world.parts.building
    world.controller.tick()
    (job,) = jobs(world)
    assert (job.status, job.exact) == ("ready", True), job.error
    assert job.anew == "nothing had been built yet"
    assert world.sums()["x"] == 6, "nobody asked for the swap"
    assert world.swap(job).status == "swapped"
    assert world.sums()["x"] == 18
    assert order(world) is None
    assert not list((tmp_path / "tables").glob(".scratch*"))
    assert not world.parts.building


@pytest.mark.part(every=9)
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("passage", [1, 2, 3, 5])
def test_a_swap_that_was_asked_for_is_carried_out(point: str, passage: int, tmp_path: Path) -> None:
    """Killed before and after every effect of build and swap: the old tables, then the new ones."""
    world = Beside(tmp_path / "world", limits=AT_ONCE)
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


def test_a_swap_that_a_kill_interrupted_is_one_whatever_follows(world: Beside) -> None:
    """Its outcome is not that of the version which took over before the build was looked at."""
    begun(world)
    job = world.build(document("tripled"))
    world.faults.to = PlannedFaults("description.after")
    with pytest.raises(Crash):
        world.swap(job)
    restart(world)
    source = {"schema": SCHEMA, "keep": {"hours": 9}}
    world.change({**document("tripled"), "sources": {"a": source}})
    world.controller.tick()
    assert [(one.id, one.status) for one in jobs(world)] == [(job.id, "swapped")]
    assert world.sums()["x"] == 18


def test_a_build_ends_with_its_dataflow(world: Beside) -> None:
    """Another dataflow of its name shows nothing of it, and can be built beside itself."""
    begun(world)
    job = world.build(document("tripled"))
    world.controller.delete("d", purge=True)
    assert "d" not in world.parts.building
    assert not list(Path(world.tables).glob(".scratch*"))
    begun(world)
    with pytest.raises(NotFoundError):
        world.swap(job)
    assert jobs(world) == []
    assert world.sums()["x"] == 6
    job = world.build(document("tripled"))
    folder = world.store.dataflow("d").folder
    world.controller.delete("d")
    assert open_order(world.files, folder) is None


def test_a_swap_that_waits_for_a_deletion_ends(tmp_path: Path) -> None:
    """It shows nothing in the next dataflow of its name."""
    later = Deferred()
    world = Beside(tmp_path, verifier=later)
    begun(world)
    job = world.start(document("tripled"))
    later.run_next()
    world.controller.rebuild_jobs.swap("d", job.id)
    world.controller.delete("d", purge=True)
    begun(world)
    later.run_next()
    assert [one.status for one in jobs(world)] == ["cancelled"]
    assert world.sums()["x"] == 6
    world.close()


def test_what_was_cancelled_does_not_begin_again(world: Beside) -> None:
    """A cancellation is durable once it is answered."""
    begun(world)
    job = world.build(document("tripled"))
    world.controller.rebuild_jobs.cancel("d", job.id)
    restart(world)
    world.controller.tick()
    assert jobs(world)[0].status == "cancelled"
    assert order(world) is None
    assert not list(Path(world.tables).glob(".scratch*"))


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
    assert "the version changed, or the dataflow was rolled back" in job.error.message
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
