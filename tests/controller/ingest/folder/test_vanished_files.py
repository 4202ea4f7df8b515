"""A file that was removed after it was claimed is shown until it comes again or for a day."""

from __future__ import annotations

from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import structlog

from controller.ingest.folder.folder_report import GONE_SHOWN_MAX, GONE_SHOWN_SECONDS
from tests.controller.ingest.harness import Drop, lines

SCHEMA = "id BIGINT, name STRING"


def lose(tmp_path: Path, *names: str) -> Drop:
    """Upload files, and remove them out of `claimed` before they are read."""
    drop = Drop(tmp_path, SCHEMA)
    for name in names:
        claimed = drop.folder.upload(drop.source(), name, BytesIO(name.encode()))
        assert claimed.claim.status == "claimed"
    for path in drop.place("claimed").iterdir():
        path.unlink()
    return drop


def gone(drop: Drop) -> list[dict[str, Any]]:
    (reported,) = drop.folder.look(drop.record, drop.dataflow)
    return list(reported["gone"])


def test_an_acknowledged_file_that_is_removed_is_reported_everywhere(tmp_path: Path) -> None:
    """In its claim, its source's view with what to do, `ready`, and the log, once."""
    drop = lose(tmp_path, "a")
    with structlog.testing.capture_logs() as logs:
        drop.scan()
        drop.scan()
    assert [log["event"] for log in logs] == ["file.gone"]
    (claim,) = drop.store.claim_rows.values()
    assert claim.reason["code"] == "file_gone"
    assert claim.reason["lost"] is True
    assert [(one["name"], one["claim"], one["lost"]) for one in gone(drop)] == [
        ("a", claim.id, True)
    ]
    (reported,) = drop.folder.look(drop.record, drop.dataflow)
    assert "Drop again each file that had data" in reported["warning"]
    (why,) = drop.folder.troubled(drop.dataflow.name)
    assert why.startswith("source orders: 1 file was removed")
    assert drop.folder.troubled("another") == []


@pytest.mark.parametrize("restarted", [False, True])
def test_it_is_reported_until_it_comes_again(restarted: bool, tmp_path: Path) -> None:
    """Beyond a restart, and not again behind one once it was taken in."""
    drop = lose(tmp_path, "a", "b")
    drop.scan()
    if restarted:
        drop.start()
        drop.recover()
    assert sorted(one["name"] for one in gone(drop)) == ["a", "b"]
    drop.put("a", lines(1))
    assert drop.scan().accepted == 1
    if restarted:
        drop.start()
        drop.recover()
    assert [one["name"] for one in gone(drop)] == ["b"]
    drop.put("b", b"")
    drop.scan()
    assert gone(drop) == []
    assert drop.folder.troubled(drop.dataflow.name) == []


def test_it_is_reported_for_a_day(tmp_path: Path) -> None:
    """So `ready` does not name it for ever; its claim stays."""
    drop = lose(tmp_path, "a")
    drop.scan()
    drop.now += timedelta(seconds=GONE_SHOWN_SECONDS)
    assert len(gone(drop)) == 1
    drop.now += timedelta(seconds=1)
    assert gone(drop) == []
    assert drop.folder.troubled(drop.dataflow.name) == []


@pytest.mark.parametrize("restarted", [False, True])
def test_a_day_counts_from_when_it_was_missed(restarted: bool, tmp_path: Path) -> None:
    """A file that was claimed long before, in a service that stood still, is shown as well."""
    drop = lose(tmp_path, "a")
    drop.now += timedelta(seconds=10 * GONE_SHOWN_SECONDS)
    drop.scan()
    if restarted:
        drop.start()
        drop.recover()
    drop.now += timedelta(seconds=GONE_SHOWN_SECONDS)
    assert [one["name"] for one in gone(drop)] == ["a"]
    (why,) = drop.folder.troubled(drop.dataflow.name)
    assert "acknowledged" in why
    drop.now += timedelta(seconds=1)
    assert gone(drop) == []


def test_of_many_the_newest_are_reported(tmp_path: Path) -> None:
    """A folder that somebody empties costs no memory, and says that there are more."""
    names = [f"{number:04d}" for number in range(GONE_SHOWN_MAX + 5)]
    drop = lose(tmp_path, *names)
    drop.scan()
    assert [one["name"] for one in gone(drop)] == names[: -GONE_SHOWN_MAX - 1 : -1]
    (why,) = drop.folder.troubled(drop.dataflow.name)
    assert f"{GONE_SHOWN_MAX} files or more" in why
    assert len(why) < 500


def test_a_dataflow_that_was_made_again_has_lost_no_file(tmp_path: Path) -> None:
    """What is remembered of a deleted dataflow is not shown for another one of its name."""
    drop = lose(tmp_path, "a")
    drop.scan()
    drop.make_again()
    assert gone(drop) == []
    assert drop.folder.troubled(drop.dataflow.name) == []
