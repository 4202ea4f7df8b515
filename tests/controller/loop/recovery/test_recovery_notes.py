"""What is committed and not published is listed, and what a recovery did is noted for good."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cbp.engine.direct import LocalEngine
from cbp.engine.storage.failpoints import NO_FAULTS
from cbp.engine.storage.files import LocalFiles
from cbp.errors import OperatingError
from controller.cli.main import main
from controller.cli.session import Session
from controller.loop.recovery.recovery_notes import NOTES_MAX, RecoveryNotes
from controller.settings import Settings
from tests.controller.api.app_transport import TOKEN, AppTransport
from tests.controller.rest import api_of_world
from tests.controller.world import ONE, World
from tests.planned_faults import Crash, PlannedFaults

pytestmark = pytest.mark.usefixtures("without_syncs")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, engine=LocalEngine)
    yield made
    made.close()


def answered(world: World, capsys: pytest.CaptureFixture[str], *command: str) -> Any:
    """Return what a command prints as JSON, asked of the service over this world."""
    settings = Settings(root=world.root, token=TOKEN)
    session = Session(settings, AppTransport(api_of_world(world, settings)))
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main([*command, "--json"], session=session)
    assert not ended.value.code
    return json.loads(capsys.readouterr().out)


def crash(world: World, point: str) -> None:
    world.faults.to = PlannedFaults(point)
    with pytest.raises(Crash):
        world.ticks()
    world.faults.to = NO_FAULTS
    world.restart()


def test_what_is_committed_and_not_published_is_open(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """By stage and epoch, since when, page by page; a publication closes all of them."""
    world.controller.register({**ONE, "publish": {"epochs": 3, "seconds": 60}})
    assert answered(world, capsys, "intentions", "one")["items"] == []
    since = []
    for n in range(2):
        world.clock.advance(1)
        since.append(world.clock().isoformat().replace("+00:00", "Z"))
        world.arrive("one", "a", ("x", n), ("y", n))
        world.ticks()
    first = answered(world, capsys, "intentions", "one", "--limit", "1")
    assert [(one["stage"], one["epoch"]) for one in first["items"]] == [("sum", 0)]
    rest = answered(world, capsys, "intentions", "one", "--cursor", first["cursor"])
    (one,) = rest["items"]
    assert (one["epoch"], one["records"], one["waits_for"]) == (1, 2, "publication")
    assert one["since"][:19] == since[1][:19]
    assert set(one["tables"]) == {"state/sum.sums", "flows/sum.totals"}
    assert rest["cursor"] is None
    assert answered(world, capsys, "intentions", "one", "--stage", "other")["items"] == []
    world.arrive("one", "a", ("x", 5))
    world.ticks()
    assert answered(world, capsys, "intentions", "one")["items"] == []


def test_what_a_recovery_did_outlives_the_process(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """A redone epoch and an interrupted run, each under its own recovery, newest first."""
    world.controller.register(ONE)
    world.arrive("one", "a", ("x", 1))
    crash(world, "intention.after")
    world.controller.recover()
    (note,) = answered(world, capsys, "recoveries")["items"]
    (recovered,) = note["dataflows"]
    assert recovered["redone"] == [{"stage": "sum", "first": 0, "last": 0}]
    assert recovered["interrupted"] == []
    world.clock.advance(60)
    world.arrive("one", "a", ("x", 1))
    crash(world, "intention.before")
    world.controller.recover()
    world.restart()
    notes = answered(world, capsys, "recoveries")["items"]
    assert [one["dataflows"][0]["interrupted"] for one in notes] == [["sum/1"], []]
    assert answered(world, capsys, "recoveries", "--dataflow", "b")["items"][0]["dataflows"] == []


def test_a_recovery_with_nothing_to_do_writes_nothing(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is listed until the next start, so that an operator sees that it took place."""
    world.controller.register(ONE)
    world.controller.recover()
    (note,) = answered(world, capsys, "recoveries")["items"]
    assert (note["dataflows"], note["removed"]) == ([], [])
    assert not (Path(world.tables) / ".recoveries").exists()
    world.restart()
    assert answered(world, capsys, "recoveries")["items"] == []


def test_the_notes_are_bounded_and_may_be_lost(world: World) -> None:
    """The last notes stay; a damaged file has no notes, and hinders no recovery."""
    journal = world.controller.recovery_notes
    for number in range(NOTES_MAX + 3):
        world.clock.advance(1)
        journal.begin(term=number, instance="here")
        journal.redone("one", "sum", number)
        journal.end([], {})
    assert [note.term for note in journal.notes()] == list(range(NOTES_MAX + 2, 2, -1))
    path = Path(world.tables) / ".recoveries" / "notes.json"
    path.write_bytes(path.read_bytes().replace(b"here", b"gone"))
    world.restart()
    assert world.controller.recovery_notes.notes() == []
    world.controller.recover()
    assert len(world.controller.recovery_notes.notes()) == 1


class UnreadableNotes(LocalFiles):
    """Files of a disk that answers no read of the notes."""

    def read(self, path: str) -> bytes:
        raise OperatingError(f"{path}: no answer")


def test_notes_that_cannot_be_read_stop_no_recovery(tmp_path: Path) -> None:
    """Whatever is wrong with its file: the recovery ends, and its note stays in memory."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    journal = RecoveryNotes(files=UnreadableNotes(), root=str(tmp_path), clock=lambda: now)
    journal.begin(term=1, instance="here")
    journal.redone("one", "sum", 0)
    journal.end(["left"], {})
    assert not (tmp_path / ".recoveries").exists()
