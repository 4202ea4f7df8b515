"""A nested source takes in the files in folders below its drop folder, under their paths."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from controller.ingest.folder import eligible_files
from tests.controller.ingest.folder.test_incoming_watch import note, watched
from tests.controller.ingest.harness import Drop, lines
from tests.planned_faults import Crash, PlannedFaults

SCHEMA = "id BIGINT NOT NULL, name STRING"


@pytest.fixture
def drop(tmp_path: Path) -> Drop:
    return Drop(tmp_path, SCHEMA, nested=True)


def put_below(drop: Drop, path: str, data: bytes) -> None:
    (drop.incoming / path).parent.mkdir(parents=True, exist_ok=True)
    drop.put(path, data)


def paths(drop: Drop) -> list[str]:
    return sorted(claim.path for claim in drop.store.claim_rows.values())


def test_files_in_folders_are_taken_in_under_their_paths(drop: Drop) -> None:
    """Equal names in two folders are two files; the folders stay for their producers."""
    put_below(drop, "2026/11/27/day.jsonl", lines(2))
    put_below(drop, "2026/11/28/day.jsonl", lines(1, start=2))
    drop.put("day.jsonl", lines(1, start=3))
    (shown,) = drop.folder.look(drop.record, drop.dataflow)
    assert (shown["waiting"], shown["unclaimed"]) == (3, 0)
    assert drop.folder.arriving(drop.record, drop.dataflow) == {"orders": 3}
    assert drop.scan().accepted == 3
    assert sorted(row["id"] for row in drop.rows()) == [0, 1, 2, 3]
    assert paths(drop) == ["2026/11/27/day.jsonl", "2026/11/28/day.jsonl", "day.jsonl"]
    assert (drop.incoming / "2026/11/28").is_dir()
    assert drop.folder.arriving(drop.record, drop.dataflow) == {}


def test_a_file_is_known_by_its_path(drop: Drop) -> None:
    """A retry is not applied again; other content under the path goes to quarantine."""
    for data in (lines(2), lines(2), lines(3)):
        put_below(drop, "a/day.jsonl", data)
        drop.scan()
    assert [row["id"] for row in drop.rows()] == [0, 1]
    assert [one["code"] for one in drop.reasons()] == ["same_name"]


def test_a_source_that_does_not_say_so_leaves_folders_alone(tmp_path: Path) -> None:
    """The default stays: the folder is shown, with what to say in the source."""
    drop = Drop(tmp_path, SCHEMA)
    put_below(drop, "a/day.jsonl", lines(1))
    assert drop.scan().accepted == 0
    (shown,) = drop.folder.look(drop.record, drop.dataflow)
    (one,) = shown["oldest_unclaimed"]
    assert one["name"] == "a"
    assert "`nested: true`" in one["why"]


def test_marks_links_and_unfinished_folders_are_left_out(drop: Drop, tmp_path: Path) -> None:
    """What jobs write beside their data is shown; nothing outside of the folder is reached."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.jsonl").write_bytes(lines(1))
    left = ("job/_SUCCESS", "job/_MANIFEST.json", "job/_CLOSE", "job/.x.jsonl", "job/a.part")
    for path in left:
        put_below(drop, path, lines(1))
    for path in ("_temporary/0/a.jsonl", ".git/a.jsonl", "day.tmp/a.jsonl"):
        put_below(drop, path, lines(1))
    (drop.incoming / "job/link.jsonl").symlink_to(outside / "secret.jsonl")
    (drop.incoming / "linked").symlink_to(outside)
    put_below(drop, "job/a.jsonl", lines(1))
    assert drop.scan().accepted == 1
    assert paths(drop) == ["job/a.jsonl"]
    (shown,) = drop.folder.look(drop.record, drop.dataflow)
    names = {one["name"] for one in shown["oldest_unclaimed"]}
    assert names == {*left, "job/link.jsonl", "linked", "_temporary", ".git", "day.tmp"}


def test_a_folder_that_becomes_a_link_is_not_followed(
    drop: Drop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Race: (1) it is listed as a folder (2) somebody puts a link in its place (3) it is opened."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.jsonl").write_bytes(lines(1))
    put_below(drop, "a/b/c.jsonl", lines(1))
    opened = eligible_files._opened_below

    def replaced(root: Path, name: str) -> object:
        if name == "a/b":
            shutil.rmtree(root / "a")
            (tmp_path / "outside/b").mkdir()
            os.rename(outside / "secret.jsonl", outside / "b/secret.jsonl")
            (root / "a").symlink_to(outside)
        return opened(root, name)

    monkeypatch.setattr(eligible_files, "_opened_below", replaced)
    assert drop.scan().accepted == 0
    assert (outside / "b/secret.jsonl").is_file()


def test_the_depth_and_the_length_of_paths_are_bounded(drop: Drop) -> None:
    """What is deeper or longer is shown, and stops nothing beside it."""
    deep = "/".join("d" for _ in range(eligible_files.DEPTH_MAX + 1))
    put_below(drop, f"{deep}/a.jsonl", lines(1))
    long = "/".join("x" * 200 for _ in range(5))
    put_below(drop, f"{long}/{'y' * 200}.jsonl", lines(1))
    put_below(drop, "ok/a.jsonl", lines(1))
    assert drop.scan().accepted == 1
    (shown,) = drop.folder.look(drop.record, drop.dataflow)
    assert {one["why"].partition(":")[0] for one in shown["oldest_unclaimed"]} == {
        f"a folder nested in {eligible_files.DEPTH_MAX} others",
        "its path below `incoming` is longer than 1024 bytes; use shorter names",
    }


def test_a_refused_file_is_readmitted_under_its_path(drop: Drop) -> None:
    """It is in quarantine under a name of the service's."""
    put_below(drop, "a/day.jsonl", b"broken\n")
    assert drop.scan().quarantined == 1
    (reason,) = drop.reasons()
    assert reason["file"] == "a/day.jsonl"
    assert all("/" not in name for name in drop.names("quarantine"))


@pytest.mark.parametrize("point", ["claim", "rename", "increment_file", "source_log"])
@pytest.mark.parametrize("side", ["before", "after"])
def test_a_crash_anywhere_gives_each_file_once(tmp_path: Path, point: str, side: str) -> None:
    """A restart alone, without and with the database."""
    drop = Drop(tmp_path, SCHEMA, nested=True)
    put_below(drop, "a/day.jsonl", lines(1))
    put_below(drop, "b/day.jsonl", lines(1, start=1))
    faults = PlannedFaults(f"{point}.{side}")
    drop.start(faults)
    with pytest.raises(Crash):
        drop.scan()
    drop.start()
    drop.recover()
    drop.scan()
    drop.scan()
    assert sorted(row["id"] for row in drop.rows()) == [0, 1]
    assert paths(drop) == ["a/day.jsonl", "b/day.jsonl"]


@pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
def test_a_file_that_is_renamed_into_a_folder_is_taken_at_once(tmp_path: Path) -> None:
    """A folder is watched from its first listing on, also once it was moved; a gone one no more."""
    drop = Drop(tmp_path, SCHEMA, nested=True, settle_seconds=60)

    def rename_in(path: str, start: int) -> None:
        staged = drop.root / "staged"
        staged.write_bytes(lines(1, start=start))
        staged.rename(drop.incoming / path)

    with watched(drop) as woken:
        (drop.incoming / "a/b").mkdir(parents=True)
        note(drop, woken)
        drop.scan()
        watch = drop.folder._watch
        rename_in("a/b/1.jsonl", 1)
        note(drop, woken)
        assert drop.scan().accepted == 1
        (drop.incoming / "a").rename(drop.incoming / "c")
        note(drop, woken)
        drop.scan()
        rename_in("c/b/2.jsonl", 2)
        note(drop, woken)
        assert drop.scan().accepted == 1
        assert watch._below[drop.incoming] == {drop.incoming / "c", drop.incoming / "c/b"}
        assert set(watch._folders.values()) >= watch._below[drop.incoming]
        shutil.rmtree(drop.incoming / "c")
        note(drop, woken)
        drop.scan()
        assert watch._below[drop.incoming] == set()
        assert set(watch._dataflows) == {drop.incoming}
    assert [row["id"] for row in drop.rows()] == [1, 2]
