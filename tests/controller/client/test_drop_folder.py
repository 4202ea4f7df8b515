"""A copy into a drop folder: whole files only, none replaced, nothing left behind."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from cbp.errors import DiskFullError
from controller.client.drop_folder import copy_into
from controller.client.service_client import FileUnreadableError, FileWaitsError


@pytest.fixture
def incoming(tmp_path: Path) -> Path:
    folder = tmp_path / "incoming"
    folder.mkdir()
    return folder


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(b"x" * 3_000_000)
    return path


def test_a_file_waits_for_its_turn(incoming: Path, file: Path) -> None:
    """Until the one of its name is taken."""
    copy_into(incoming, file)
    file.write_bytes(b"other")
    asked = []

    def patience() -> bool:
        asked.append(1)
        if len(asked) == 2:
            (incoming / file.name).unlink()
        return True

    assert not copy_into(incoming, file, patience=patience).waited
    assert (incoming / file.name).read_bytes() == b"other"


def test_what_is_no_file_keeps_its_name(incoming: Path, file: Path) -> None:
    """A FIFO of the name is not opened for ever and is no empty file; a link is not followed."""
    file.write_bytes(b"")
    for make in (os.mkfifo, lambda path: path.symlink_to(file)):
        make(incoming / file.name)
        with pytest.raises(FileWaitsError):
            copy_into(incoming, file)
        (incoming / file.name).unlink()


def test_a_folder_of_the_name_costs_no_descriptor(incoming: Path, file: Path) -> None:
    """However often the wait looks at it."""
    (incoming / file.name).mkdir()
    before, looks = len(os.listdir("/proc/self/fd")), iter(range(100))
    with pytest.raises(FileWaitsError):
        copy_into(incoming, file, patience=lambda: next(looks, None) is not None)
    assert len(os.listdir("/proc/self/fd")) < before + 50  # other threads may open some


def test_until_it_is_whole_a_file_is_hidden(incoming: Path, file: Path) -> None:
    """While it is being copied nothing is there that a scan would take."""
    seen: set[str] = set()
    copy_into(incoming, file, lambda _: seen.update(path.name for path in incoming.iterdir()))
    assert seen
    assert all(name.startswith(".") and name.endswith(".part") for name in seen)


def test_a_full_disk_leaves_nothing_behind(
    incoming: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the folder; no part of the file stays."""

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DiskFullError):
        copy_into(incoming, file)
    assert list(incoming.iterdir()) == []


def test_a_file_that_vanishes_leaves_nothing_behind(incoming: Path, tmp_path: Path) -> None:
    """Between the look at it and the copy."""
    with pytest.raises(FileUnreadableError):
        copy_into(incoming, tmp_path / "gone")
    assert list(incoming.iterdir()) == []
