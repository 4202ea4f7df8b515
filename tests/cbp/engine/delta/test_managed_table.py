"""Managed tables: created once, published once, and stopped by a foreign entry.

State and outputs of one run become visible together, at one in-commit timestamp.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest

from cbp.engine.delta.actions import (
    Action,
    AddFile,
    CommitInfo,
    DeletionVector,
    Metadata,
    Protocol,
    RemoveFile,
    Txn,
    encode,
)
from cbp.engine.delta.log import DeltaLog
from cbp.engine.delta.managed_table import ManagedTable, open_table, release
from cbp.engine.storage.files import LocalFiles
from cbp.errors import (
    CbpError,
    ForeignWriterError,
    InvariantError,
    NotFoundError,
    PlacementDiffersError,
    TableFeatureError,
    TableForeignError,
)
from cbp.model.flow.schema import Schema
from tests.cbp.engine.delta.commits import file, files, publish
from tests.cbp.engine.delta.harness import make_state
from tests.planned_faults import Crash, PlannedFaults

FOREIGN = CommitInfo(1, "OPTIMIZE", engine="Apache-Spark/4.2.0 Delta-Lake/4.4.0")


def forge(table: ManagedTable, version: int, actions: Sequence[Action]) -> None:
    """Write an entry as somebody else would."""
    LocalFiles().put_if_absent(table.log.entry_path(version), encode(actions))


def test_creating_twice_is_creating_once(tmp_path: Path) -> None:
    """The identical table is opened, whatever it holds by now and whatever the clock says."""
    table = make_state(str(tmp_path))
    publish(table, 1, "a")
    again = make_state(str(tmp_path), now_ms=999_999)
    assert again.snapshot == table.snapshot
    table.checkpoint()
    table.clean_before(table.snapshot.version)
    assert make_state(str(tmp_path)).snapshot == table.snapshot


def test_a_crashed_creation_is_repeated(tmp_path: Path) -> None:
    """Before version 0 there is no table; after it there is, at every failpoint."""
    for side in ("before", "after"):
        faulty = LocalFiles(PlannedFaults(f"log_entry.{side}"))
        path = str(tmp_path / side)
        with pytest.raises(Crash):
            make_state(path, files=faulty)
        assert make_state(path).snapshot.version == 0


@pytest.mark.parametrize(
    "other",
    [
        {"buckets": 4},
        {"table_id": "00000000-0000-0000-0000-000000000009"},
        {"schema": Schema.parse("url STRING, n INT")},
        {"partition_by": ()},
    ],
)
def test_another_table_in_the_folder_is_not_taken_over(
    tmp_path: Path, other: dict[str, Any]
) -> None:
    """Other buckets, id, schema or partitioning: raise, and leave the table as it is."""
    table = make_state(str(tmp_path))
    with pytest.raises(TableForeignError):
        make_state(str(tmp_path), **other)
    assert table.refresh().version == 0


def test_another_number_of_buckets_is_told_with_both_numbers(tmp_path: Path) -> None:
    """Who changes the buckets of a stage reads what the table has, and what was asked for."""
    make_state(str(tmp_path))
    with pytest.raises(PlacementDiffersError) as caught:
        make_state(str(tmp_path), buckets=4)
    assert caught.value.details["setting"] == "cbp.buckets"
    assert (caught.value.details["found"], caught.value.details["expected"]) == ("2", "4")


def test_a_folder_with_other_files_is_not_taken_over(tmp_path: Path) -> None:
    """Neither loose files nor a Delta table of somebody else become ours."""
    (tmp_path / "loose").mkdir()
    (tmp_path / "loose" / "precious.csv").write_text("1")
    with pytest.raises(TableForeignError):
        make_state(str(tmp_path / "loose"))
    assert os.listdir(tmp_path / "loose") == ["precious.csv"]
    log = DeltaLog(str(tmp_path / "delta"), LocalFiles())
    entry: list[Action] = [FOREIGN, Protocol(1, 2), Metadata("x", '{"type":"struct","fields":[]}')]
    LocalFiles().put_if_absent(log.entry_path(0), encode(entry))
    for attempt in (make_state, lambda path: open_table(path, LocalFiles())):
        with pytest.raises(TableForeignError):
            attempt(log.path)


def test_opening_nothing_is_not_found(tmp_path: Path) -> None:
    """A table is never made by opening it."""
    with pytest.raises(NotFoundError):
        open_table(str(tmp_path / "absent"), LocalFiles())
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("feature", "configuration", "column"),
    [
        ("rowTracking", {}, {}),
        ("columnMapping", {"delta.columnMapping.mode": "name"}, {}),
        ("rowTracking", {"delta.enableRowTracking": "true"}, {}),
        ("checkConstraints", {"delta.constraints.positive": "n > 0"}, {}),
        ("generatedColumns", {}, {"delta.generationExpression": "n + 1"}),
        ("identityColumns", {}, {"delta.identity.start": 1}),
    ],
)
def test_features_that_we_would_write_wrong_are_refused(
    tmp_path: Path, feature: str, configuration: dict[str, str], column: dict[str, object]
) -> None:
    """A feature in the protocol, in a setting or on a column: the table is not opened."""
    table = make_state(str(tmp_path))
    now = table.snapshot
    protocol = now.protocol
    if not configuration and not column:
        protocol = replace(protocol, writer_features=(*protocol.writer_features, feature))
    schema = now.metadata.schema
    if column:
        text = str(column).replace("'", '"')
        schema = schema.replace('"metadata":{}', f'"metadata":{text}', 1)
    settings = {**now.metadata.configuration, **configuration}
    metadata = replace(now.metadata, schema=schema, configuration=settings)
    forge(table, 1, [replace(FOREIGN, engine="cbp/1"), protocol, metadata])
    with pytest.raises(TableFeatureError) as caught:
        open_table(str(tmp_path), LocalFiles())
    assert feature in caught.value.details["features"]


def test_a_publication_appears_once(tmp_path: Path) -> None:
    """Repeating it, here or in a new process, returns its version and writes nothing."""
    table = make_state(str(tmp_path))
    assert publish(table, 1, "a") == 1
    assert publish(table, 2, "a", "b") == 2
    for again in (table, open_table(str(tmp_path), LocalFiles())):
        assert publish(again, 1, "a") == 1
        assert publish(again, 2, "a", "b") == 2
        assert again.snapshot.version == 2
        assert set(again.snapshot.live) == set(files("a", "b"))


def test_a_publication_whose_entry_was_cleaned_up_is_still_known(tmp_path: Path) -> None:
    """The checkpoint remembers transactions; the version is the oldest that can be read."""
    table = make_state(str(tmp_path))
    for epoch in range(1, 6):
        publish(table, epoch, "a")
    table.checkpoint()
    publish(table, 6, "a")
    assert table.clean_before(table.snapshot.version - 1) == 5
    again = open_table(str(tmp_path), LocalFiles())
    assert [publish(again, epoch, "a") for epoch in (2, 5, 6)] == [5, 5, 6]
    assert again.snapshot.version == 6


@pytest.mark.parametrize("side", ["before", "after"])
def test_a_crash_while_publishing_is_redone(tmp_path: Path, side: str) -> None:
    """Whichever side of the put the process died on, the redo gives one entry."""
    make_state(str(tmp_path))
    faulty = open_table(str(tmp_path), LocalFiles(PlannedFaults(f"log_entry.{side}")))
    with pytest.raises(Crash):
        publish(faulty, 1, "a")
    for table in (open_table(str(tmp_path), LocalFiles()), faulty):
        assert publish(table, 1, "a") == 1
        assert set(table.snapshot.live) == set(files("a"))


def _publish_all(path: str, barrier: Barrier, epochs: int) -> None:
    """Publish the same epochs as the other process, at the same moments."""
    table = open_table(path, LocalFiles(), checkpoint_interval=7)
    for epoch in range(1, epochs + 1):
        barrier.wait(timeout=60)
        assert publish(table, epoch, f"f{epoch}") == epoch


def test_two_processes_redo_the_same_publications(tmp_path: Path) -> None:
    """Both succeed, with the same versions, and the log has each epoch once."""
    make_state(str(tmp_path))
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(2)
    racers = [
        context.Process(target=_publish_all, args=(str(tmp_path), barrier, 40)) for _ in range(2)
    ]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(timeout=120)
        assert racer.exitcode == 0
    snapshot = open_table(str(tmp_path), LocalFiles()).snapshot
    assert (snapshot.version, snapshot.txns) == (40, {"run": 40})
    assert set(snapshot.live) == set(files("f40"))


@pytest.mark.parametrize("reopened", [False, True])
def test_a_foreign_commit_stops_the_publisher(tmp_path: Path, reopened: bool) -> None:
    """Version, operation and engine are named; nothing is written behind the entry."""
    table = make_state(str(tmp_path))
    publish(table, 1, "a", "b")
    removes = [RemoveFile.of(file(name), deletion_ms=1) for name in "ab"]
    forge(table, 2, [FOREIGN, *removes, file("ab")])

    def write() -> None:
        used = open_table(str(tmp_path), LocalFiles()) if reopened else table
        publish(used, 2, "a", "b", "c")

    with pytest.raises(ForeignWriterError) as caught:
        write()
    assert caught.value.details["version"] == 2
    assert caught.value.details["operation"] == "OPTIMIZE"
    assert "Spark" in caught.value.details["engine"]
    assert table.log.latest_version() == 2


def test_a_foreign_entry_without_commit_info_is_foreign(tmp_path: Path) -> None:
    """Who does not say a name is not one of us."""
    table = make_state(str(tmp_path))
    line = b'{"txn":{"appId":"x","version":1}}\n'
    LocalFiles().put_if_absent(table.log.entry_path(1), line)
    with pytest.raises(ForeignWriterError):
        table.refresh()


def test_an_entry_of_nothing_but_commit_info_is_stepped_over(tmp_path: Path) -> None:
    """It changes nothing, so the publication takes the next version."""
    table = make_state(str(tmp_path))
    publish(table, 1, "a")
    forge(table, 2, [FOREIGN])
    assert publish(table, 2, "a", "b") == 3
    assert open_table(str(tmp_path), LocalFiles()).snapshot.version == 3


def test_a_change_from_before_another_publisher_does_not_fit(tmp_path: Path) -> None:
    """Publishing it would remove again what the other one has removed."""
    stale, other = make_state(str(tmp_path)), make_state(str(tmp_path))
    publish(other, 1, "a", app="other")
    stale.refresh()
    publish(other, 2, "b", app="other")
    with pytest.raises(InvariantError):
        publish(stale, 1, "c")
    assert set(stale.snapshot.live) == set(files("b"))


def test_a_publisher_far_behind_a_cleaned_log_stops(tmp_path: Path) -> None:
    """Entries that it never saw are gone: it neither writes at an old version nor guesses."""
    zombie, leader = make_state(str(tmp_path)), make_state(str(tmp_path))
    publish(leader, 1, "a", app="new")
    zombie.refresh()
    for epoch in range(2, 6):
        publish(leader, epoch, "b", app="new")
    leader.checkpoint()
    leader.clean_before(leader.snapshot.version)
    with pytest.raises(InvariantError):
        publish(zombie, 1, "c")
    assert leader.refresh().version == 5


def test_a_publication_lists_no_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a publication reads does not grow with the entries that are kept, up to thousands."""
    table = make_state(str(tmp_path))
    publish(table, 1, "a")

    def refuse(self: LocalFiles, path: str) -> list[str]:
        raise AssertionError(path)

    monkeypatch.setattr(LocalFiles, "list_names", refuse)
    assert publish(table, 2, "a", "b") == 2
    assert table.refresh().version == 2


@pytest.mark.parametrize("gone", range(1, 5))
def test_entries_removed_between_two_looks_are_missed_by_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: int
) -> None:
    """A clean-up removes the oldest first; a reader that meets the gap reads the log again."""
    late, leader = make_state(str(tmp_path)), make_state(str(tmp_path))
    for epoch in range(1, 6):
        publish(leader, epoch, "a", app="new")
        if epoch == 2:
            late.refresh()
    leader.checkpoint()
    exists, looks = LocalFiles.exists, 0

    def cleaned_behind(self: LocalFiles, path: str) -> bool:
        """Look first, then let the clean-up go on: the next look finds one entry less."""
        nonlocal looks
        actual = exists(self, path)
        for version in range(gone * looks, gone * (looks + 1)):
            self.remove(leader.log.entry_path(min(version, 4)))
        looks += 1
        return actual

    monkeypatch.setattr(LocalFiles, "exists", cleaned_behind)
    assert late.refresh().version == 5


def test_actions_must_fit_what_the_table_shows(tmp_path: Path) -> None:
    """A redo record names files: a file that is not live as recorded stops the redo."""
    table = make_state(str(tmp_path))
    publish(table, 1, "a")
    vector = DeletionVector("u", "_vectors" + "0" * 20, 1, 34, 2)
    wrong: list[tuple[list[AddFile], list[RemoveFile]]] = [
        ([file("a")], []),
        ([], [RemoveFile.of(file("b"), deletion_ms=1)]),
        ([], [RemoveFile.of(replace(file("a"), deletion_vector=vector), deletion_ms=1)]),
    ]
    for adds, removes in wrong:
        with pytest.raises(InvariantError):
            table.publish(
                adds=adds,
                removes=removes,
                app_id="run",
                version=2,
                intention_id="i",
                timestamp_ms=1,
            )
    marked = replace(file("a"), deletion_vector=vector)
    old = RemoveFile.of(file("a"), deletion_ms=1)
    assert (
        table.publish(
            adds=[marked],
            removes=[old],
            app_id="run",
            version=2,
            intention_id="i",
            timestamp_ms=1,
        )
        == 2
    )
    assert table.snapshot.live == {marked.path: marked}


@pytest.mark.parametrize(
    "path", ["_runs/a.parquet", "_runs/_bucket=1/a.parquet", "_runs/_bucket=0/a%20b.parquet"]
)
def test_paths_that_readers_misread_are_refused(tmp_path: Path, path: str) -> None:
    """The partition is part of the path, and no character needs an escape."""
    table = make_state(str(tmp_path))
    with pytest.raises(InvariantError):
        table.publish(
            adds=[replace(file("a"), path=path)],
            app_id="run",
            version=1,
            intention_id="i",
            timestamp_ms=1,
        )
    assert table.log.latest_version() == 0


def test_in_commit_timestamps_rise(tmp_path: Path) -> None:
    """Even when clocks do not; and one timestamp can be new to many tables."""
    one, two = make_state(str(tmp_path / "1")), make_state(str(tmp_path / "2"))
    publish(one, 1, "a", at=50_000)
    publish(one, 2, "a", at=50_000)
    publish(one, 3, "a", at=1)
    assert one.snapshot.in_commit_timestamp == 50_002
    common = one.snapshot.in_commit_timestamp + 1
    publish(one, 4, "a", at=common)
    publish(two, 1, "a", at=common)
    assert one.snapshot.in_commit_timestamp == two.snapshot.in_commit_timestamp == 50_003
    one.checkpoint()
    one.clean_before(one.snapshot.version)
    assert open_table(one.path, LocalFiles()).snapshot.in_commit_timestamp == 50_003


def test_checkpoints_come_by_themselves(tmp_path: Path) -> None:
    """Every so many entries; a failing one is tried again and fails no publication."""
    make_state(str(tmp_path))
    full = PlannedFaults("checkpoint.before", error=OSError(28, "No space left"))
    table = open_table(str(tmp_path), LocalFiles(full), checkpoint_interval=3)
    for epoch in range(1, 9):
        publish(table, epoch, f"f{epoch}")
    assert table.log.checkpoints() == [4, 7]
    assert table.refresh().version == 8


def test_a_cleaned_log_keeps_what_was_promised(tmp_path: Path) -> None:
    """Every version that is kept can be read, an older one cannot; without one, all stay."""
    make_state(str(tmp_path))
    table = open_table(str(tmp_path), LocalFiles(), checkpoint_interval=3)
    assert table.clean_before(table.snapshot.version) == 0
    for epoch in range(1, 9):
        publish(table, epoch, f"f{epoch}")
    (tmp_path / "_delta_log" / ".x.1.tmp").write_bytes(b"left by a killed writer")
    assert table.clean_before(table.snapshot.version - 4) == 3
    for version in range(3, 9):
        assert set(table.log.snapshot(version).live) == set(files(f"f{version}"))
    with pytest.raises(CbpError):
        table.log.snapshot(2)
    assert not (tmp_path / "_delta_log" / ".x.1.tmp").exists()
    assert open_table(str(tmp_path), LocalFiles()).snapshot == table.snapshot


@pytest.mark.parametrize("passage", range(1, 10))
def test_an_interrupted_clean_up_leaves_a_readable_log(tmp_path: Path, passage: int) -> None:
    """What is said to be readable is, the newest version always, and the others are not found."""
    make_state(str(tmp_path))
    table = open_table(
        str(tmp_path),
        LocalFiles(PlannedFaults("dead_entry.after", passage=passage)),
        checkpoint_interval=3,
    )
    for epoch in range(1, 9):
        publish(table, epoch, f"f{epoch}")
    assert table.log.readable() == list(range(9))
    with suppress(Crash):
        table.clean_before(table.snapshot.version)
    readable = table.log.readable()
    # Checkpoints stand at 3 and 6; the one at 3 serves as long as the entry behind it is there.
    assert readable == list(range({1: 3, 2: 3, 3: 3, 4: 4}.get(passage, 6), 9))
    for version in range(9):
        if version in readable:
            assert set(table.log.snapshot(version).live) == set(files(f"f{version}"))
        elif version not in table.log.checkpoints():
            with pytest.raises(NotFoundError):
                table.log.snapshot(version)
    assert open_table(str(tmp_path), LocalFiles()).snapshot == table.snapshot


def test_entries_that_a_loss_of_power_brought_back_are_not_readable(tmp_path: Path) -> None:
    """A removal is durable with its folder only: some of what was removed may be there again."""
    make_state(str(tmp_path))
    table = open_table(str(tmp_path), LocalFiles(), checkpoint_interval=3)
    for epoch in range(1, 9):
        publish(table, epoch, f"f{epoch}")
    back = [table.log.entry_path(0), table.log.entry_path(4), table.log.checkpoint_path(3)]
    kept = {path: Path(path).read_bytes() for path in back}
    assert table.clean_before(table.snapshot.version) == 6
    for path, data in kept.items():
        Path(path).write_bytes(data)
    assert table.log.readable() == [6, 7, 8]
    assert open_table(str(tmp_path), LocalFiles()).snapshot == table.snapshot


def test_a_gap_in_the_log_is_corruption(tmp_path: Path) -> None:
    """An entry that is missing between others is never stepped over."""
    table = make_state(str(tmp_path))
    for epoch in (1, 2, 3):
        publish(table, epoch, f"f{epoch}")
    os.unlink(table.log.entry_path(2))
    with pytest.raises(InvariantError):
        open_table(str(tmp_path), LocalFiles())


def test_a_snapshot_is_updated_by_the_entries_since(tmp_path: Path) -> None:
    """Updating gives what reading from scratch gives; an old snapshot stays as it was."""
    table = make_state(str(tmp_path))
    publish(table, 1, "a")
    old = table.log.snapshot()
    publish(table, 2, "b")
    assert table.log.update(old) == table.log.snapshot() == table.snapshot
    assert set(old.live) == set(files("a"))
    assert [v for v, _ in table.log.entries_since(0)] == [1, 2]
    assert table.log.entry(2)[1] == Txn("run", 2, 10_002)


def test_release_is_not_published_through(tmp_path: Path) -> None:
    """An object that was open when the table was released writes no more."""
    table = make_state(str(tmp_path))
    publish(table, 1, "a")
    assert release(str(tmp_path)) == 2
    with pytest.raises(TableForeignError):
        publish(table, 2, "b")
    assert table.log.latest_version() == 2
