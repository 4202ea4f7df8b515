"""Damages of what a service keeps beside its tables: the database, logs of arrivals, roll-backs.

A stepped service on real files. Whatever is damaged, the service starts, the other dataflow goes
on, the file is named, `cbp doctor` and `cbp scrub` find it, and the advice mends it: the state is
then that of a service to which nothing happened.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog

from controller.app import Service
from controller.store.errors import DatabaseDamagedError
from tests.controller.damaged_service import Damaged, counted
from tests.controller.damaging import cut, flip, remove, zero

FILES = 5
LOG = "tables/one/sources/visits/_log/*.json"
ROLLBACK = "tables/one/_intentions/_generations/*.json"
Damage = Callable[[Path], None]

pytestmark = pytest.mark.usefixtures("without_syncs")


def be_a_folder(path: Path) -> None:
    """Let a folder lie where the file was."""
    remove(path)
    path.mkdir()


def be_a_fifo(path: Path) -> None:
    """Let a FIFO lie where the file was; opening it for reading would wait for ever."""
    remove(path)
    os.mkfifo(path)


def be_a_loop(path: Path) -> None:
    """Let a link lie where the file was, which leads to itself."""
    remove(path)
    path.symlink_to(path.name)


def garble(path: Path) -> None:
    """Let something else lie where the file was."""
    path.write_bytes(b"not what it was" * 400)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Damaged]:
    """Give a service that read four files and was rolled back to the third once."""
    before = structlog.get_config()
    damaged = Damaged(tmp_path_factory.mktemp("damaged"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        with damaged.serving() as service:
            damaged.register(service)
            for number in range(FILES - 1):
                damaged.drop(number)
                damaged.step(service)
            amendments = service.controller.amendments
            amendments.roll_back("one", "count:2", who="me", why="for a record of it")
            damaged.step(service)
    damaged.keep()
    yield damaged
    structlog.configure(**before)


@pytest.fixture
def damaged(made: Damaged) -> Damaged:
    """Give its files as they were."""
    made.restore()
    return made


def end(damaged: Damaged, service: Service, *names: str) -> None:
    """Bring the last file, and expect the state of an undamaged service."""
    damaged.step(service)
    damaged.drop(FILES - 1, *names)
    damaged.step(service)
    for name in names or ("one", "other"):
        assert damaged.counts(service, name) == counted(FILES), damaged.troubles(service, name)


@pytest.mark.part(every=2)
@pytest.mark.parametrize("damage", [flip, remove, be_a_folder, be_a_fifo])
def test_a_damaged_record_of_a_roll_back_holds_its_dataflow_only(
    damage: Damage, damaged: Damaged
) -> None:
    """The service starts, says which file it is, and a backup of the file mends it."""
    path = damaged.file(ROLLBACK)
    damage(path)
    assert str(path) in damaged.scrubbed() or damage is be_a_folder
    with damaged.serving() as service:
        end(damaged, service, "other")
        assert str(path) in damaged.troubles(service, "one")
        assert damaged.counts(service, "one") == counted(FILES - 1)
    damaged.restore(str(path.relative_to(damaged.root)))
    assert damaged.scrubbed() == {}
    with damaged.serving() as service:
        end(damaged, service, "one")


def test_a_damaged_entry_of_a_source_is_found_while_the_database_is_whole(
    damaged: Damaged,
) -> None:
    """The first entry as well as one between others; nothing needs it, so nothing stops."""
    for at in (0, 1):
        path = damaged.file(LOG, at)
        for damage in (flip, cut, zero, be_a_fifo, be_a_loop, remove):
            damage(path)
            code = "file_lost" if damage in (remove, be_a_loop) else "file_damaged"
            assert damaged.scrubbed() == {str(path): code}
            path.unlink(missing_ok=True)
            damaged.restore(str(path.relative_to(damaged.root)))
    flip(path)
    (told,) = damaged.doctor("damage")
    assert str(path) in told.found
    with damaged.serving() as service:
        end(damaged, service)


@pytest.mark.part(every=8)
@pytest.mark.parametrize("damage", [flip, remove, be_a_folder])
@pytest.mark.parametrize("waits", [True, False])
def test_with_the_database_and_the_end_of_a_source_log_nothing_is_lost_in_silence(
    waits: bool, damage: Damage, damaged: Damaged, capsys: pytest.CaptureFixture[str]
) -> None:
    """The next file must not take the lost increment's place; with the entry again, all is there.

    Whether a stage has read the increment, or it waits.
    """
    numbers = FILES - 1
    if waits:
        with damaged.serving() as service:
            damaged.drop(numbers)
            damaged.step(service, runs=False)
            numbers += 1
    path = damaged.file(LOG.replace("/one/", "/other/"))
    entry = path.read_bytes()
    damaged.lose_database()
    damage(path)
    with pytest.raises(SystemExit):
        damaged.rebuild()
    with damaged.serving() as service:
        known = [record.name for record in service.store.dataflows()]
        if "other" in known:
            damaged.drop(numbers, "other")
            damaged.step(service)
            assert str(path) in damaged.troubles(service, "other")
            assert f"only-{numbers}" not in damaged.counts(service, "other")
        else:
            assert str(path) in capsys.readouterr().out
        damaged.drop(numbers, "one")
        damaged.step(service)
        assert damaged.counts(service, "one") == counted(numbers + 1)
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    path.write_bytes(entry)
    with pytest.raises(SystemExit):
        damaged.rebuild()
    with damaged.serving() as service:
        damaged.drop(numbers, *(["other"] if "other" not in known else []))
        damaged.step(service)
        assert damaged.counts(service, "other") == counted(numbers + 1)


def test_with_the_database_and_the_record_of_a_roll_back_lost_the_others_come_back(
    damaged: Damaged, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its dataflow is left out with the file's name; no controller takes it for a deposition."""
    path = damaged.file(ROLLBACK)
    entry = path.read_bytes()
    damaged.lose_database()
    remove(path)
    with pytest.raises(SystemExit):
        damaged.rebuild()
    assert str(path) in capsys.readouterr().out
    with damaged.serving() as service:
        assert [record.name for record in service.store.dataflows()] == ["other"]
        end(damaged, service, "other")
    path.write_bytes(entry)
    with pytest.raises(SystemExit):
        damaged.rebuild()
    with damaged.serving() as service:
        end(damaged, service, "one")


@pytest.mark.part(every=6)
@pytest.mark.parametrize("damage", [cut, garble, be_a_folder, be_a_fifo, be_a_loop])
def test_a_damaged_database_is_named_and_rebuilt_by_one_command(
    damage: Damage, damaged: Damaged, capsys: pytest.CaptureFixture[str]
) -> None:
    """No service starts on it; the damaged file stays beside the new one."""
    path = damaged.root / "cbp.db"
    damage(path)
    with pytest.raises(DatabaseDamagedError), damaged.serving():
        pass
    (told,) = damaged.doctor("database")
    assert told.status == "fail"
    assert str(path) in told.found
    assert "cbp recover --rebuild" in told.remedy
    with pytest.raises(SystemExit) as ended:
        damaged.rebuild()
    assert not ended.value.code
    assert capsys.readouterr().out
    assert os.path.lexists(f"{path}.damaged-1")
    with damaged.serving() as service:
        end(damaged, service)
    assert damaged.doctor("database") == []


def test_an_emptied_database_is_told_and_brought_back(damaged: Damaged) -> None:
    """SQLite takes a file without bytes for a new database: the tables tell that it is not."""
    (damaged.root / "cbp.db").write_bytes(b"")
    with damaged.serving():
        pass
    (told,) = damaged.doctor("tables")
    assert told.status == "fail"
    assert "one, other" in told.found
    with pytest.raises(SystemExit):
        damaged.rebuild()
    assert damaged.doctor("tables") == []
    with damaged.serving() as service:
        end(damaged, service)


def test_an_older_copy_of_the_database_is_brought_forward(damaged: Damaged) -> None:
    """The folders say what it lacks: nothing is lost, nothing is applied twice."""
    with damaged.serving() as service:
        damaged.drop(FILES - 1)
        damaged.step(service)
    damaged.lose_database()
    damaged.restore("cbp.db")
    with damaged.serving() as service:
        damaged.step(service)
        for name in ("one", "other"):
            assert damaged.counts(service, name) == counted(FILES)


@pytest.mark.parametrize("lies", ["file", "fifo", "copy"])
def test_whatever_lies_beside_the_terms_the_service_starts(lies: str, damaged: Damaged) -> None:
    """A FIFO with the name of a term, and a copy of one that somebody made."""
    terms = damaged.root / "tables" / ".terms"
    name = "00000000000000000000-0a0b" if lies != "copy" else "1 (copy)"
    if lies == "fifo":
        os.mkfifo(terms / name.replace("00-", "01-"))
    else:
        (terms / name).write_text("")
    (damaged.root / "tables" / "notes of somebody.txt").write_text("")
    with damaged.serving() as service:
        end(damaged, service)


def test_an_upload_that_changes_before_it_is_read_is_refused(damaged: Damaged) -> None:
    """It was acknowledged with its digest: other bytes are never taken in for it."""
    with damaged.serving() as service:
        damaged.upload(service, "one", FILES - 1)
        path = damaged.file("drop/one/visits/claimed/*")
        flip(path)
        damaged.step(service)
        assert damaged.counts(service, "one") == counted(FILES - 1)
        newest = service.store.claims("one", "visits", limit=1).items[0]
        assert (newest.status, (newest.reason or {})["code"]) == ("quarantined", "file_changed")
        damaged.upload(service, "one", FILES - 1)
        damaged.step(service)
        assert damaged.counts(service, "one") == counted(FILES)


@pytest.mark.part(every=3)
@pytest.mark.parametrize("damage", [flip, remove, cut, zero, be_a_folder, be_a_fifo, be_a_loop])
def test_what_lies_in_a_drop_folder_may_be_damaged_in_any_way(
    damage: Damage, damaged: Damaged
) -> None:
    """A file that was read, a rejected one and its reason, and a manifest, all before a start."""
    incoming = damaged.settings.drop_root / "one" / "visits" / "incoming"
    (incoming / "bad.jsonl").write_text('{"url": 1}\n')
    with damaged.serving() as service:
        damaged.step(service)
    (incoming / ".manifest-00ab.json").write_text('{"files": [{"name": "4.jsonl", "bytes": 46}]}')
    for pattern in (
        "finished/*",
        "quarantine/*.reason.json",
        "quarantine/*.jsonl",
        "incoming/.manifest-*.json",
    ):
        damage(damaged.file(f"drop/one/visits/{pattern}"))
    with damaged.serving() as service:
        end(damaged, service)


@pytest.mark.parametrize("pattern", ["tables/one/state/*/_delta_log/*2.json", LOG])
def test_an_entry_without_a_byte_is_no_entry_without_content(
    pattern: str, damaged: Damaged
) -> None:
    """A table's entry that is empty would leave out, in silence, what it changed."""
    path = damaged.file(pattern)
    path.write_bytes(b"")
    assert damaged.scrubbed() == {str(path): "file_damaged"}
    with damaged.serving() as service:
        end(damaged, service, "other")


def test_the_records_of_another_dataflow_are_found(damaged: Damaged) -> None:
    """They are whole and have the right names."""
    names = ("_description/*.json", "_intentions/count/*.json")
    paths = [damaged.file(f"tables/one/{pattern}", 0) for pattern in names]
    for path in paths:
        shutil.copy(str(path).replace("/one/", "/other/"), path)
    actual = damaged.scrubbed()
    assert actual == {str(paths[1]): "file_damaged"}


@pytest.mark.part(every=2)
@pytest.mark.parametrize("pattern", [LOG, ROLLBACK])
@pytest.mark.parametrize("damage", [flip, remove])
def test_a_dataflow_whose_logs_are_damaged_can_be_deleted_and_begin_anew(
    pattern: str, damage: Damage, damaged: Damaged
) -> None:
    """The way that the page names where no backup is."""
    damage(damaged.file(pattern))
    with damaged.serving() as service:
        service.controller.delete("one", purge=True)
        damaged.register(service, "one")
        for number in range(FILES - 1):
            damaged.drop(number, "one")
            damaged.step(service)
        end(damaged, service)
    assert damaged.scrubbed() == {}
