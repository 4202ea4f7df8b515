"""Repair: what others did to a table is undone by one entry, or nothing is written.

What a foreign writer did is named.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake

from cbp.engine.delta.actions import ROWS_UNKNOWN, AddFile, CommitInfo, RemoveFile, encode
from cbp.engine.delta.managed_table import open_table, release
from cbp.engine.delta.repair import Undone, repair
from cbp.engine.storage.files import LocalFiles
from cbp.errors import (
    ForeignWriterError,
    NotFoundError,
    RepairImpossibleError,
    TableFeatureError,
    TableForeignError,
    TableReleasedError,
)
from tests.cbp.engine.delta.delta_rows import live, table_row
from tests.cbp.engine.delta.harness import StateTable, with_delta_rs, with_polars
from tests.planned_faults import Crash, PlannedFaults

FILES = LocalFiles()
NOW = 9_000_000


def a_table(tmp_path: Path) -> StateTable:
    """Give a table that was published six times."""
    state = StateTable(str(tmp_path / "t"), 1_000)
    live(state)
    return state


def changed(state: StateTable) -> None:
    """Release the table, and let delta-rs append, delete and rewrite what it can."""
    release(state.path)
    write_deltalake(state.path, table_row(), mode="append")
    write_deltalake(state.path, table_row(), mode="overwrite")


def test_a_released_and_changed_table_is_ours_again(tmp_path: Path) -> None:
    """Every reader finds our records, the fence holds, and publications go on."""
    state = a_table(tmp_path)
    changed(state)
    with pytest.raises(ForeignWriterError) as caught:
        state.table.refresh()
    assert caught.value.details["version"] == 8
    assert "delta-rs" in caught.value.details["engine"]
    assert "cbp repair" in caught.value.message
    actual = repair(state.path, files=FILES, now_ms=NOW)
    assert (actual.version, actual.shows) == (10, 7)
    assert [undone.operation for undone in actual.undone] == ["WRITE", "WRITE"]
    assert with_polars(state.path) == with_delta_rs(state.path) == state.expected()
    with pytest.raises(Exception, match=r"cbp\.managed"):
        write_deltalake(state.path, table_row(), mode="append")
    state.table.refresh()
    state.add(1, range(9000, 9010))
    state.publish()
    assert with_polars(state.path) == state.expected()
    assert open_table(state.path, FILES).snapshot == state.table.snapshot


def test_a_foreign_entry_behind_the_fence_is_undone(tmp_path: Path) -> None:
    """A writer that ignores the protocol is named, and its change taken back."""
    state = a_table(tmp_path)
    version = state.table.snapshot.version
    (path, *_) = state.table.snapshot.live
    info = CommitInfo(1, "DELETE", engine="Someone/1")
    gone = state.table.snapshot.live[path]
    entry = encode([info, RemoveFile.of(gone, deletion_ms=1)])
    FILES.put_if_absent(state.table.log.entry_path(version + 1), entry)
    actual = repair(state.path, files=FILES, now_ms=NOW)
    assert actual.undone == (Undone(version + 1, "DELETE", "Someone/1"),)
    assert with_polars(state.path) == state.expected()


@pytest.mark.parametrize("keeps_vector", [True, False])
def test_a_file_of_ours_that_others_added_again_is_as_we_recorded_it(
    tmp_path: Path, keeps_vector: bool
) -> None:
    """They need not write statistics; readers get ours back, and no record twice."""
    state = a_table(tmp_path)
    ours = state.table.snapshot
    file = next(file for file in ours.live.values() if file.deletion_vector)
    foreign = replace(file, rows=ROWS_UNKNOWN, min_values=None, max_values=None)
    gone = [] if keeps_vector else [RemoveFile.of(file, deletion_ms=1)]
    if not keeps_vector:
        foreign = replace(foreign, deletion_vector=None)
    info = CommitInfo(1, "UPDATE", engine="Someone/1")
    path = state.table.log.entry_path(ours.version + 1)
    FILES.put_if_absent(path, encode([info, *gone, foreign]))
    actual = repair(state.path, files=FILES, now_ms=NOW)
    assert open_table(state.path, FILES).snapshot.live == ours.live
    assert with_polars(state.path) == with_delta_rs(state.path) == state.expected()
    entry = state.table.log.entry(actual.version)
    (added,) = [action for action in entry if isinstance(action, AddFile)]
    assert added.data_change is not keeps_vector


def test_a_release_is_taken_back(tmp_path: Path) -> None:
    """Without any foreign entry only the fence is put back, and the error says how."""
    state = a_table(tmp_path)
    release(state.path)
    with pytest.raises(TableReleasedError) as caught:
        open_table(state.path, FILES)
    assert "cbp repair" in caught.value.message
    actual = repair(state.path, files=FILES, now_ms=NOW)
    assert actual.undone == ()
    table = open_table(state.path, FILES)
    assert table.snapshot.live == state.table.log.snapshot(6).live
    settings = table.snapshot.metadata.configuration
    assert settings["delta.inCommitTimestampEnablementVersion"] == str(actual.version)
    assert pl.scan_delta(state.path).collect().height == len(state.expected())


def test_a_table_that_is_ours_is_left_alone(tmp_path: Path) -> None:
    """Repairing twice is repairing once; a sound table gets no entry."""
    state = a_table(tmp_path)
    assert repair(state.path, files=FILES, now_ms=NOW).version == 6
    changed(state)
    once = repair(state.path, files=FILES, now_ms=NOW)
    assert repair(state.path, files=FILES, now_ms=NOW).version == once.version
    assert state.table.log.latest_version() == once.version


@pytest.mark.parametrize("side", ["before", "after"])
def test_a_crash_while_repairing_is_done_again(tmp_path: Path, side: str) -> None:
    """Killed on either side of the entry: the next repair ends it."""
    state = a_table(tmp_path)
    changed(state)
    with pytest.raises(Crash):
        repair(state.path, files=LocalFiles(PlannedFaults(f"log_entry.{side}")), now_ms=NOW)
    repair(state.path, files=FILES, now_ms=NOW)
    assert open_table(state.path, FILES).snapshot.version == 10


def test_what_cannot_be_brought_back_is_refused_and_nothing_written(tmp_path: Path) -> None:
    """A lost file, a log that was cleaned, a feature of others, a table of others."""
    state = a_table(tmp_path)
    changed(state)
    before = state.table.log.latest_version()
    lost = f"{state.path}/{next(iter(state.table.log.snapshot(6).live))}"
    os.rename(lost, f"{lost}.away")
    with pytest.raises(RepairImpossibleError) as caught:
        repair(state.path, files=FILES, now_ms=NOW)
    assert os.path.basename(lost) in caught.value.message
    os.rename(f"{lost}.away", lost)
    newest = state.table.log.snapshot()
    features = (*newest.protocol.writer_features, "rowTracking")
    entry = encode(
        [CommitInfo(1, "X", engine="Someone/1"), replace(newest.protocol, writer_features=features)]
    )
    FILES.put_if_absent(state.table.log.entry_path(before + 1), entry)
    with pytest.raises(TableFeatureError):
        repair(state.path, files=FILES, now_ms=NOW)
    assert state.table.log.latest_version() == before + 1
    DeltaTable(state.path).create_checkpoint()
    for version in state.table.log.versions()[:-1]:
        os.unlink(state.table.log.entry_path(version))
    with pytest.raises(RepairImpossibleError):
        repair(state.path, files=FILES, now_ms=NOW)
    write_deltalake(str(tmp_path / "other"), table_row())
    with pytest.raises(TableForeignError):
        repair(str(tmp_path / "other"), files=FILES, now_ms=NOW)
    with pytest.raises(NotFoundError):
        repair(str(tmp_path / "nothing"), files=FILES, now_ms=NOW)
