"""Finished files go when they are old enough, or too many; open claims keep theirs."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cbp.model.flow.retention import FlowRetention
from tests.controller.ingest.harness import Drop

HOUR = timedelta(hours=1)


def drop_on(root: Path, **keep: Any) -> Drop:
    """Return a drop folder that has taken in a file now, an hour and two hours ago."""
    drop = Drop(root, "id BIGINT")
    drop._arguments["keep"] = FlowRetention(**keep)
    drop.start()
    for number in range(3):
        drop.put(f"{number}.jsonl", f'{{"id": {number}}}\n'.encode())
        drop.scan()
        drop.now += HOUR
    return drop


def finished(drop: Drop) -> list[str]:
    return [path.name.split("-")[1] for path in sorted(drop.place("finished").iterdir())]


def clean(drop: Drop, *, dry_run: bool = False) -> int:
    return len(drop.folder.clean(drop.record, drop.dataflow, dry_run=dry_run)["orders"].gone)


@pytest.mark.parametrize(
    ("keep", "left"),
    [
        ({"seconds": 9 * 3600}, 3),
        ({"seconds": 2.5 * 3600}, 2),
        ({"seconds": 0}, 0),
        ({"seconds": 9 * 3600, "bytes": 20}, 2),
    ],
)
def test_old_files_go_by_when_they_were_taken_in(
    tmp_path: Path, keep: dict[str, Any], left: int
) -> None:
    """A producer's time says nothing; a look removes nothing."""
    drop = drop_on(tmp_path, **keep)
    for path in drop.place("finished").iterdir():
        os.utime(path, (0, 0))
    assert clean(drop, dry_run=True) == 3 - left
    assert len(finished(drop)) == 3
    assert clean(drop) == 3 - left
    assert finished(drop) == [f"{n}.jsonl" for n in range(3 - left, 3)]
    assert clean(drop) == 0


def test_an_open_claim_keeps_its_file_and_what_is_behind(tmp_path: Path) -> None:
    """It may be looked for there."""
    drop = drop_on(tmp_path, seconds=0)
    claim = sorted(drop.store.claim_rows.values(), key=lambda claim: claim.sequence)[1]
    drop.store.update_claim(replace(claim, status="claimed"))
    assert clean(drop) == 1
    assert finished(drop) == ["1.jsonl", "2.jsonl"]


def test_a_file_of_somebody_else_stays(tmp_path: Path) -> None:
    """What has no claim's name is none of ours."""
    drop = drop_on(tmp_path, seconds=0)
    (drop.place("finished") / "notes.txt").write_text("mine")
    assert clean(drop) == 3
    assert [path.name for path in drop.place("finished").iterdir()] == ["notes.txt"]
