"""Uploads: durable and claimed when acknowledged, nothing kept otherwise."""

from __future__ import annotations

import errno
import io
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cbp.errors import NotFoundError
from controller.ingest.errors import DropFolderError, UploadTooLargeError
from controller.ingest.limits import IngestLimits
from controller.store.base import ClaimRecord
from tests.controller.ingest.harness import Drop, lines
from tests.planned_faults import Crash, PlannedFaults

SCHEMA = "id BIGINT, name STRING"


def upload(
    drop: Drop, data: bytes, name: str = "../up.jsonl", source: str = "orders"
) -> ClaimRecord:
    return drop.folder.upload(drop.source(source), name, io.BytesIO(data)).claim


def test_upload_is_claimed_at_once_and_taken_by_the_next_scan(tmp_path: Path):
    """The acknowledgement names the claim; no settle time is needed."""
    drop = Drop(tmp_path, SCHEMA, settle_seconds=60)
    claim = upload(drop, lines(3))
    assert (claim.status, claim.path) == ("claimed", "../up.jsonl")
    assert drop.names("claimed") == [f"{claim.id}-..%2Fup.jsonl"]
    assert drop.scan().accepted == 1
    assert drop.store.claim_rows[claim.id].status == "accepted"
    assert len(drop.rows()) == 3


def test_upload_is_not_seen_while_it_is_received(tmp_path: Path):
    """A listing in the middle of an upload finds nothing to take."""
    drop = Drop(tmp_path, SCHEMA)

    class Slow(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            assert drop.scan().accepted == drop.scan().quarantined == 0
            return super().read(size)

    drop.folder.upload(drop.source(), "a", Slow(lines(3)))
    assert drop.scan().accepted == 1


def test_upload_beyond_the_limit_leaves_nothing(tmp_path: Path):
    """The stream is cut off at the limit."""
    drop = Drop(tmp_path, SCHEMA, limits=IngestLimits(file_bytes_max=10))
    with pytest.raises(UploadTooLargeError):
        upload(drop, lines(3))
    assert drop.names("incoming") == drop.names("claimed") == []
    assert not drop.store.claim_rows


def test_upload_to_an_unknown_source_is_not_found(tmp_path: Path):
    """The client's names never become paths."""
    drop = Drop(tmp_path, SCHEMA)
    with pytest.raises(NotFoundError):
        upload(drop, lines(1), source="../other")


@pytest.mark.parametrize(
    ("point", "count"),
    [("claim.before", 0), ("claim.after", 1), ("rename.before", 1), ("rename.after", 1)],
)
def test_crash_in_an_upload_leaves_all_or_nothing(point: str, count: int, tmp_path: Path):
    """Once the claim is recorded the upload is taken; before, its part is removed."""
    drop = Drop(tmp_path, SCHEMA, settle_seconds=60)
    drop.start(PlannedFaults(point))
    with pytest.raises(Crash):
        upload(drop, lines(2))
    drop.start()
    drop.recover()
    drop.scan()
    assert len(drop.increments()) == count
    assert drop.names("incoming") == drop.names("claimed") == []
    assert all(c.status == "accepted" for c in drop.store.claim_rows.values())


def test_a_comparison_on_a_disk_that_is_read_only_has_a_coded_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The part cannot be removed either, and that error does not take the place of the first."""
    drop = Drop(tmp_path, SCHEMA)
    drop.put("a", lines(1))
    assert drop.scan().accepted == 1

    def fails(*_: Any, **__: Any) -> Any:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    stream: Any = SimpleNamespace(read=fails)
    monkeypatch.setattr(Path, "unlink", fails)
    with pytest.raises(DropFolderError):
        drop.folder.replacements.compare(drop.source(), "a", stream)
