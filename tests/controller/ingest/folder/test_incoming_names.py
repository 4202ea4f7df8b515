"""What is not going to be taken in is shown: its name, why, and since when."""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import structlog

from cbp.model.dataflow.nodes import ONE_FILE, FileBatch
from controller.ingest.folder import eligible_files, folder_report
from controller.ingest.folder.eligible_files import SHOWN_MAX, Unclaimed, UnclaimedFiles
from controller.ingest.folder.source_place import SourcePlace
from tests.controller.ingest.harness import Drop, lines

SCHEMA = "id BIGINT, name STRING"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_everything_that_stays_is_named_with_its_reason(tmp_path: Path):
    """Links, FIFOs, folders, hidden and unfinished names; what waits is counted, not named."""
    drop = Drop(tmp_path, SCHEMA)
    drop.now = datetime.now(UTC)
    (drop.incoming / "link").symlink_to("nowhere")
    (drop.incoming / "folder").mkdir()
    os.mkfifo(drop.incoming / "fifo")
    for name in (".x", "a.tmp", "b.part", "c~", "waits"):
        drop.put(name, lines(1))
    (report,) = drop.folder.look(drop.record, drop.dataflow)
    assert (report["name"], report["folder"]) == ("orders", str(drop.incoming))
    assert (report["waiting"], report["waiting_bytes"]) == (1, len(lines(1)))
    assert report["unclaimed"] == 7
    whys = {one["name"]: one["why"].split(":")[0] for one in report["oldest_unclaimed"]}
    assert whys == {
        "link": "a symbolic link",
        "folder": "a folder",
        "fifo": "a FIFO",
        ".x": "its name begins with a dot, and hidden files are not taken in; rename the file when "
        "it is complete",
        **dict.fromkeys(
            ("a.tmp", "b.part", "c~"),
            "its name marks it as incomplete; its producer must rename the file when it is "
            "complete",
        ),
    }
    assert all(one["since"] for one in report["oldest_unclaimed"])
    assert report["warning"] == ""
    drop.pass_seconds(3601)
    (report,) = drop.folder.look(drop.record, drop.dataflow)
    assert report["warning"].startswith("7 files have waited for more than an hour")
    assert drop.scan().accepted == 1


def test_a_pass_warns_once_of_what_has_lain_there_for_long(tmp_path: Path):
    """Not at each listing, and once more when it is another one."""
    drop = Drop(tmp_path, SCHEMA)
    drop.now = datetime.now(UTC) + timedelta(hours=2)
    drop.put("a.tmp", lines(1))
    with structlog.testing.capture_logs() as logs:
        drop.scan()
        drop.scan()
        drop.put("b.tmp", lines(1))
        drop.scan()
    assert [log["event"] for log in logs] == ["incoming.unclaimed"] * 2


def test_a_name_that_cannot_be_looked_at_is_shown_beside_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """An error of one name is no error of its folder."""
    drop = Drop(tmp_path, SCHEMA)
    drop.put("good", lines(1))
    scandir = os.scandir

    class Damaged:
        name = "damaged"

        def stat(self, *, follow_symlinks: bool) -> os.stat_result:
            raise OSError(5, "Input/output error")

    class Entries(list):  # type: ignore[type-arg]
        def __enter__(self) -> Entries:
            return self

        def __exit__(self, *_: object) -> None:
            return None

    def scans(folder: Path) -> Entries:
        with scandir(folder) as entries:
            return Entries([*entries, Damaged()])

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", scans)
        scanned = eligible_files.scan_folder(drop.incoming)
    assert [one.name for one in scanned.candidates] == ["good"]
    (reported,) = scanned.unclaimed
    assert (reported.name, reported.since) == ("damaged", None)
    assert "Input/output error" in reported.why


def test_of_very_many_the_oldest_are_kept():
    """The list is bounded, the count is not; one whose age is unknown comes first."""
    every = [Unclaimed(f"{n}", "x", NOON - timedelta(seconds=n)) for n in range(300)]
    actual = UnclaimedFiles.of([*every, Unclaimed("unknown", "x", None)])
    assert actual.count == 301
    assert [one.name for one in actual.oldest[:3]] == ["unknown", "299", "298"]
    assert len(actual.oldest) == SHOWN_MAX
    assert [one.name for one in actual.older_than(NOON - timedelta(seconds=297))] == [
        *("unknown", "299", "298")
    ]


def test_a_folder_that_is_gone_is_reported(tmp_path: Path):
    """A request gets an answer, and the other sources'."""
    drop = Drop(tmp_path, SCHEMA, sources=("orders", "returns"))
    shutil.rmtree(drop.incoming.parent)
    drop.scan()
    orders, returns = drop.folder.look(drop.record, drop.dataflow)
    assert "cannot be read" in orders["warning"]
    assert orders["trouble"]["error"]["error_code"] == "drop_folder_unusable"
    assert orders["trouble"]["tries"] == 1
    assert (returns["warning"], returns["trouble"]) == ("", None)


@pytest.mark.parametrize(
    ("files", "size", "hinted"),
    [(999, 999, False), (1_000, 50_000, True), (1_000, 1_000 * 65_537, False)],
)
def test_a_backlog_of_small_files_names_the_option(
    files: int, size: int, hinted: bool, tmp_path: Path
):
    """Many increments of a line each are slow: the advice is shown beside them, if it is one."""
    for batch, is_advice in ((ONE_FILE, hinted), (FileBatch(), False)):
        drop = Drop(tmp_path / str(batch.files), SCHEMA, batch=batch)
        (source,) = drop.dataflow.sources.values()
        place = SourcePlace.of(drop.record, drop.dataflow, source, drop.root / "drop")
        hint = folder_report.backlog_hint(place, files, size)
        assert ("`batch: {}` in the source" in hint) is is_advice
