"""Whatever is in a drop folder: it is shown, and it stops nothing beside it.

One module opens what is there (`file_bytes.py`). An error goes to its file, otherwise to its
source, which is tried again at growing pauses.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from controller import ingest
from controller.ingest import drop_folder
from controller.ingest.folder import eligible_files
from controller.ingest.folder.incoming_watch import IncomingWatch
from controller.ingest.folder.manifest import Manifest, read_manifest
from controller.ingest.folder.source_place import evidence
from controller.ingest.formats import file_bytes
from controller.ingest.formats.file_bytes import open_regular, read_regular
from controller.ingest.rejection import FileRejectedError
from tests.controller.ingest.harness import Drop, lines

SCHEMA = "id BIGINT, name STRING"
Make = Callable[[Path], None]


def a_fifo(path: Path) -> None:
    os.mkfifo(path)


def a_folder(path: Path) -> None:
    path.mkdir()


def a_link(path: Path) -> None:
    secret = path.parents[4] / "secret"
    secret.write_bytes(lines(1))
    path.symlink_to(secret)


def a_loop(path: Path) -> None:
    path.symlink_to(path.name)


def a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


STRANGE = [a_fifo, a_folder, a_link, a_loop, a_device]
OURS = [
    *("_MANIFEST.json", ".manifest-x.json", "_CLOSE", ".close-x", ".upload-x.part"),
    *(".probe-1.tmp", "a.jsonl"),
]


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("make", STRANGE)
def test_no_kind_of_file_stops_its_source(name: str, make: Make, tmp_path: Path):
    """Under the names that are ours, too: nothing waits, follows or obeys it, and it is shown."""
    drop = Drop(tmp_path, SCHEMA, sources=("orders", "returns"))
    drop.folder = _with_closes(drop)
    make(drop.incoming / name)
    drop.put("good", lines(1))
    drop.put("good", lines(1), "returns")
    drop.folder.prepare(drop.record, drop.dataflow)
    assert drop.recover().failures == ()
    report = drop.scan()
    assert (report.accepted, report.quarantined, report.closed) == (2, 0, 0)
    assert report.failures == ()
    if make is a_folder or name != ".upload-x.part":  # the part of an upload that never ended
        assert drop.names("incoming") == [name]
        (reported,) = eligible_files.scan_folder(drop.incoming).unclaimed
        assert (reported.name, bool(reported.why)) == (name, True)
        assert reported.since is not None


def _with_closes(drop: Drop) -> drop_folder.DropFolder:
    """Return a drop folder that would count what a marker closes."""
    return drop_folder.DropFolder(
        store=drop.store,
        files=drop.files,
        clock=lambda: drop.now,
        drop_root=drop.root / "drop",
        on_accept=lambda: None,
        on_close=lambda *_: None,
        settle_seconds=0,
    )


@pytest.mark.parametrize(
    "data",
    [
        *(b"{", b"", b"\xff", b"[" * 100_000, b'{"files": 1}', b"9" * 5_000),
        b'{"files": [{"name": "\\ud800", "bytes": 1}]}',
        b'{"files": [{"name": "a\\u0000", "bytes": 1}]}',
        b'{"files": [{"name": ".x", "bytes": 1}]}',
    ],
)
def test_a_damaged_sealed_manifest_goes_to_quarantine(data: bytes, tmp_path: Path):
    """A claim records it; before and behind a restart the files beside it are taken in."""
    drop = Drop(tmp_path, SCHEMA)
    drop.put(".manifest-x.json", data)
    drop.put("good", lines(1))
    assert drop.recover().failures == ()
    report = drop.scan()
    assert (report.accepted, report.quarantined, report.failures) == (1, 1, ())
    (reason,) = drop.reasons()
    assert (reason["code"], reason["file"]) == ("manifest_mismatch", ".manifest-x.json")
    assert [c.status for c in drop.store.claim_rows.values()] == ["quarantined", "accepted"]
    assert drop.names("incoming") == []


def test_the_reason_of_a_manifest_names_the_files_that_it_named(tmp_path: Path):
    """They are taken one by one: their producer must learn that its order was not heard."""
    drop = Drop(tmp_path, SCHEMA)
    drop.put(".manifest-x.json", b'{"files": [{"name": "b", "bytes": 3}, {"name": "a", "by')
    drop.put("a", lines(1))
    assert drop.scan().accepted == 1
    (reason,) = drop.reasons()
    assert "'\"b\"', '\"a\"'" in reason["message"]


def test_a_manifest_that_is_too_large_is_not_read(tmp_path: Path):
    """A sparse file of a terabyte is refused without reading it."""
    path = tmp_path / "m"
    with open(path, "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(FileRejectedError) as caught:
        read_manifest(path)
    assert caught.value.rule == "file_too_large"
    assert "announce fewer files" in caught.value.message


def test_a_sealed_manifest_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A pass takes some files of a large set; reading the set for each of them is quadratic."""
    drop = Drop(tmp_path, SCHEMA)
    drop.put(".manifest-x.json", b'{"files": [{"name": "a", "bytes": 1}]}')
    read: list[Path] = []

    def reads(path: Path, *given: object) -> Manifest:
        read.append(path)
        return read_manifest(path)

    monkeypatch.setattr(eligible_files, "read_manifest", reads)
    settler = eligible_files.EligibleFiles(
        drop.incoming, clock=lambda: drop.now, settle_seconds=0, watch=IncomingWatch()
    )
    for _ in range(3):
        assert len(settler.look().sealed) == 1
    assert len(read) == 1
    drop.put(".manifest-x.json", b"{")
    assert settler.look().sealed == []


@pytest.mark.parametrize(
    "error",
    [RecursionError(), MemoryError(), UnicodeError("x"), KeyError("k"), OverflowError(), None],
)
def test_an_error_that_nobody_foresaw_goes_to_its_file(
    error: Exception | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """It is put aside with the error's class and our place; the files behind it are taken in."""
    drop = Drop(tmp_path, SCHEMA)
    for name in "ab":
        drop.put(name, lines(1, start=ord(name)))
    finish = file_bytes.ClaimedContent.finish

    def fails(self: file_bytes.ClaimedContent) -> str:
        if self.peek(100) == lines(1, start=ord("a")):
            raise error or OSError(errno.EIO, "Input/output error")
        return finish(self)

    if error is None:
        read = file_bytes.ClaimedContent.read

        def broken(self: file_bytes.ClaimedContent, count: int) -> bytes:
            if self.peek(100) == lines(1, start=ord("a")):
                self._file.close = lambda: None  # type: ignore[method-assign]
                self._file = _Broken(self._file)  # type: ignore[assignment]
            return read(self, count)

        monkeypatch.setattr(file_bytes.ClaimedContent, "read", broken)
    else:
        monkeypatch.setattr(file_bytes.ClaimedContent, "finish", fails)
    report = drop.scan()
    assert (report.accepted, report.quarantined, report.failures) == (1, 1, ())
    (reason,) = drop.reasons()
    assert reason["code"] == "file_unreadable"
    if error is not None:
        assert type(error).__name__ in reason["cause"]
        assert "controller/ingest/" in reason["cause"]
    assert not list(Path(drop.record.folder).rglob("*.tmp"))
    assert len(list(Path(drop.record.folder).rglob("*.parquet"))) == 1


class _Broken:
    """A file on a bad sector."""

    def __init__(self, file: object) -> None:
        self._file = file

    def read(self, count: int) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)


def test_an_error_in_one_source_stays_there_and_rests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """It is named, tried again at growing pauses, and over once it works."""
    drop = Drop(tmp_path, SCHEMA, sources=("orders", "returns"))
    tried: list[datetime] = []

    def fails(folder: Path, *given: object) -> object:
        if "orders" in folder.parts:
            tried.append(drop.now)
            raise KeyError("k")
        return scan_folder(folder)

    scan_folder = eligible_files.scan_folder
    monkeypatch.setattr(eligible_files, "scan_folder", fails)
    drop.put("a", lines(1))
    drop.put("a", lines(1), "returns")
    began = drop.now
    for second in range(60):
        report = drop.scan()
        assert [error.code for error in report.failures] == ["source_failed"]
        assert report.accepted == (second == 0)
        drop.pass_seconds(1)
    assert [(at - began).seconds for at in tried] == [0, 1, 2, 3, 5, 9, 17, 33]
    (failure,) = drop.scan().failures
    assert failure.details["source"] == "orders"
    assert "KeyError" in failure.details["cause"]
    trouble = drop.folder.troubles.of(drop.incoming.parent)
    assert trouble is not None
    assert (trouble.since, trouble.tries) == (began, 8)
    (words,) = drop.folder.troubled("shop")
    assert words.startswith("source orders: nothing is taken in (failed 8 times in a row")
    assert drop.folder.troubled("other") == []
    monkeypatch.setattr(eligible_files, "scan_folder", scan_folder)
    drop.pass_seconds(30)
    assert drop.scan().accepted == 1
    assert drop.folder.troubles.of(drop.incoming.parent) is None


@pytest.mark.parametrize("seconds", [3, 20, 3600])
def test_a_clock_that_is_set_back_keeps_no_source_resting(
    seconds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A source that failed later than now is tried at once."""
    drop = Drop(tmp_path, SCHEMA)
    drop.put("a", lines(1))
    with monkeypatch.context() as patch:
        patch.setattr(eligible_files, "scan_folder", lambda *given: 1 / 0)
        for _ in range(5):
            drop.scan()
            drop.pass_seconds(1)
    drop.pass_seconds(-seconds)
    assert drop.scan().accepted == 1


@pytest.mark.parametrize("kind", [*STRANGE, "huge", "deep", "no text"])
def test_a_strange_reason_does_not_keep_a_lost_store_from_the_others(
    kind: Make | str, tmp_path: Path
):
    """What is in quarantine is somebody's, too: it is read as carefully."""
    drop = Drop(tmp_path, SCHEMA)
    drop.put("bad", b"x")
    drop.put("worse", b"y")
    assert drop.scan().quarantined == 2
    one, other = sorted(drop.place("quarantine").glob("*.reason.json"))
    one.unlink()
    if kind == "huge":
        with open(one, "wb") as file:
            file.truncate(1 << 40)
    elif kind == "deep":
        one.write_bytes(b"[" * 100_000)
    elif kind == "no text":
        one.write_bytes(b'{"code": [], "message": {}, "file": null}')
    else:
        assert callable(kind)
        kind(one)
    (drop.place("quarantine") / "person's-note").mkdir()
    (drop.place("quarantine") / "person's-note.reason.json").write_bytes(b"{}")
    expected = json.loads(other.read_bytes())
    drop.store.claim_rows.clear()
    assert drop.recover().failures == ()
    actual = sorted(drop.store.claim_rows.values(), key=lambda c: c.id)
    assert [c.reason["code"] for c in actual] == ["reason_unreadable", expected["code"]]
    assert {c.path for c in actual} == {"bad", "worse"}


@pytest.mark.parametrize("make", STRANGE)
def test_strange_files_among_the_finished_ones_keep_nothing(make: Make, tmp_path: Path):
    """They are no files of ours; the rest is cleaned, and no link is followed."""
    drop = Drop(tmp_path, SCHEMA, sources=("orders", "returns"))
    drop.put("a", lines(1))
    drop.scan()
    make(drop.place("finished") / "000000000000-x")
    drop.pass_seconds(30 * 86_400)
    drop.folder.clean(drop.record, drop.dataflow)
    kept = drop.names("finished")
    assert len([name for name in kept if not name.startswith("000000000000-")]) == 0


@pytest.mark.parametrize("make", [*STRANGE, None])
def test_what_opens_a_file_never_waits_and_follows_nothing(make: Make | None, tmp_path: Path):
    """The one function that opens what strangers put there."""
    path = tmp_path / "1" / "2" / "3" / "4" / "x"
    path.parent.mkdir(parents=True)
    if make is None:
        with pytest.raises(FileNotFoundError):
            open_regular(path)
        path.write_bytes(b"12345")
        assert read_regular(path, bytes_max=5) == b"12345"
        with pytest.raises(FileRejectedError) as caught:
            read_regular(path, bytes_max=4)
        assert caught.value.rule == "file_too_large"
        return
    make(path)
    with pytest.raises(FileRejectedError) as caught:
        read_regular(path, bytes_max=5)
    assert caught.value.rule == "not_regular"


@pytest.mark.parametrize("name", ["\ud800", "a\0b", "caf\udce9", "\ud83d\ude00"])
def test_every_text_has_its_evidence(name: str):
    """What a manifest names was never a file's name, and may hold any character."""
    evidence(name).encode()
    assert "\0" not in evidence(name)


def test_only_one_module_opens_what_is_in_a_drop_folder():
    """A new way of opening changes that one, and its guarantees with it."""
    folder = Path(ingest.__file__).parent
    opening = (" open(", "(open(", "os.open(", ".read_bytes(", ".read_text(", "read_table(")
    actual = {
        file.name
        for file in folder.rglob("*.py")
        for line in file.read_text(encoding="utf-8").splitlines()
        if any(one in f" {line.strip()}" for one in opening)
        and "def " not in line
        and "/proc/" not in line
    }
    # The others write what nobody else has, under names of their own ("x"), and temporaries;
    # `incoming_watch.py` reads the kernel's list of mounts; `eligible_files.py` opens folders only.
    others = {"uploads.py", "folder_check.py", "increment_parts.py", "incoming_watch.py"}
    assert actual == {"file_bytes.py", "eligible_files.py", *others}


def test_time_of_what_stays_is_the_systems(tmp_path: Path):
    """A producer may set the time of its file; when it came it may not."""
    drop = Drop(tmp_path, SCHEMA)
    drop.put("a.tmp", lines(1))
    os.utime(drop.incoming / "a.tmp", (0, 0))
    (reported,) = eligible_files.scan_folder(drop.incoming).unclaimed
    assert reported.since is not None
    assert abs((datetime.now(UTC) - reported.since).total_seconds()) < 60
