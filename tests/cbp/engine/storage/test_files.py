"""The port for durable files: one winner per name, whole files, coded errors.

Nothing is acknowledged before it is durable. One log entry has one writer, in one process or two.
After an unknown outcome of a put the entry is read.
"""

from __future__ import annotations

import errno
import multiprocessing
import os
import pickle
from collections.abc import Iterator
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from cbp.engine.storage.files import Exists, LocalFiles, Written, files_for, local_path
from cbp.errors import DiskFullError, FileSystemUnsafeError, NotFoundError, OperatingError
from tests import machine
from tests.planned_faults import PlannedFaults

RACES = 200


def _race(folder: str, name: str, barrier: Barrier, results: str) -> None:
    """Put every entry at the same moment as the other process; write down who won."""
    files, won = LocalFiles(), []
    for race in range(RACES):
        barrier.wait(timeout=60)
        outcome = files.put_if_absent(f"{folder}/{race:020d}.json", name.encode() * 1000)
        if isinstance(outcome, Written):
            won.append(race)
        else:
            assert len(set(outcome.data)) == 1
            assert len(outcome.data) == 1000
    Path(results).write_text("\n".join(map(str, won)))


def test_two_processes_never_both_write_an_entry(tmp_path: Path) -> None:
    """Two processes put one name at one moment, and exactly one gets `Written`."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(2)
    folder = str(tmp_path / "log")
    racers = [
        context.Process(target=_race, args=(folder, name, barrier, str(tmp_path / name)))
        for name in "ab"
    ]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(timeout=120)
        assert racer.exitcode == 0
    won = {name: set((tmp_path / name).read_text().split()) for name in "ab"}
    assert not won["a"] & won["b"]
    assert len(won["a"] | won["b"]) == RACES
    for race in range(RACES):
        winner = "a" if str(race) in won["a"] else "b"
        assert (tmp_path / "log" / f"{race:020d}.json").read_text() == winner * 1000
    assert len(os.listdir(folder)) == RACES


def test_a_second_put_gets_the_first_ones_bytes(tmp_path: Path) -> None:
    """`Exists` carries what is there, and nothing is replaced."""
    files, path = LocalFiles(), str(tmp_path / "new" / "folder" / "1.json")
    assert files.put_if_absent(path, b"first") == Written()
    assert files.put_if_absent(path, b"second") == Exists(b"first")
    assert files.read(path) == b"first"


def test_a_lost_answer_to_link_is_not_a_lost_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network file system may do the link and fail the call: that counts as written."""
    link = os.link

    def lossy(source: str, target: str) -> None:
        link(source, target)
        raise OSError(errno.EIO, "lost answer")

    monkeypatch.setattr(os, "link", lossy)
    assert LocalFiles().put_if_absent(str(tmp_path / "1.json"), b"x") == Written()


def test_a_durable_write_replaces_the_whole_file(tmp_path: Path) -> None:
    """The old content stays until the new one is complete."""
    files, path = LocalFiles(), str(tmp_path / "a" / "hint")
    files.write_durable(path, b"old")
    broken = LocalFiles(PlannedFaults("checkpoint.before", error=OSError(errno.EIO, "io")))
    with pytest.raises(OperatingError):
        broken.write_durable(path, b"new", what="checkpoint")
    assert files.read(path) == b"old"
    files.write_durable(path, b"new")
    assert files.read(path) == b"new"
    assert files.list_names(str(tmp_path / "a")) == os.listdir(tmp_path / "a") == ["hint"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_no_space_left_is_a_disk_full_error(tmp_path: Path, code: int) -> None:
    """Nothing is left behind, neither the file nor its temporary."""
    faults = PlannedFaults("log_entry.before", error=OSError(code, os.strerror(code)))
    with pytest.raises(DiskFullError):
        LocalFiles(faults).put_if_absent(str(tmp_path / "1.json"), b"x")
    assert os.listdir(tmp_path) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Give a file system of 64 kB, where the machine allows to mount one."""
    with machine.small_disk(tmp_path / "disk", "64k") as folder:
        yield folder


def test_a_full_disk_is_a_disk_full_error(small_disk: Path) -> None:
    """The same on a real file system that runs full, and it works again afterwards."""
    files = LocalFiles()
    for write in (files.put_if_absent, files.write_durable):
        with pytest.raises(DiskFullError):
            write(str(small_disk / "1.json"), b"x" * 200_000)
    assert os.listdir(small_disk) == []
    assert files.put_if_absent(str(small_disk / "1.json"), b"x") == Written()


def test_listing_is_sorted_and_hides_what_killed_writers_left(tmp_path: Path) -> None:
    """An absent folder lists as empty; temporaries are seen only by their collector."""
    files = LocalFiles()
    for name in ("b", "a", ".c.123.tmp"):
        (tmp_path / name).write_bytes(b"")
    assert files.list_names(str(tmp_path)) == ["a", "b"]
    assert files.list_names(str(tmp_path / "absent")) == []
    assert files.remove_temporaries(str(tmp_path)) == 1
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_reading_and_removing(tmp_path: Path) -> None:
    """Ranges, removal of what is gone already, and a coded error for reading it."""
    files, path = LocalFiles(), str(tmp_path / "x")
    files.write_durable(path, b"0123456789")
    assert files.read_range(path, 3, 4) == b"3456"
    assert files.read_range(path, 8, 10) == b"89"
    files.remove(path)
    files.remove(path)
    assert not files.exists(path)
    with pytest.raises(NotFoundError):
        files.read(path)


def test_uris_choose_the_file_system(tmp_path: Path) -> None:
    """Paths and file: URIs are local; what has no safe put is refused before any write."""
    target = tmp_path / "a b"
    files_for(target.as_uri()).write_durable(target.as_uri(), b"x")
    assert target.read_bytes() == b"x"
    assert local_path("file:/tmp/x") == local_path("file:///tmp/x") == "/tmp/x"
    for uri in ("s3://bucket/t", "s3a://bucket/t", "hdfs://host/t", "ftp://host/t"):
        with pytest.raises(FileSystemUnsafeError) as caught:
            files_for(uri)
        assert caught.value.details["scheme"] == uri.partition(":")[0]


def test_files_travel_to_executors(tmp_path: Path) -> None:
    """The port is plain data."""
    files = pickle.loads(pickle.dumps(files_for(str(tmp_path))))
    assert files.put_if_absent(str(tmp_path / "x"), b"x") == Written()
