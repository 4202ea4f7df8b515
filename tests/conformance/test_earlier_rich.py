"""What a version left behind of everything it can write is read by all later ones.

Archives of `tests/fixtures/earlier/rich.py`: frames, memos, closes, messages to addresses, remote
writes, deleted rows, compaction, checkpoints, sealed entries, inputs that are gone, a roll-back,
a correction, a second version, a file in quarantine, and a publication that died half-way.

Each is read as written and as of then, goes on, and goes back.
"""

from __future__ import annotations

import json
import os
import random
import tarfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import polars
import pytest

from cbp.clock import MACHINE
from cbp.engine.storage.files import LocalFiles
from cbp.engine.storage.table_names import stage_tables
from controller.app import Service
from controller.loop.reading.recovery_preview import preview_recovery
from controller.store.base import open_store
from tests.conformance.earlier_folders import moved, unpack
from tests.fixtures.earlier.rich import CORRECTED, MESSAGES, NAME, document, expected
from tests.fixtures.earlier.rich_play import arrive, rows, served, settle, stood
from tests.fixtures.earlier.write import HERE

ARCHIVES = sorted(path.name for path in HERE.glob("*-rich.tar.xz"))
REBUILT = [name for name in ARCHIVES if not name.startswith(("0012-", "0013-"))]
"""What folders say is the same from 0012 to 0014: those migrations are of the store alone."""


@pytest.fixture(params=ARCHIVES)
def left(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Give the folder of a service that was killed, by an earlier version."""
    unpack(tmp_path, request.param)
    rejuvenate(tmp_path)
    moved(f"sqlite:///{tmp_path}/cbp.db", tmp_path)
    return tmp_path


def test_one_of_everything_is_kept() -> None:
    """An archive that lacks something would test nothing of it; the names say what is there."""
    assert ARCHIVES
    wanted = {
        "checkpoint": "_delta_log/00000000000000000003.checkpoint.parquet",
        "vectors": "/_vectors/",
        "deleted rows in a file": ".deletes",
        "bindings": "bindings",
        "frames": "_punctuations/",
        "a correction": "_corrections/",
        "a generation": "_intentions/_generations/",
        "a position": "/_positions/",
        "sealed entries": "/_log/sealed/",
        "a second version": "_description/00000000000000000002.json",
        "an index copy": "cache/",
        "quarantine": "quarantine/",
    }
    for archive in ARCHIVES:
        with tarfile.open(HERE / archive) as tar:
            names = tar.getnames()
        lacking = [what for what, part in wanted.items() if not any(part in n for n in names)]
        assert not lacking, (archive, lacking)


@pytest.mark.part(every=len(ARCHIVES))
def test_a_service_goes_on(left: Path) -> None:
    """Migrated and recovered, the tables are what was written; then on, and back."""
    with closing(open_store(f"sqlite:///{left}/cbp.db")) as store:
        (seen,) = preview_recovery(store, LocalFiles(), f"{left}/tables")
    redo = {stage.stage: stage.redo for stage in seen.stages}
    assert redo == {"split": 1, "differ": 0, "gossip": 0}, "it died behind a record"
    with opened(left) as service:
        closed = service.store.punctuations(NAME).items
        assert sorted(one.flow for one in closed) == ["a", "b"]
        goes_on(service, story_of(left))


@pytest.mark.part(every=(len(REBUILT) - 1) * 2)
@pytest.mark.parametrize("left", REBUILT, indirect=True)
@pytest.mark.parametrize(
    "url", ["", pytest.param("postgresql", marks=[pytest.mark.service, pytest.mark.soak])]
)
def test_a_lost_store_is_rebuilt(left: Path, url: str, request: pytest.FixtureRequest) -> None:
    """From descriptions, positions, records, generations, corrections and closes alone."""
    for path in left.glob("cbp.db*"):
        path.unlink()
    if url:
        url = request.getfixturevalue("new_postgres_database")()
    with opened(left, url) as service:
        assert service.controller.rebuild() == [NAME]
        service.controller.recover()
        goes_on(service, story_of(left))


def goes_on(service: Service, story: dict[str, Any]) -> None:
    settle(service)
    require_tables(stood(service), story["events"], "recovered")
    shows_what_was_written(service, story["written"])
    knows_what_was_done(service)
    knows_what_came(service, story["events"][0][1])
    more = rows(10, random.Random(2))
    arrive(service, 10, more)
    last = stood(service)
    require_tables(last, [*story["events"], ("arrive", more)], "gone on")

    early, amendments = story["early"], service.controller.amendments
    number = str(sum(early["epochs"].values()))
    amendments.roll_back(NAME, number, who="me", why="to see it come back", pause=True)
    assert stood(service) == early, "rolled back"
    service.controller.resume(NAME)
    settle(service)
    assert stood(service) == last, "come again"


def require_tables(actual: dict[str, Any], events: list[Any], when: str) -> None:
    """Check every table; of the messages, which are collected, the newest epochs are there."""
    left = len(actual["tables"][MESSAGES])
    assert left, "the newest messages are kept, since no later epoch has read them"
    assert actual["tables"] == expected(events, messages=left), when


def shows_what_was_written(service: Service, written: dict[str, Any]) -> None:
    """As of the last epochs before the kill, any Delta reader sees the tables of then."""
    epoch = written["epochs"]["gossip"] - 1
    snapshot = service.controller.snapshots.take(NAME, epoch=epoch, stage="gossip")
    shown = {stage: epoch + 1 for stage, epoch in snapshot.epochs.items()}
    assert shown == {stage: written["epochs"][stage] for stage in shown}
    for node in service.controller.dataflow(NAME).stages.values():
        for table in stage_tables(node):
            version = snapshot.tables[table].version
            frame = polars.read_delta(f"{snapshot.folder}/{table}", version=version)
            actual = [
                {k: v for k, v in row.items() if k[0] != "_" and k != "length"}
                for row in frame.to_dicts()
            ]
            texts = sorted(json.dumps(row, sort_keys=True) for row in actual)
            assert texts == written["tables"][table.partition("/")[2]], table


def knows_what_was_done(service: Service) -> None:
    """Corrections, roll-backs, closes and quarantine are read, with the names of operators."""
    (corrected,) = service.controller.amendments.corrections(NAME)
    assert (corrected.note.who, corrected.note.why) == ("me", "was miscounted")
    (back,) = service.controller.amendments.rollbacks(NAME)
    assert (back.number, back.why) == (1, "to see it come back")
    (bad,) = service.store.claims(NAME, status="quarantined").items
    assert bad.source == "lines"
    word, n = CORRECTED
    assert service.controller.reading.look_up(NAME, "count", "counts", {"word": word})[0]["n"] == n
    document_ = service.store.dataflow(NAME).document
    assert document_ == document(2)


def knows_what_came(service: Service, given: dict[str, Any]) -> None:
    """Files that come again are duplicates, also where the log of their source is sealed."""
    before = stood(service)
    arrive(service, 0, given)
    assert stood(service) == before
    actual = service.store.claims(NAME, status="duplicate").items
    assert {one.source for one in actual} == set(given)


def rejuvenate(root: Path) -> None:
    """Let the newest file be an hour old: ages of files decide what is kept for a roll-back."""
    times = {path: path.stat().st_mtime for path in root.rglob("*") if path.is_file()}
    later = MACHINE.now().timestamp() - 3600 - max(times.values())
    for path, modified in times.items():
        os.utime(path, (modified + later, modified + later))


@contextmanager
def opened(root: Path, url: str = "") -> Iterator[Service]:
    """Give the service, an hour after it was killed: nothing of it is too old to be kept."""
    was = datetime.fromtimestamp(story_of(root)["at"], UTC)
    ahead = was + timedelta(hours=1) - MACHINE.now()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        in_one_process = partial(served, reader_processes=False, worker_processes=False)
        now = partial(_ahead, ahead)
        with in_one_process(root, database_url=url, now=now) as service:
            yield service


def _ahead(by: timedelta) -> datetime:
    return MACHINE.now() + by


def story_of(root: Path) -> dict[str, Any]:
    story: dict[str, Any] = json.loads((root / "story.json").read_text())
    return story
