"""The folders of a source may be replaced or removed while the service runs."""

from __future__ import annotations

import errno
import io
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from cbp.errors import DiskFullError
from controller.ingest.errors import DropFolderError, device_errors
from controller.ingest.folder.folder_check import FolderOwners
from controller.ingest.folder.source_place import SourcePlace, move_all
from tests.controller.ingest.harness import Drop, lines
from tests.planned_faults import PlannedFaults

SCHEMA = "id BIGINT, name STRING"
FOLDERS = ("incoming", "claimed", "quarantine", "finished")


def link_to_own(drop: Drop, folder: str) -> Path:
    """Replace a folder of the source by a link to a folder of someone else's files."""
    target = drop.root / "own"
    target.mkdir()
    (target / "mine").write_bytes(lines(1, start=7))
    place = drop.place(folder)
    shutil.rmtree(place)
    place.symlink_to(target)
    return target


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_link_in_place_of_a_folder_is_not_followed(folder: str, tmp_path: Path):
    """Each pass looks; the trouble is shown, and it ends once the folder is real again."""
    drop = Drop(tmp_path, SCHEMA)
    if folder != "incoming":
        drop.put("a", lines(1))
    target = link_to_own(drop, folder)
    report = drop.scan()
    assert [error.code for error in report.failures] == ["drop_folder_unusable"]
    assert report.accepted == report.quarantined == 0
    assert [path.name for path in target.iterdir()] == ["mine"]
    (words,) = drop.folder.troubled("shop")
    assert f"orders/{folder}: is a symbolic link; use a real folder" in words
    (shown,) = drop.folder.look(drop.record, drop.dataflow)
    assert "is a symbolic link" in shown["warning"]
    assert shown["waiting"] == 0
    drop.place(folder).unlink()
    drop.put("b", lines(1, start=1)) if folder != "incoming" else None
    assert drop.scan().accepted == (0 if folder == "incoming" else 2)
    assert drop.folder.troubled("shop") == []


@pytest.mark.parametrize("way", ["orders", "shop"])
def test_a_link_on_the_way_to_a_folder_is_not_followed(way: str, tmp_path: Path):
    """A source's folder, or its dataflow's, that leads to another's gets none of its files."""
    drop = Drop(tmp_path, SCHEMA, sources=("orders", "returns"))
    root = drop.place("incoming").parent
    if way == "orders":
        shutil.rmtree(root)
        root.symlink_to(drop.place("incoming", "returns").parent)
    else:
        root.parent.rename(tmp_path / "away")
        root.parent.symlink_to(tmp_path / "away")
    for number in range(20):
        drop.put(f"{number}", lines(1, start=number), "returns")
    report = drop.scan()
    assert {error.code for error in report.failures} == {"drop_folder_unusable"}
    assert drop.increments() == []
    assert len(drop.increments("returns")) == (20 if way == "orders" else 0)
    with pytest.raises(DropFolderError):
        drop.folder.upload(drop.source(), "a", io.BytesIO(lines(1)))
    shown = {one["name"]: one for one in drop.folder.look(drop.record, drop.dataflow)}
    assert "is a symbolic link" in shown["orders"]["warning"]


def test_a_disk_that_is_read_only_is_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """There, to remove what was never made fails, too; that must not hide the reason."""
    drop = Drop(tmp_path, SCHEMA)

    def refuses(path: object, *given: object, **more: object) -> object:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(Path, "unlink", refuses)
    monkeypatch.setattr("controller.ingest.uploads.open", refuses, raising=False)
    monkeypatch.setattr("controller.ingest.folder.folder_check.open", refuses, raising=False)
    with pytest.raises(DropFolderError, match="Read-only file system"):
        drop.folder.upload(drop.source(), "a", io.BytesIO(lines(1)))
    with pytest.raises(DropFolderError, match="Read-only file system"):
        drop.folder.prepare(drop.record, drop.dataflow)


def test_one_real_folder_belongs_to_one_source(tmp_path: Path):
    """Two paths lead to it, as by a second mount: the source that was first keeps it."""
    drop = Drop(tmp_path, SCHEMA)
    (tmp_path / "mounted").symlink_to(drop.root / "drop")  # above what is looked at
    first = SourcePlace.of(
        drop.record, drop.dataflow, drop.dataflow.sources["orders"], drop.root / "drop"
    )
    second = replace(first, root=tmp_path / "mounted" / "shop" / "orders")
    owners = FolderOwners()
    for _ in range(2):
        owners.require(first)
        with pytest.raises(DropFolderError, match=r"belongs to source shop\.orders"):
            owners.require(second)
    drop.incoming.parent.rename(tmp_path / "moved")
    owners.require(replace(first, root=tmp_path / "moved"))


def test_a_link_that_comes_in_the_middle_of_a_pass_is_not_followed(tmp_path: Path):
    """Race: (1) the pass lists `incoming` (2) `claimed` becomes a link (3) the next group is
    not claimed."""
    drop = Drop(tmp_path, SCHEMA)
    for number in range(70):  # two groups
        drop.put(f"{number:02d}", lines(1, start=number))
    targets: list[Path] = []

    def replace(point: str) -> None:
        if point == "source_log.after" and not targets:
            drop.place("claimed").rename(drop.root / "away")
            targets.append(drop.root / "own")
            targets[0].mkdir()
            drop.place("claimed").symlink_to(targets[0])

    drop.start(replace)
    report = drop.scan()
    assert [error.code for error in report.failures] == ["drop_folder_unusable"]
    assert report.accepted == 64
    assert list(targets[0].iterdir()) == []
    assert len(drop.names("incoming")) == 6


def test_nothing_is_removed_through_a_link(tmp_path: Path):
    """A cleaning removes old files of `finished` only there."""
    drop = Drop(tmp_path, SCHEMA)
    drop.put("a", lines(1))
    drop.scan()
    (name,) = drop.names("finished")
    target = link_to_own(drop, "finished")
    (target / name).write_bytes(lines(1))
    drop.pass_seconds(30 * 86_400)
    with pytest.raises(DropFolderError):
        drop.folder.clean(drop.record, drop.dataflow)
    assert (target / name).exists()


def test_nothing_is_uploaded_through_a_link(tmp_path: Path):
    """The part is not written into the folder of someone else."""
    drop = Drop(tmp_path, SCHEMA)
    target = link_to_own(drop, "incoming")
    with pytest.raises(DropFolderError) as refused:
        drop.folder.upload(drop.source(), "a", io.BytesIO(lines(1)))
    assert refused.value.details["path"] == str(drop.incoming)
    assert [path.name for path in target.iterdir()] == ["mine"]


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_missing_folder_is_made_again(folder: str, tmp_path: Path):
    """By the pass and by an upload; what waits is taken in."""
    drop = Drop(tmp_path, SCHEMA)
    drop.place(folder).rmdir()
    drop.folder.upload(drop.source(), "u", io.BytesIO(lines(1)))
    assert drop.place(folder).is_dir()
    if folder != "claimed":
        drop.place(folder).rmdir()
    assert drop.scan().accepted == 1
    drop.put("a", lines(1, start=1))
    shutil.rmtree(drop.place("claimed"))
    assert drop.scan().accepted == 1
    assert [row["id"] for row in drop.rows()] == [0, 1]
    assert drop.folder.troubled("shop") == []


def test_a_missing_folder_of_the_source_is_named_and_not_made(tmp_path: Path):
    """Its disk may not be mounted: what would be made there would be hidden later."""
    drop = Drop(tmp_path, SCHEMA)
    root = drop.place("incoming").parent
    root.rename(tmp_path / "away")
    for _ in range(2):
        (error,) = drop.scan().failures
        assert error.code == "drop_folder_unusable"
        assert error.details["path"] == str(root)
    assert not root.exists()
    with pytest.raises(DropFolderError) as refused:
        drop.folder.upload(drop.source(), "a", io.BytesIO(lines(1)))
    assert refused.value.details["path"] == str(root)
    (tmp_path / "away").rename(root)
    drop.pass_seconds(60)
    assert drop.scan().failures == ()


def test_a_target_that_is_missing_is_not_a_file_that_is_gone(tmp_path: Path):
    """Both are ENOENT; only the file's absence may be passed over."""
    drop = Drop(tmp_path, SCHEMA)
    drop.put("a", lines(1))
    here, gone = drop.incoming / "a", drop.incoming / "b"
    assert move_all([(gone, drop.place("finished") / "b")], drop.files, lambda _: None) == set()
    with pytest.raises(DropFolderError) as refused:
        move_all([(here, tmp_path / "nowhere" / "a")], drop.files, lambda _: None)
    assert refused.value.details["path"] == str(tmp_path / "nowhere")
    assert here.exists()


def test_a_file_in_place_of_a_folder_is_said_so(tmp_path: Path):
    """In the trouble and at the source."""
    drop = Drop(tmp_path, SCHEMA)
    drop.incoming.rmdir()
    drop.incoming.write_bytes(b"x")
    (error,) = drop.scan().failures
    assert (error.code, error.details["path"]) == ("drop_folder_unusable", str(drop.incoming))
    (shown,) = drop.folder.look(drop.record, drop.dataflow)
    assert shown["warning"] == error.message


@pytest.mark.parametrize("folder", FOLDERS)
def test_an_unusable_folder_is_the_trouble_of_its_source_alone(folder: str, tmp_path: Path):
    """A restart recovers the other sources; this one too, once it is mended."""
    drop = Drop(tmp_path, SCHEMA, sources=("orders", "returns"))
    link_to_own(drop, folder)
    drop.put("b", lines(1), "returns")
    drop.start()
    report = drop.recover()
    assert [error.code for error in report.failures] == ["drop_folder_unusable"]
    (words,) = drop.folder.troubled("shop")
    assert words.startswith("source orders: ")
    assert drop.scan().accepted == 1
    drop.place(folder).unlink()
    drop.put("a", lines(1)) if folder != "incoming" else None
    drop.scan()
    assert drop.folder.troubled("shop") == []
    assert drop.place(folder).is_dir()


def test_the_log_is_indexed_also_while_a_folder_cannot_be_used(tmp_path: Path):
    """A version's start position counts what was accepted, whatever befell the drop folder."""
    drop = Drop(tmp_path, SCHEMA)
    drop.put("a", lines(1))
    drop.start(PlannedFaults("source_log.after", error=OSError(errno.EIO, "Input/output error")))
    drop.scan()
    assert len(drop.increments()) == 1
    assert drop.store.next_index("shop", "orders") == 0
    link_to_own(drop, "quarantine")
    drop.start()
    assert drop.recover().accepted == 1
    assert drop.store.next_index("shop", "orders") == 1


def test_a_full_disk_is_not_a_lack_of_rights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The check writes a file: what fails then is said as it is."""
    drop = Drop(tmp_path, SCHEMA)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(DiskFullError):
            drop.folder.prepare(drop.record, drop.dataflow)
    assert drop.names("incoming") == drop.names("claimed") == []


def test_a_folder_that_may_not_be_read_says_whom_to_allow_it() -> None:
    """The words of the operating system alone do not say which user, and which rights."""
    with pytest.raises(DropFolderError) as caught, device_errors("/drop"):
        raise PermissionError(errno.EACCES, "Permission denied", "/drop/incoming")
    assert caught.value.details["path"] == "/drop/incoming"
    assert "user that runs the service" in caught.value.message
