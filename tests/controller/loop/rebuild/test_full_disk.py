"""A rebuild beside meets a full disk: it waits, says so, and goes on when there is room."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cbp.engine.storage.failpoints import NO_FAULTS
from cbp.errors import DiskFullError
from controller.cli import main
from controller.cli.session import Session
from controller.loop.rebuild.build_in_progress import RebuildJob
from controller.settings import Settings
from tests.controller.api.app_transport import TOKEN, AppTransport
from tests.controller.changing import KEEPING_HOUSE
from tests.controller.loop.rebuild.beside_world import Beside, arrive, document, from_scratch
from tests.controller.rest import api_of_world
from tests.planned_faults import Crash, PlannedFaults

pytestmark = pytest.mark.usefixtures("without_syncs")

AT_ONCE = replace(KEEPING_HOUSE, checkpoint_seconds=0.0)
"""Every run of a build is kept."""

EFFECTS = ("build_order", "data_file", "data_sync", "log_entry", "clean_up", "job")
POINTS = [f"{effect}.{side}" for effect in EFFECTS for side in ("before", "after")]


class Full:
    """A disk that has no room at one point from one passage on, until it is freed.

    Attributes:
        struck: How often it had no room.
    """

    def __init__(self, point: str, *, passage: int = 1, number: int = errno.ENOSPC) -> None:
        self._counted = PlannedFaults()
        self._point, self._passage, self._number = point, passage, number
        self.struck = 0

    def __call__(self, point: str) -> None:
        """Fail where there is no room."""
        self._counted(point)
        if point == self._point and self._counted.passed[point] >= self._passage:
            self.struck += 1
            raise OSError(self._number, os.strerror(self._number), "tables/x.parquet")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Beside]:
    made = Beside(tmp_path / "world", limits=AT_ONCE)
    made.controller.register(document())
    arrive(made, 0, 6)
    made.ticks()
    yield made
    made.close()


def newest(world: Beside) -> RebuildJob:
    return world.controller.rebuild_jobs.all("d")[0]


def later(world: Beside) -> None:
    """Let the pause of a build go by."""
    world.clock.advance(600)
    world.controller.tick()


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [
        (errno.EROFS, "operating_failure", "Read-only"),
        (errno.ENOSPC, "disk_full", "free some space"),
    ],
)
def test_it_waits_and_goes_on_with_what_it_had_built(
    world: Beside, tmp_path: Path, number: int, code: str, said: str
) -> None:
    """It says why it waits and until when; pauses grow, and no run is repeated afterwards."""
    old = world.seen()
    world.faults.to = full = Full("job.before", passage=9, number=number)
    world.start(document("tripled"))
    job = newest(world)
    assert job.status == "building"
    assert job.error is not None
    assert (job.error.code, said in job.step) == (code, True)
    assert job.again_at is not None
    pause = job.again_at - world.clock()
    world.controller.tick()
    assert full.struck == 1, "it does not try before its time"
    later(world)
    job = newest(world)
    assert full.struck == 2
    assert job.again_at is not None
    assert job.again_at - world.clock() > pause
    assert world.seen() == old
    world.faults.to = counted = PlannedFaults()
    later(world)
    job = newest(world)
    assert (job.status, job.error, job.again_at, job.anew) == ("ready", None, None, "")
    assert counted.passed["job.before"] == 4, "two stages over six increments, less eight"
    assert world.swap(job).status == "swapped"
    assert world.seen() == from_scratch(tmp_path / "scratch", document("tripled"), 6)
    assert not list(Path(world.tables).glob(".scratch*"))


@pytest.mark.part(every=7)
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("passage", [1, 2, 4, 8])
def test_no_room_anywhere_loses_nothing(
    world: Beside, point: str, passage: int, tmp_path: Path
) -> None:
    """While it builds, and while it is swapped in: it becomes what was asked for, once."""
    dataflow = world.controller.validate(document("tripled"))
    world.faults.to = Full(point, passage=passage)
    try:
        world.controller.rebuild_jobs.start(document("tripled"), dataflow, swaps=True)
    except DiskFullError:  # it was not accepted
        world.faults.to = NO_FAULTS
        world.controller.rebuild_jobs.start(document("tripled"), dataflow, swaps=True)
    world.faults.to = NO_FAULTS
    for _ in range(3):
        later(world)
    assert newest(world).status == "swapped", newest(world)
    assert world.store.dataflow("d").version == 2
    arrive(world, 6, 7)
    world.ticks()
    assert world.seen() == from_scratch(tmp_path / "scratch", document("tripled"), 7)
    world.restart()
    world.controller.recover()
    assert not list(Path(world.tables).glob(".scratch*"))


def test_what_waits_can_be_cancelled_on_a_disk_that_is_still_full(world: Beside) -> None:
    """Also where its end cannot be written before its tables are gone."""
    world.faults.to = Full("job.before", passage=9)
    job = world.start(document("tripled"))
    assert newest(world).status == "building"
    (scratch,) = Path(world.tables).glob(".scratch*")

    def full_until_it_is_gone(point: str) -> None:
        if point == "build_order.before" and scratch.exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "order.json")

    world.faults.to = full_until_it_is_gone
    assert world.controller.rebuild_jobs.cancel("d", job.id, by="ann").status == "cancelled"
    assert not scratch.exists()
    later(world)
    assert newest(world).status == "cancelled"
    world.restart()
    world.controller.recover()
    assert (newest(world).status, newest(world).ended_by) == ("cancelled", "ann")
    assert not world.parts.building


def test_what_waits_goes_on_after_a_restart(world: Beside) -> None:
    """At once, and where it had come to."""
    world.faults.to = Full("job.before", passage=9)
    world.start(document("tripled"))
    world.faults.to = PlannedFaults("job.before")
    world.restart()
    world.controller.recover()
    with pytest.raises(Crash):
        world.controller.tick()
    world.faults.to = NO_FAULTS
    world.restart()
    world.controller.recover()
    world.controller.tick()
    assert (newest(world).status, newest(world).anew) == ("ready", "")


def test_status_and_rest_say_that_it_waits(
    world: Beside, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the error, what to do about it, and when it tries again."""
    settings = Settings(root=world.root, token=TOKEN)
    session = Session(settings, AppTransport(api_of_world(world, settings)))

    def status() -> str:
        with pytest.raises(SystemExit):
            main(["status", "d"], session=session)
        return " ".join(capsys.readouterr().out.split())

    world.faults.to = Full("job.before", passage=9)
    job = world.start(document("tripled"))
    world.faults.to = NO_FAULTS
    text = status()
    assert "the rebuild waits: no space left on the device that holds tables/x.parquet" in text
    assert "free some space there; the next attempt is at 2026-" in text
    (waiting,) = session.client.rebuilds("d")
    assert waiting.again_at == newest(world).again_at
    assert waiting.error is not None
    later(world)
    (ready,) = session.client.rebuilds("d")
    assert (ready.id, ready.status, ready.again_at, ready.error) == (job.id, "ready", None, None)
    assert "the rebuild waits" not in status()
