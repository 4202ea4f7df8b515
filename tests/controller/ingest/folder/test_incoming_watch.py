"""A file that is renamed in is whole at once; every other file waits for its settle time."""

from __future__ import annotations

import errno
import os
import queue
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cbp.model.dataflow.nodes import FileBatch
from controller.ingest.folder.eligible_files import LOOKED_AT_TOGETHER
from controller.ingest.folder.incoming_watch import IncomingWatch, has_every_event
from controller.ingest.formats.file_bytes import never
from controller.ingest.limits import IngestLimits
from controller.ingest.reader.file_reader import ReadRequest, ReadResult, read_files
from tests.controller.ingest.harness import Drop, lines

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")

SCHEMA = "id BIGINT NOT NULL, name STRING"


@pytest.fixture
def drop(tmp_path: Path) -> Drop:
    """A file must be unchanged for a minute, and nobody makes the clock go on."""
    return Drop(tmp_path, SCHEMA, settle_seconds=60)


@contextmanager
def watched(drop: Drop) -> Iterator[queue.Queue[frozenset[str]]]:
    """Watch the folders in a thread; yields what is woken. All that happened before is noted."""
    woken, stop = queue.Queue[frozenset[str]](), threading.Event()
    thread = threading.Thread(target=drop.folder.watch, args=(stop, woken.put))
    thread.start()
    try:
        note(drop, woken, first=True)
        yield woken
    finally:
        stop.set()
        thread.join()


def note(drop: Drop, woken: queue.Queue[frozenset[str]], *, first: bool = False) -> None:
    """Return once the thread has noted every event so far: events come in their order.

    A marker is renamed in; when the watch knows it, it knows what came before. The marker is hidden
    and stays there until the next listing forgets it.
    """
    watch, marker = drop.folder._watch, drop.root / "marker"
    hidden = drop.incoming / ".marker"
    while True:
        marker.write_bytes(b"")
        marker.rename(hidden)
        inode = hidden.stat().st_ino
        try:
            while not any(one.inode == inode for one in watch.renamed_in(drop.incoming)):
                woken.get(timeout=0.2 if first else 20)
        except queue.Empty:
            assert first  # the thread had not begun to watch
            continue
        return


def rename_in(drop: Drop, name: str, data: bytes) -> None:
    staged = drop.root / f"{name}.next"
    staged.write_bytes(data)
    staged.rename(drop.incoming / name)


def test_a_file_that_is_renamed_in_is_taken_at_once(drop: Drop) -> None:
    """Beside it, a file that is written in place waits; `waiting` counts it alone."""
    with watched(drop) as woken:
        rename_in(drop, "a.jsonl", lines(2))
        drop.put("b.jsonl", lines(3, start=10))
        note(drop, woken)
        report = drop.scan()
    assert (report.accepted, report.waiting) == (1, 1)
    assert [row["id"] for row in drop.rows()] == [0, 1]


@pytest.mark.parametrize(("waits", "accepted"), [(False, 4), (True, 3)])
def test_a_backlog_lets_a_file_of_another_source_pass(
    tmp_path: Path, waits: bool, accepted: int
) -> None:
    """A pass that has taken a part of its time ends once a file was renamed into another source."""
    limits = IngestLimits(scan_seconds=20)
    drop = Drop(tmp_path, SCHEMA, limits=limits, sources=("orders", "others"))

    def read(
        request: ReadRequest,
        stopping: Callable[[], bool] = never,
        hurried: Callable[[], bool] = never,
    ) -> ReadResult:
        drop.pass_seconds(3)
        return read_files(request, stopping, hurried)

    drop.start(reader=read)
    drop.folder.prepare(drop.record, drop.dataflow)
    for number in range(4):
        drop.put(f"{number}", lines(1, start=number))
    with watched(drop) as woken:
        if waits:
            drop.put("next", lines(1), source="others")
            incoming = drop.place("incoming", "others")
            (incoming / "next").rename(incoming / "renamed")
            note(drop, woken)
        report = drop.scan()
    assert (report.accepted, report.ready) == (accepted, 2 if waits else 0)


def test_a_batch_ends_early_for_a_file_of_another_source(tmp_path: Path) -> None:
    """It ends behind the file that is read, once the pass has had its share; the rest stay claimed.

    The next pass goes on with them, in their order.
    """
    drop = Drop(
        tmp_path,
        SCHEMA,
        limits=IngestLimits(scan_seconds=20),
        sources=("orders", "others"),
        batch=FileBatch(),
    )

    def read(
        request: ReadRequest,
        stopping: Callable[[], bool] = never,
        hurried: Callable[[], bool] = never,
    ) -> ReadResult:
        def after_two_seconds() -> bool:
            drop.pass_seconds(2)
            return hurried()

        return read_files(request, stopping, after_two_seconds)

    drop.start(reader=read)
    drop.folder.prepare(drop.record, drop.dataflow)
    for number in range(9):
        drop.put(f"{number}", lines(1, start=number))
    with watched(drop) as woken:
        drop.put("next", lines(1), source="others")
        incoming = drop.place("incoming", "others")
        (incoming / "next").rename(incoming / "renamed")
        note(drop, woken)
        report = drop.scan()
        assert (report.accepted, report.ready) == (3 + 1, 6)
        assert len(drop.names("claimed")) == 6
        assert drop.scan().accepted == 6
    assert [row["id"] for row in drop.rows()] == list(range(9))
    assert len(drop.increments()) == 2


@pytest.mark.parametrize("rests", [False, True])
def test_a_long_listing_lets_a_file_of_another_source_pass(tmp_path: Path, rests: bool) -> None:
    """It does not wait for the end of the listing, unless its source rests after a failure."""
    drop = Drop(tmp_path, SCHEMA, sources=("orders", "others"))
    read = list[str]()

    def reader(
        request: ReadRequest,
        stopping: Callable[[], bool] = never,
        hurried: Callable[[], bool] = never,
    ) -> ReadResult:
        read.append(request.source.name)
        return read_files(request, stopping, hurried)

    drop.start(reader=reader)
    drop.folder.prepare(drop.record, drop.dataflow)
    for number in range(LOOKED_AT_TOGETHER):
        drop.put(f"{number}.part", b"")
    drop.put("one", lines(1))
    with watched(drop) as woken:
        drop.put("next", lines(1), source="others")
        incoming = drop.place("incoming", "others")
        (incoming / "next").rename(incoming / "renamed")
        note(drop, woken)
        for _ in range(3 if rests else 0):  # it is tried again at once at first
            drop.folder.troubles.failed(incoming.parent, "others", OSError(5, "failed"))
        report = drop.scan()
    assert read == (["orders"] if rests else ["others", "orders"])
    assert (report.accepted, len(report.failures)) == (len(read), int(rests))


def test_a_name_that_is_no_text_is_a_name(drop: Drop) -> None:
    """Its bytes are its name: it is seen, taken in, and ends no watch."""
    with watched(drop) as woken:
        rename_in(drop, "odd", lines(2))
        name = b"\xff\xfe\r\x80.jsonl"
        os.rename(os.fsencode(drop.incoming / "odd"), os.fsencode(drop.incoming) + b"/" + name)
        note(drop, woken)
        assert drop.scan().accepted == 1
        rename_in(drop, "b.jsonl", lines(1, start=2))
        note(drop, woken)
        assert drop.scan().accepted == 1
    (first, _) = drop.store.claim_rows.values()
    assert first.path == "\\xff\\xfe\r\\x80.jsonl"


def test_a_watch_that_failed_is_shown_until_it_works_again(
    drop: Drop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the source, with the reason; files are still found."""

    class NoHandles:
        def __init__(self) -> None:
            raise OSError(errno.EMFILE, "too many handles")

    def warning() -> str:
        (shown,) = drop.folder.look(drop.record, drop.dataflow)
        return str(shown["warning"])

    with monkeypatch.context() as patch:
        patch.setattr("inotify_simple.INotify", NoHandles)
        with pytest.raises(OSError, match="too many handles"):
            drop.folder.watch(threading.Event(), lambda _: None)
    assert "is not watched" in warning()
    assert "too many handles" in warning()
    with watched(drop):
        assert warning() == ""


def test_a_rename_within_the_folder_counts_too(drop: Drop) -> None:
    """A producer writes `a.part` and renames it."""
    drop.put("a.part", lines(2))
    with watched(drop) as woken:
        os.rename(drop.incoming / "a.part", drop.incoming / "a.jsonl")
        note(drop, woken)
        assert drop.scan().accepted == 1


def test_without_a_watch_a_renamed_file_waits(drop: Drop) -> None:
    """No event, no haste: as on a network file system."""
    rename_in(drop, "a.jsonl", lines(2))
    assert (drop.scan().accepted, drop.scan().waiting) == (0, 1)
    drop.pass_seconds(60)
    assert drop.scan().accepted == 1


def test_a_file_that_is_written_to_after_its_rename_waits(drop: Drop) -> None:
    """It is not any more what was renamed in."""
    with watched(drop) as woken:
        rename_in(drop, "a.jsonl", lines(2))
        note(drop, woken)
        with (drop.incoming / "a.jsonl").open("ab") as file:
            file.write(lines(1, start=2))
        assert drop.scan().waiting == 1
        drop.pass_seconds(60)
        assert drop.scan().accepted == 1
    assert [row["id"] for row in drop.rows()] == [0, 1, 2]


def test_a_file_that_is_made_anew_under_the_name_of_a_renamed_one_waits(drop: Drop) -> None:
    """The rename speaks for the file, not for its name."""
    with watched(drop) as woken:
        rename_in(drop, "a.jsonl", lines(2))
        note(drop, woken)
        (drop.incoming / "a.jsonl").unlink()
        drop.put("a.jsonl", lines(1, start=5))
        assert (drop.scan().accepted, drop.scan().waiting) == (0, 1)


def test_a_folder_that_is_made_anew_is_watched_again(drop: Drop) -> None:
    """A listing makes sure; what is renamed in behind it is taken at once."""
    with watched(drop) as woken:
        shutil.rmtree(drop.incoming)
        drop.scan()
        assert drop.incoming.is_dir()
        drop.scan()
        rename_in(drop, "a.jsonl", lines(2))
        note(drop, woken)
        assert drop.scan().accepted == 1


def test_a_change_wakes_the_dataflow_of_its_folder(drop: Drop) -> None:
    """A new file, the end of its writing, and an upload, each by the name of the dataflow."""
    with watched(drop) as woken:
        drop.put("a.jsonl", lines(1))
        assert woken.get(timeout=120) == {drop.dataflow.name}
        note(drop, woken)
        while not woken.empty():
            woken.get()
        with (drop.root / "sent").open("w+b") as stream:
            stream.write(lines(1, start=7))
            stream.seek(0)
            uploaded = drop.folder.upload(drop.source(), "b", stream)
        assert uploaded.claim.status == "claimed"
        last = woken.get(timeout=120)
        while not woken.empty():
            last = woken.get()
        assert last == {drop.dataflow.name}
        assert drop.scan().accepted == 1


def test_renames_are_forgotten_when_their_files_are_gone(drop: Drop) -> None:
    """The memory is that of the folder: what was taken or removed leaves nothing behind."""
    with watched(drop) as woken:
        for number in range(20):
            rename_in(drop, f"{number}.jsonl", lines(1, start=number))
        rename_in(drop, "gone.jsonl", lines(1))
        note(drop, woken)
        (drop.incoming / "gone.jsonl").unlink()
        (drop.incoming / ".marker").unlink()
        assert drop.scan().accepted == 20
        assert not drop.folder._watch.renamed_in(drop.incoming)


def test_the_report_says_when_the_first_file_has_settled(drop: Drop) -> None:
    """It is one settle time after the file was first seen, in every listing."""
    seen = drop.now
    drop.put("a.jsonl", lines(1))
    reports = [drop.scan()]
    drop.pass_seconds(25)
    drop.put("b.jsonl", lines(1))
    reports.append(drop.scan())
    settles = [report.settles_at for report in reports]
    assert settles[0] == settles[1]
    assert settles[0] is not None
    assert (settles[0] - seen).total_seconds() == 60
    drop.pass_seconds(35)
    last = drop.scan()
    assert (last.accepted, last.waiting) == (1, 1)
    drop.pass_seconds(25)
    assert drop.scan().settles_at is None


def test_a_device_that_hangs_delays_no_other_folder(
    drop: Drop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look at a renamed file does not return; listings ask and new folders are watched."""
    hanging, asked = threading.Event(), threading.Event()
    with watched(drop):

        def look(path: Path, name: str) -> None:
            asked.set()
            hanging.wait(60)

        monkeypatch.setattr("controller.ingest.folder.incoming_watch.look_at", look)
        rename_in(drop, "a.jsonl", lines(1))
        try:
            assert asked.wait(120)
            other = threading.Thread(target=use, args=(drop.folder._watch, tmp_path))
            other.start()
            other.join(120)
            assert not other.is_alive()
        finally:
            hanging.set()


def use(watch: IncomingWatch, folder: Path) -> None:
    """Do all that a listing does with a watch."""
    watch.follow(folder, "other")
    watch.forget(folder, watch.renamed_in(folder))


def test_a_listing_says_whether_events_tell_of_files(drop: Drop, tmp_path: Path) -> None:
    """Without a watch, and once its folder was moved away, files are found by listings only."""
    if not has_every_event(tmp_path):
        pytest.skip("the file system of the test's folder has other writers")
    assert drop.scan().polled
    with watched(drop) as woken:
        assert not drop.scan().polled
        while not woken.empty():
            woken.get()
        drop.incoming.rename(drop.incoming.with_name("away"))
        assert woken.get(timeout=120) == {drop.dataflow.name}
        assert not drop.folder._watch.sees(drop.incoming)
        assert not drop.scan().polled, "made anew, and watched again"
    assert drop.scan().polled


MOUNTS = r"""
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:21 / /srv/a\040disk rw shared:2 - nfs4 host:/a rw
24 23 8:2 / /srv/a\040disk/inside rw - xfs /dev/sdb1 rw
25 22 0:44 / /srv/host rw - fuse.grpcfuse grpcfuse rw
26 22 8:3 / /srv/covered rw - xfs /dev/sdc1 rw
27 22 0:45 / /srv/covered rw - cifs //host/share rw
""".strip()


@pytest.mark.parametrize(
    ("folder", "reported"),
    [
        ("/srv/b", True),
        ("/srv/a disk", False),
        ("/srv/a disk/drop/incoming", False),
        ("/srv/a disk/inside/drop", True),
        ("/srv/a diskette", True),
        ("/srv/host/drop", False),
        ("/srv/covered/drop", False),
    ],
)
def test_only_the_machine_s_own_file_systems_tell_of_every_file(
    tmp_path: Path, folder: str, reported: bool
) -> None:
    """On another one, somebody else may put files in; what cannot be found out is one of these."""
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    assert has_every_event(Path(folder), mounts) == reported
    assert not has_every_event(Path(folder), tmp_path / "none")
