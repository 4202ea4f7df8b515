"""A rebuild that failed needs a person until that is done, and no longer."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cbp.engine.storage.failpoints import NO_FAULTS
from cbp.errors import DiskFullError
from controller.loop.rebuild import build_order
from controller.loop.rebuild.build_in_progress import RebuildJob
from tests.controller.loop.rebuild.beside_world import (
    Beside,
    Failing,
    Tripled,
    begun,
    document,
    jobs,
    needs,
    order,
    restart,
)
from tests.controller.lost import SourceLogs
from tests.controller.world import Stopped
from tests.planned_faults import PlannedFaults

pytestmark = pytest.mark.usefixtures("without_syncs")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Beside]:
    made = Beside(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("by", ["another", "version", "cancel", "deletion"])
def test_a_failed_build_needs_a_person_until_that_is_done(world: Beside, by: str) -> None:
    """Also after restarts, and for as long as it takes; a cancelled one keeps its error."""
    begun(world)
    sound = world.translators["tripled"]
    world.translators["tripled"] = Failing
    restart(world)
    world.start(document("tripled"))
    (failed,) = jobs(world)
    world.translators["tripled"] = sound
    assert needs(world) == failed.status == "failed"
    restart(world)
    assert needs(world) == "failed"
    if by == "another":
        world.build(document("tripled"))
        assert needs(world) == "ready"
        return
    if by == "version":
        world.controller.change({**document(), "description": "x"})
    elif by == "cancel":
        world.controller.rebuild_jobs.cancel("d", failed.id, by="ann")
        (job,) = jobs(world)
        assert (job.status, job.ended_by) == ("cancelled", "ann")
        assert str(job.error) == str(failed.error) != ""
    else:
        world.clock.advance(1)
        world.controller.delete("d")
        world.controller.register(document())  # takes over its folder
    assert needs(world) == ""
    restart(world)
    assert needs(world) == ""


def test_a_build_whose_dataflow_was_deleted_beneath_it_did_not_fail(world: Beside) -> None:
    """Whatever error that causes; a dataflow that has the name later has no alert."""
    begun(world)
    deleted = list[str]()

    class Deleting(Tripled):
        """Meets an error that comes of the deletion of its dataflow."""

        def translate(self, key: Any, group: Any, out: Any) -> None:
            world.controller.rebuild_jobs.end_all("d", f"{world.tables}/d")
            deleted.append("d")
            raise FileNotFoundError(key.word)

    world.translators["tripled"] = Deleting
    restart(world)
    job = world.start(document("tripled"))
    assert deleted
    assert world.shown(job).status == "cancelled"
    assert needs(world) == ""


def failed_one(world: Beside) -> RebuildJob:
    """Let a build fail; what is built next is sound."""
    begun(world)
    sound = world.translators["tripled"]
    world.translators["tripled"] = Failing
    restart(world)
    failed = world.shown(world.start(document("tripled")))
    assert failed.status == "failed"
    world.translators["tripled"] = sound
    restart(world)
    return failed


def test_a_cancel_never_takes_the_place_of_the_next_order(
    world: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed build is cancelled while the next one is ordered: the accepted order stays."""
    failed, threads = failed_one(world), list[threading.Thread]()
    read = build_order.read_order

    def late(files: Any, folder: str) -> Any:
        order = read(files, folder)
        if not threads:
            threads.append(threading.Thread(target=world.start, args=(document("tripled"),)))
            threads[0].start()
            threads[0].join(0.5)  # it waits for the cancel, or has written its order
        return order

    monkeypatch.setattr(build_order, "read_order", late)
    world.controller.rebuild_jobs.cancel("d", failed.id, by="ann")
    threads[0].join()
    known = order(world)
    assert known is not None
    assert known.id != failed.id


def test_an_order_that_cannot_be_written_leaves_the_earlier_failure(world: Beside) -> None:
    """The request fails at once and adds no failure; the earlier failure can be cancelled."""
    failed = failed_one(world)
    world.faults.to = PlannedFaults("build_order.before", error=OSError(errno.ENOSPC, "full"))
    with pytest.raises(DiskFullError):
        world.start(document("tripled"))
    world.faults.to = NO_FAULTS
    assert needs(world) == "failed"
    assert [job.id for job in jobs(world)] == [failed.id]
    world.controller.rebuild_jobs.cancel("d", failed.id, by="ann")
    assert needs(world) == ""
    restart(world)
    assert needs(world) == ""


def test_a_build_that_has_just_failed_can_be_cancelled(world: Beside) -> None:
    """In the process that built it, and no other one: it ends as cancelled at once."""
    begun(world)
    world.translators["tripled"] = Failing
    restart(world)
    failed = world.start(document("tripled"))
    assert needs(world) == "failed"
    cancelled = world.controller.rebuild_jobs.cancel("d", failed.id, by="ann")
    assert (cancelled.status, cancelled.ended_by) == ("cancelled", "ann")
    assert needs(world) == ""
    assert world.controller.rebuild_jobs.cancel("d", failed.id, by="bob") == cancelled


@pytest.mark.parametrize("continued", [False, True])
def test_a_failure_under_another_leader_is_the_newest_and_can_be_cancelled(
    world: Beside, continued: bool
) -> None:
    """Whatever this process remembers: an older rebuild, or that it gave this one up."""
    begun(world)
    here, first = world.controller.rebuild_jobs, world.build(document("tripled"))
    if continued:
        here.stop()
    else:
        here.cancel("d", first.id)
    world.clock.advance(60)
    world.translators["tripled"] = Failing
    restart(world)
    if continued:
        world.controller.tick()
    else:
        world.start(document("tripled"))
    failed = jobs(world)[0]
    assert (failed.status, failed.id == first.id) == ("failed", continued)
    here.begin()
    newest = here.all("d")[0]
    assert (newest.id, newest.status) == (failed.id, "failed")
    assert str(newest.error) == str(failed.error)
    cancelled = here.cancel("d", newest.id, by="ann")
    assert (cancelled.status, cancelled.ended_by) == ("cancelled", "ann")
    assert here.needs_person(world.store.dataflow("d")) is None
    assert replace(here.all("d")[0], error=None) == replace(cancelled, error=None)


def test_a_failed_build_needs_a_person_also_after_the_store_was_lost(world: Beside) -> None:
    """The folder says that it failed, and that nothing has dealt with it since."""
    failed_one(world)
    page = world.store.increments("d", "a", limit=500)
    world.clock.advance(1)
    world.store.delete("d")
    world.restart()
    world.arrivals = SourceLogs(world, "d", [one.increment for one in reversed(page.items)])
    assert world.controller.rebuild() == ["d"]
    restart(world)
    assert needs(world) == "failed"


def test_a_build_without_a_thread_is_begun_by_a_later_tick(world: Beside) -> None:
    """It is ordered, so it is built once a thread can be started."""
    begun(world)
    rebuilds = world.parts.rebuild_jobs
    executor, rebuilds.executor = rebuilds.executor, Stopped()
    job = world.start(document("tripled"))
    world.controller.tick()
    assert world.shown(job).status == "building"
    rebuilds.executor = executor
    world.controller.tick()
    assert world.shown(job).status == "ready"


def test_a_swap_without_a_thread_can_be_asked_for_again(world: Beside) -> None:
    """The request fails, and the rebuild is ready as before."""
    begun(world)
    job = world.build(document("tripled"))
    rebuilds = world.parts.rebuild_jobs
    executor, rebuilds.executor = rebuilds.executor, Stopped()
    with pytest.raises(RuntimeError):
        rebuilds.swap("d", job.id)
    rebuilds.executor = executor
    assert (world.shown(job).status, order(world).swaps) == ("ready", False)
    assert world.swap(job).status == "swapped"
