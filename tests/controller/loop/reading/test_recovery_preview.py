"""What is open is listed before a recovery, and is nothing after it.

Telling it reads only.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cbp.engine.storage.failpoints import NO_FAULTS
from cbp.errors import NotFoundError, RebuildIncompleteError
from controller.loop.reading.recovery_preview import RecoveryPreview
from tests.controller.lost import SourceLogs
from tests.controller.world import DIAMOND, ONE, World
from tests.planned_faults import Crash, PlannedFaults


def crash(world: World, point: str) -> None:
    world.faults.to = PlannedFaults(point)
    with pytest.raises(Crash):
        world.ticks()
    world.faults.to = NO_FAULTS
    world.restart()


def outlook(world: World) -> RecoveryPreview:
    (actual,) = world.controller.outlook()
    return actual


def test_nothing_is_open_between_runs(world: World) -> None:
    """A service at rest has nothing to recover, and looking changes nothing."""
    world.controller.register(ONE)
    world.arrive("one", "a", ("x", 1))
    world.ticks()
    before = world.picture()
    assert not outlook(world).open
    assert world.picture() == before


def test_a_record_that_is_not_committed_is_a_redo(world: World) -> None:
    """A crash behind the commit point leaves one record to redo, and no interrupted run."""
    world.controller.register(ONE)
    world.arrive("one", "a", ("x", 1))
    crash(world, "intention.after")
    (stage,) = outlook(world).stages
    assert (stage.epoch, stage.recorded, stage.redo, stage.interrupted) == (0, 1, 1, ())
    world.controller.recover()
    assert not outlook(world).open


def test_a_run_without_a_record_is_interrupted(world: World) -> None:
    """A crash before the commit point leaves a run that is run again."""
    world.controller.register(ONE)
    world.arrive("one", "a", ("x", 1))
    crash(world, "intention.before")
    (stage,) = outlook(world).stages
    assert (stage.redo, len(stage.interrupted)) == (0, 1)
    world.controller.recover()
    assert not outlook(world).open


def test_a_folder_without_a_row_is_open(world: World, tmp_path: Path) -> None:
    """A lost store knows nothing: every record is to be redone, every dataflow brought back."""
    for document in (ONE, DIAMOND):
        world.controller.register(document)
    world.arrive("one", "a", ("x", 1))
    world.ticks()
    new = World(tmp_path / "new")
    new.tables = world.tables
    new.restart()
    diamond, one = new.controller.outlook()
    assert (diamond.known, one.known, one.steps) == (False, False, 1)
    new.arrivals = SourceLogs(new, "one", [world.store.increment("one", "a", 0).increment])
    seen: list[str] = []
    assert new.controller.rebuild(["one"], on_dataflow=seen.append) == ["one"]
    assert (seen, [r.name for r in new.store.dataflows()]) == (["one"], ["one"])
    with pytest.raises(NotFoundError):
        new.controller.rebuild(["nobody"])
    new.close()


def test_a_dataflow_that_cannot_come_back_stops_no_other(world: World, tmp_path: Path) -> None:
    """A translator that is no longer installed is listed with its cause, after all others."""
    world.controller.register(ONE)
    world.controller.register(DIAMOND)
    new = World(tmp_path / "new")
    new.tables = world.tables
    del new.translators["join"]
    new.restart()
    with pytest.raises(RebuildIncompleteError) as caught:
        new.controller.rebuild()
    assert caught.value.details["rebuilt"] == ["one"]
    assert set(caught.value.details["failed"]) == {"diamond"}
    new.close()


def test_a_log_that_cannot_be_read_is_said(world: World) -> None:
    """A damaged position is shown as the dataflow's problem, and looking goes on."""
    world.controller.register(ONE)
    folder = world.store.dataflow("one").folder
    world.files.put_if_absent(f"{folder}/_intentions/_positions/{1:020d}.json", b"{")
    actual = outlook(world)
    assert actual.open
    assert actual.problem
    assert replace(actual, problem="", known=True).open is False
