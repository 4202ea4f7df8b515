"""The disk that loses its power: only what was synced is sure to be there."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.simulation.disk import Disk

LOSSES = 40


def after(tmp_path: Path, work: Callable[[Disk, Path], None]) -> list[dict[str, bytes]]:
    """Do some work and lose the power, many times; return what each time survives."""
    actual = []
    for number in range(LOSSES):
        root, shadow = tmp_path / f"{number}" / "disk", tmp_path / f"{number}" / "shadow"
        root.mkdir(parents=True)
        shadow.mkdir()
        disk = Disk(root, shadow)
        disk.sync_all()
        work(disk, root)
        disk.lose(random.Random(number))
        paths = [path for path in root.rglob("*") if path.is_file()]
        actual.append({str(path.relative_to(root)): path.read_bytes() for path in paths})
    return actual


def sync(disk: Disk, path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    disk.fsync(handle)
    os.close(handle)


def test_what_is_synced_survives(tmp_path: Path) -> None:
    """Content and name synced: always there, always whole."""

    def work(disk: Disk, root: Path) -> None:
        (root / "a").write_bytes(b"whole")
        sync(disk, root / "a")
        sync(disk, root)

    assert after(tmp_path, work) == [{"a": b"whole"}] * LOSSES


def test_a_name_that_is_not_synced_may_go(tmp_path: Path) -> None:
    """Synced content without a synced name is there at times, and then whole."""

    def work(disk: Disk, root: Path) -> None:
        (root / "a").write_bytes(b"whole")
        sync(disk, root / "a")

    actual = after(tmp_path, work)
    assert {} in actual
    assert {"a": b"whole"} in actual
    assert all(one in ({}, {"a": b"whole"}) for one in actual)


def test_content_that_is_not_synced_is_cut(tmp_path: Path) -> None:
    """A synced name without synced content holds a prefix of it."""

    def work(disk: Disk, root: Path) -> None:
        (root / "a").write_bytes(b"whole")
        sync(disk, root)

    actual = after(tmp_path, work)
    assert all(b"whole".startswith(one["a"]) for one in actual)
    assert len({one["a"] for one in actual}) > 2


@pytest.mark.parametrize("synced", [False, True])
def test_a_rename_is_at_one_end_at_least(tmp_path: Path, synced: bool) -> None:
    """A file that was durable is not lost by moving it; synced, it is at its target."""

    def work(disk: Disk, root: Path) -> None:
        for name in ("from", "to"):
            (root / name).mkdir()
        (root / "from" / "a").write_bytes(b"whole")
        disk.sync_all()
        (root / "from" / "a").rename(root / "to" / "b")
        if synced:
            sync(disk, root / "to")
            sync(disk, root / "from")

    actual = after(tmp_path, work)
    assert all(one and set(one.values()) == {b"whole"} for one in actual)
    assert synced == all(one == {"to/b": b"whole"} for one in actual)


def test_what_was_removed_may_come_back(tmp_path: Path) -> None:
    """A removal is durable with its folder only."""

    def work(disk: Disk, root: Path) -> None:
        (root / "a").write_bytes(b"whole")
        disk.sync_all()
        (root / "a").unlink()

    actual = after(tmp_path, work)
    assert {} in actual
    assert {"a": b"whole"} in actual


def test_a_new_folder_goes_with_all_that_is_in_it(tmp_path: Path) -> None:
    """Its name is in the folder around it, which was not synced."""

    def work(disk: Disk, root: Path) -> None:
        (root / "new").mkdir()
        (root / "new" / "a").write_bytes(b"whole")
        sync(disk, root / "new" / "a")
        sync(disk, root / "new")

    assert {} in after(tmp_path, work)
