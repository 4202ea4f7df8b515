"""A manifest announces a set of files: taken together, in its order, with its sums."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from cbp.engine.storage.failpoints import Crash, PlannedFaults
from controller.ingest import IngestLimits
from tests.controller.ingest.harness import Drop, lines

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


@pytest.mark.parametrize(
    "point", ["claim.before", "claim.after", "rename.after", "source_log.after"]
)
@pytest.mark.parametrize("passage", [1, 2])
def test_crash_in_the_middle_keeps_order_and_promises(point: str, passage: int, drop: Drop):
    """A sealed manifest outlives the crash: the rest is taken without settling."""
    if point.startswith(("claim.", "source_log.")):  # which a group passes once
        drop.limit(IngestLimits(group_files=1))
    for name, data in FILES.items():
        drop.put(name, data)
    drop.put("_MANIFEST.json", manifest(**FILES))
    drop.start(PlannedFaults(point, passage=passage))
    with pytest.raises(Crash):
        drop.scan()
    drop.start()
    drop.recover()
    drop.scan()
    assert [row["id"] for row in drop.rows()] == [0, 1]
    assert list(drop.incoming.iterdir()) == []
