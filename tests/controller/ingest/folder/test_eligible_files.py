"""Passes over a folder in which many files wait use one listing, for as long as it may be used."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from controller.ingest.folder.claims import upload_name
from controller.ingest.folder.eligible_files import (
    CLOSE_NAME,
    count_files,
    scan_folder,
    sealed_close_name,
)
from controller.ingest.folder.manifest import MANIFEST_NAME, sealed_name
from controller.ingest.formats.file_bytes import never
from controller.ingest.limits import IngestLimits
from controller.ingest.reader.file_reader import ReadRequest, ReadResult, read_files
from tests.controller.ingest.harness import Drop

FILES = 24


@pytest.mark.parametrize("unfinished", [(".part", "~"), (".jsonl",)])
def test_as_many_files_are_counted_as_are_listed(
    unfinished: tuple[str, ...], tmp_path: Path
) -> None:
    """Whatever lies beside them: links, folders, FIFOs, hidden and unfinished names."""
    names = ["a.jsonl", "b.csv", "c.part", "d~", ".hidden", MANIFEST_NAME, sealed_name("1")]
    for name in [*names, CLOSE_NAME, sealed_close_name("2"), upload_name("3"), "\udcff"]:
        (tmp_path / name).write_bytes(b"{}")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a.jsonl")
    (tmp_path / "nowhere").symlink_to(tmp_path / "none")
    os.mkfifo(tmp_path / "fifo")
    listed = scan_folder(tmp_path, unfinished)
    assert count_files(tmp_path, unfinished) == len(listed.candidates) + len(listed.sealed) > 4


class SlowlyListed(Drop):
    """A drop folder whose first listing takes seconds: its clock goes on at the first looks."""

    looks = 0

    @property
    def now(self) -> datetime:
        """The time."""
        self.looks += 1
        if self.looks < 10:
            self._now += timedelta(seconds=1)
        return self._now

    @now.setter
    def now(self, value: datetime) -> None:
        self._now = value


@pytest.mark.parametrize(("pause", "place"), [(0, FILES), (60, 4)])
def test_a_listing_is_used_again_while_claimed_files_wait(
    pause: float, place: int, tmp_path: Path
) -> None:
    """A pass that ends between claimed files leaves its listing to the next ones, for some time.

    So an older file that comes meanwhile is claimed after those of the listing, or, when the
    listing has been used for ten times as long as it took, after those that were claimed.
    """
    drop: SlowlyListed

    def read_slowly(
        request: ReadRequest,
        stopping: Callable[[], bool] = never,
        hurried: Callable[[], bool] = never,
    ) -> ReadResult:
        drop.now += timedelta(seconds=0.3)
        return read_files(request, stopping, hurried)

    limits = IngestLimits(scan_seconds=0.5, group_files=4)
    drop = SlowlyListed(tmp_path, "n BIGINT", limits=limits, reader=read_slowly)
    for number in range(FILES):
        drop.put(f"f{number:04d}", b'{"n": %d}\n' % number)
    drop.scan()
    assert drop.names("claimed"), "the pass ended between claimed files"
    drop.put("older", b'{"n": -1}\n')
    os.utime(drop.incoming / "older", ns=(0, 0))
    drop.pass_seconds(pause)
    while drop.names("incoming") or drop.names("claimed"):
        assert drop.scan().accepted
    assert [row["n"] for row in drop.rows()].index(-1) == place
