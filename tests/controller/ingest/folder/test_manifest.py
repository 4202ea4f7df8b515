"""A manifest announces a set of files: taken together, in its order, with its sums."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from cbp.engine.storage.files import LocalFiles
from controller.ingest.limits import IngestLimits
from controller.ingest.source_log import SourceLog
from tests.controller.ingest.harness import DictStore, Drop, lines
from tests.planned_faults import Crash, PlannedFaults

SCHEMA = "id BIGINT, name STRING"


def manifest(**files: bytes) -> bytes:
    listed: list[dict[str, Any]] = [
        {"name": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in files.items()
    ]
    return json.dumps({"files": listed}).encode()


@pytest.fixture
def drop(tmp_path: Path) -> Drop:
    return Drop(tmp_path, SCHEMA, settle_seconds=60)


FILES = {"z": lines(1, 0), "a": lines(1, 1)}


def test_complete_manifest_needs_no_settle_time_and_gives_the_order(drop: Drop):
    """All files with their sizes are taken at once, in the manifest's order."""
    for name, data in FILES.items():
        drop.put(name, data)
    drop.put("_MANIFEST.json", manifest(**FILES))
    assert drop.scan().accepted == 2
    assert [row["id"] for row in drop.rows()] == [0, 1]
    assert drop.names("incoming") == []
    assert any(name.endswith("_MANIFEST.json") for name in drop.names("finished"))


def test_files_of_an_incomplete_manifest_wait_for_the_others(drop: Drop):
    """Even a settled file is held back until the set is complete."""
    drop.put("z", FILES["z"])
    drop.put("_MANIFEST.json", manifest(**FILES))
    drop.scan()
    drop.pass_seconds(120)
    assert drop.scan().accepted == 0
    drop.put("a", FILES["a"][:5])
    assert drop.scan().accepted == 0
    drop.put("a", FILES["a"])
    assert drop.scan().accepted == 2


def test_content_that_breaks_the_promise_is_quarantined(drop: Drop):
    """A file of the right size and the wrong SHA-256 is not the announced one."""
    drop.put("z", FILES["a"])
    drop.put("_MANIFEST.json", manifest(z=FILES["z"]))
    assert drop.scan().quarantined == 1
    assert drop.reasons()[0]["code"] == "manifest_mismatch"


@pytest.mark.parametrize(
    "data",
    [
        *(b"{", b"[]", b'{"files": []}', b'{"files": [{"name": "../x", "bytes": 1}]}'),
        b'{"files": [{"name": "a", "bytes": -1}]}',
        b'{"files": [{"name": "a", "bytes": 1, "sha256": "zz"}]}',
        b'{"files": [{"name": "a", "bytes": 1}, {"name": "a", "bytes": 1}]}',
    ],
)
def test_wrong_manifest_is_quarantined_once_it_is_still(data: bytes, drop: Drop):
    """It is never read as data, and files do not wait for it."""
    drop.put("_MANIFEST.json", data)
    drop.put("z", FILES["z"])
    drop.scan()
    drop.pass_seconds(60)
    report = drop.scan()
    assert (report.accepted, report.quarantined) == (1, 1)
    assert drop.reasons()[0]["code"] == "manifest_mismatch"


def increments(drop: Drop) -> list[list[str]]:
    """Return the names of the files of each increment."""
    log = SourceLog(drop.record.folder, "orders", LocalFiles())
    return [[file.path for file in entry.files] for entry in log.since(0)]


THREE = {"z": lines(1, 0), "a": lines(1, 1), "m": lines(1, 2)}
BAD = THREE | {"a": b'{"id": "no"}\n'}


def put_all(drop: Drop, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        drop.put(name, data)
    drop.put("_MANIFEST.json", manifest(**files))


@pytest.mark.parametrize("row_group_bytes", [1, 64 << 20])
def test_the_files_of_a_manifest_are_one_increment(tmp_path: Path, row_group_bytes: int):
    """Whatever the source says of batches, and however large a file is; others stay apart."""
    limits = IngestLimits(row_group_bytes=row_group_bytes, group_files=2)
    drop = Drop(tmp_path, SCHEMA, limits=limits)
    drop.put("b", lines(1, 3))
    put_all(drop, THREE)
    drop.put("c", lines(1, 4))
    assert drop.scan().accepted == 5
    assert increments(drop) == [["z", "a", "m"], ["b"], ["c"]]
    assert [row["id"] for row in drop.rows()] == [0, 1, 2, 3, 4]


def test_one_bad_file_keeps_out_all_files_of_its_manifest(drop: Drop):
    """Each has a reason; once the file is mended, all of them come again as one increment."""
    put_all(drop, BAD)
    assert drop.scan().quarantined == 3
    codes = {reason["file"]: reason["code"] for reason in drop.reasons()}
    assert codes == {"z": "manifest_refused", "a": "value_type", "m": "manifest_refused"}
    messages = {reason["file"]: reason["message"] for reason in drop.reasons()}
    assert messages["a"] in messages["z"], "it names the file, the line and the mistake"
    assert increments(drop) == []
    assert not list(Path(drop.record.folder).rglob("*.parquet*"))
    put_all(drop, THREE)
    assert drop.scan().accepted == 3
    assert increments(drop) == [["z", "a", "m"]]


def test_a_file_that_breaks_a_promise_keeps_out_the_others(drop: Drop):
    """The digest is compared after reading, when the records of all files are written."""
    for name, data in THREE.items():
        drop.put(name, data)
    drop.put("_MANIFEST.json", manifest(**THREE | {"m": lines(1, 7)}))
    assert drop.scan().quarantined == 3
    assert sorted(reason["code"] for reason in drop.reasons()) == [
        "manifest_mismatch",
        "manifest_refused",
        "manifest_refused",
    ]
    assert not list(Path(drop.record.folder).rglob("*.parquet*"))


def test_a_manifest_that_comes_again_counts_nothing_twice(tmp_path: Path):
    """Known files are left out of the increment, which has the new ones only."""
    drop = Drop(tmp_path, SCHEMA)
    put_all(drop, THREE)
    drop.scan()
    put_all(drop, THREE)
    report = drop.scan()
    assert (report.accepted, report.duplicates) == (0, 3)
    put_all(drop, THREE | {"n": lines(1, 3)})
    report = drop.scan()
    assert (report.accepted, report.duplicates) == (1, 3)
    assert increments(drop) == [["z", "a", "m"], ["n"]]


def test_a_repetition_of_a_refused_file_is_not_lost(tmp_path: Path):
    """A file that equals another one of its manifest is refused with it, never settled as known."""
    drop = Drop(tmp_path, SCHEMA, duplicates="skip")
    put_all(drop, BAD | {"y": THREE["z"]})
    report = drop.scan()
    assert (report.duplicates, report.quarantined) == (0, 4)
    put_all(drop, THREE | {"y": THREE["z"]})
    report = drop.scan()
    assert (report.accepted, report.duplicates) == (3, 1)


@pytest.mark.parametrize("passage", [2, 3])
def test_a_file_that_is_taken_away_keeps_out_the_others(drop: Drop, passage: int):
    """Behind the seal a set that is not whole any more is never taken in as if it were."""
    put_all(drop, THREE)
    drop.start(PlannedFaults("rename.before", passage=passage))  # the first one seals the manifest
    with pytest.raises(Crash):
        drop.scan()
    (drop.incoming / "m").unlink()
    drop.start()
    drop.recover()
    drop.scan()
    assert increments(drop) == []
    refused = {reason["file"]: reason["code"] for reason in drop.reasons()}
    assert refused == {"z": "manifest_refused", "a": "manifest_refused"}
    assert not drop.names("claimed")
    assert not list(drop.incoming.iterdir())


def test_a_file_that_is_written_to_behind_the_seal_breaks_its_promise(drop: Drop):
    """Its size is no more the promised one; it is neither taken in nor left waiting for ever."""
    put_all(drop, THREE)
    drop.start(PlannedFaults("rename.after", passage=1))
    with pytest.raises(Crash):
        drop.scan()
    drop.put("m", lines(2, 2))
    drop.start()
    drop.recover()
    assert drop.scan().quarantined == 0
    drop.pass_seconds(60)
    assert drop.scan().quarantined == 3
    assert {r["file"]: r["code"] for r in drop.reasons()}["m"] == "manifest_mismatch"
    assert increments(drop) == []


POINTS = tuple(
    f"{effect}.{side}"
    for effect in ("claim", "rename", "data_sync", "increment_file", "source_log")
    for side in ("before", "after")
)


@pytest.mark.parametrize(
    ("files", "lost"),
    [(THREE, False), (THREE, True), (BAD, False)],
    ids=["sound", "lost-store", "bad"],
)
@pytest.mark.parametrize("point", POINTS)
def test_a_crash_anywhere_gives_none_or_all(
    tmp_path: Path, point: str, files: dict[str, bytes], lost: bool
):
    """Killed at each passage of the point in turn: one whole increment in the end, or none."""
    passage = 0
    while crashes(tmp_path / f"{passage}", point, passage + 1, files, lost=lost):
        passage += 1
    if files is THREE or point.startswith(("claim.", "rename.")):
        assert passage


def crashes(root: Path, point: str, passage: int, files: dict[str, bytes], *, lost: bool) -> bool:
    """Kill a scan, and check what the next start makes of it; return whether it was killed."""
    drop = Drop(root, SCHEMA, settle_seconds=60)
    put_all(drop, files)
    drop.start(PlannedFaults(point, passage=passage))
    try:
        drop.scan()
        crashed = False
    except Crash:
        crashed = True
    assert increments(drop) in ([], [["z", "a", "m"]])
    if lost:
        drop.store = DictStore()
    drop.start()
    drop.recover()
    drop.scan()
    assert increments(drop) == ([["z", "a", "m"]] if files is THREE else [])
    assert not drop.names("claimed")
    assert not list(drop.incoming.iterdir())
    assert len(drop.names("quarantine")) == (0 if files is THREE else 6)
    assert any(name.endswith("_MANIFEST.json") for name in drop.names("finished"))
    return crashed
