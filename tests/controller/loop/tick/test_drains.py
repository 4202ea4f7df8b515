"""Drain: take in nothing new, work off what is there, then start no more runs."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cbp.client import Client, ConflictRefusedError
from cbp.engine.storage.failpoints import NO_FAULTS
from controller.store.base import ClaimRecord
from tests.controller.crashes import ARRIVALS
from tests.controller.served import served
from tests.controller.small_app import TOKEN
from tests.controller.world import DIAMOND, ONE, World, only_stage, until
from tests.planned_faults import Crash, PlannedFaults


def desired(world: World, name: str = "one") -> str:
    return world.store.dataflow(name).desired


def an_open_claim(world: World) -> ClaimRecord:
    claim = ClaimRecord(
        id="c0",
        dataflow="one",
        source="a",
        sequence=0,
        path="x",
        bytes=0,
        status="claimed",
        created_at=world.clock(),
    )
    return world.store.add_claim(claim)


def test_what_waits_is_worked_off_and_then_nothing_starts(deferred: World) -> None:
    """Drained once nothing is left: not while a run is under way. What comes then waits."""
    executor: Any = deferred.executor
    deferred.controller.register(ONE)
    deferred.arrive("one", "a", ("x", 1))
    deferred.arrive("one", "a", ("y", 1))
    deferred.controller.drain_dataflow("one")
    deferred.controller.tick()
    assert (desired(deferred), len(executor.waiting)) == ("draining", 1)
    while executor.waiting:
        executor.run_next()
        assert desired(deferred) == "draining"
        deferred.controller.tick()
    assert desired(deferred) == "drained"
    epoch = only_stage(deferred).epoch
    deferred.arrive("one", "a", ("x", 1))
    assert deferred.controller.tick().starts == ()
    assert deferred.controller.waiting("one") == {"sum": "the dataflow is drained"}
    deferred.controller.drain_dataflow("one")
    assert desired(deferred) == "drained"
    deferred.controller.resume("one")
    deferred.controller.tick()
    executor.run_next()
    assert only_stage(deferred).epoch == epoch + 1


def test_a_claimed_file_and_a_listing_are_waited_for(world: World) -> None:
    """A file that was claimed is work that is left; a listing of the folders may be claiming."""
    world.controller.register(ONE)
    claim = an_open_claim(world)
    world.controller.drain_dataflow("one")
    world.ticks()
    assert desired(world) == "draining"
    world.store.update_claim(replace(claim, status="duplicate", sha256="s"))
    with world.controller.exclusive("one", "has its files read"):
        thread = threading.Thread(target=world.controller.tick)
        thread.start()
        thread.join()
        assert desired(world) == "draining"
    world.controller.tick()
    assert desired(world) == "drained"


def test_a_resume_wins_and_a_paused_stage_is_waited_for(world: World) -> None:
    """The end of a drain that an operator took back changes nothing; failed work is not done."""
    world.controller.register(ONE)
    world.controller.drain_dataflow("one")
    world.controller.resume("one")
    world.store.set_desired("one", "drained", instead_of="draining")
    assert desired(world) == "running"
    world.arrive("one", "a", ("x", 1))
    world.controller.pause_stage("one", "sum")
    world.controller.drain_dataflow("one")
    world.ticks()
    assert desired(world) == "draining"
    world.controller.resume_stage("one", "sum")
    world.ticks()
    world.controller.tick()
    assert (desired(world), only_stage(world).epoch) == ("drained", 1)


@pytest.mark.part(every=2)
@pytest.mark.parametrize(
    "point",
    ["intention.after", "sql_commit.before", "job.after", "sql_commit.after"],
)
def test_a_kill_in_the_middle_changes_nothing(point: str, tmp_path: Path) -> None:
    """After a restart the drain goes on, to the tables of an unbroken run; once done it stays."""
    unbroken, broken = World(tmp_path / "unbroken"), World(tmp_path / "broken")
    for world in (unbroken, broken):
        world.controller.register(DIAMOND)
        for source, record in ARRIVALS:
            world.arrive("diamond", source, record)
        world.controller.drain_dataflow("diamond")
    finish_drain(unbroken)
    crashes = 0
    for passage in (1, 2, 3):
        broken.faults.to = PlannedFaults(point, passage=passage)
        try:
            broken.ticks()
        except Crash:
            crashes += 1
            broken.restart()
            broken.controller.recover()
    broken.faults.to = NO_FAULTS
    finish_drain(broken)
    assert crashes
    assert broken.picture() == unbroken.picture()
    broken.restart()
    broken.controller.recover()
    assert (desired(broken, "diamond"), broken.ticks().starts) == ("drained", ())
    for world in (unbroken, broken):
        world.close()


def finish_drain(world: World) -> None:
    world.ticks()
    world.controller.tick()
    assert desired(world, "diamond") == "drained"


def test_over_rest_files_wait_uploads_are_refused_and_a_resume_takes_them_in(
    tmp_path: Path,
) -> None:
    """What was acknowledged before is applied; a file in the drop folder stays there untouched."""
    with served(tmp_path) as (settings, _, _), Client(settings.url, token=TOKEN) as client:
        first = client.drop("urls", "visits", b'{"url": "/"}\n', file="a.jsonl")
        client.drain("urls")
        client.wait("urls", first, seconds=30)
        with pytest.raises(ConflictRefusedError) as refused:
            client.drop("urls", "visits", b'{"url": "/b"}\n', file="b.jsonl")
        assert refused.value.error_code == "dataflow_drains"
        late = settings.drop_root / "urls" / "visits" / "incoming" / "c.jsonl"
        late.write_text('{"url": "/c"}\n')
        until(lambda: client.dataflow("urls").summary.desired == "drained")
        assert client.look_up("urls", "count.counts", url="/") == [{"url": "/", "n": 1}]
        assert late.exists()
        client.resume("urls")
        until(lambda: len(list(client.claims("urls", status="accepted"))) == 2)
        client.wait("urls", seconds=30)
        assert client.look_up("urls", "count.counts", url="/c") == [{"url": "/c", "n": 1}]
        assert client.dataflow("urls").summary.desired == "running"
