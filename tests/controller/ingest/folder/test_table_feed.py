"""A source that follows a Delta table: each version once, in order, whatever happens in between."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from cbp.model.dataflow.nodes import ONE_FILE, FileBatch
from controller.ingest.uploads import Author
from tests.controller.ingest.harness import Drop
from tests.controller.ingest.test_recovery import Machine
from tests.planned_faults import Crash, PlannedFaults

SCHEMA = "id BIGINT, name STRING, sign INT"
FED = {"delta.enableChangeDataFeed": "true"}
AUTHOR = Author("ann", "the file is back")
POINTS = tuple(
    f"{effect}.{side}"
    for effect in ("feed_position", "claim", "rename", "data_sync", "increment_file", "source_log")
    for side in ("before", "after")
)


def rows_of(ids: range | list[int], name: str = "n") -> pa.Table:
    return pa.table({"id": pa.array(list(ids), pa.int64()), "name": [f"{name}{i}" for i in ids]})


class Followed:
    """A table, and a source that follows it."""

    def __init__(self, root: Path, batch: FileBatch = ONE_FILE, **more: Any) -> None:
        self.table = str(root / "warehouse" / "orders")
        given: dict[str, Any] = {"options": {"table": "orders"}, "batch": batch}
        self.drop = Drop(root, SCHEMA, "delta", **given | more)
        self.put(rows_of(range(4)), configuration=FED)

    def put(self, rows: pa.Table, mode: Any = "append", **more: Any) -> None:
        Path(self.table).parent.mkdir(exist_ok=True)
        write_deltalake(self.table, rows, mode=mode, **more)

    def change(self) -> None:
        """Make an insertion, an update, a deletion; and a version that changes nothing."""
        self.put(rows_of([7]))
        DeltaTable(self.table).update(predicate="id = 2", updates={"name": "'other'"})
        DeltaTable(self.table).delete("id = 1")
        DeltaTable(self.table).optimize.compact()

    def failure(self) -> str:
        """Return the code of what stops the source."""
        (error,) = self.drop.scan().failures
        return error.code

    def signed(self) -> Counter[tuple[Any, ...]]:
        """Return what is left of all changes: row to the sum of its signs."""
        sums: Counter[tuple[Any, ...]] = Counter()
        for row in self.drop.rows():
            sums[row["id"], row["name"]] += row["sign"]
        return Counter({row: n for row, n in sums.items() if n})

    def actual(self) -> Counter[tuple[Any, ...]]:
        table = DeltaTable(self.table).to_pyarrow_table()
        return Counter((row["id"], row["name"]) for row in table.to_pylist())


@pytest.fixture
def followed(tmp_path: Path) -> Followed:
    return Followed(tmp_path)


def test_a_table_comes_whole_and_then_version_by_version(followed: Followed):
    """The first increment has all rows, +1 each; each later one the changes of one version."""
    assert followed.drop.scan().accepted == 1
    assert [(row["id"], row["sign"]) for row in followed.drop.rows()] == [(i, 1) for i in range(4)]
    followed.change()
    assert followed.drop.scan().accepted == 3
    assert followed.drop.table(1).to_pylist() == [{"id": 7, "name": "n7", "sign": 1}]
    update = followed.drop.table(2).to_pylist()  # Delta says no order of the two
    assert sorted(update, key=lambda row: row["sign"]) == [
        {"id": 2, "name": "n2", "sign": -1},
        {"id": 2, "name": "other", "sign": 1},
    ]
    assert followed.drop.table(3).to_pylist() == [{"id": 1, "name": "n1", "sign": -1}]
    assert followed.signed() == followed.actual()
    report = followed.drop.scan()
    assert (report.accepted, report.failures, report.ready) == (0, (), 0)


def test_rows_that_an_overwriting_replaces_go_and_come(followed: Followed):
    """A version without files of changes: removed files are -1, added ones +1."""
    followed.drop.scan()
    followed.put(rows_of([3, 5]), "overwrite")
    followed.drop.scan()
    assert [row["sign"] for row in followed.drop.table(1).to_pylist()] == [-1] * 4 + [1] * 2
    assert followed.signed() == followed.actual()


@pytest.mark.parametrize(
    ("batch", "increments"),
    [
        (FileBatch(), [(1, 4)]),
        (FileBatch(files=2), [(1, 2), (3, 4)]),
        (FileBatch(bytes=1), [(1, 1), (2, 2), (3, 3)]),
    ],
)
def test_versions_are_taken_in_together_as_the_batch_says(
    batch: FileBatch, increments: list[tuple[int, int]], tmp_path: Path
):
    """Up to its number of versions and of bytes; one that changed nothing becomes nothing alone."""
    followed = Followed(tmp_path, batch)
    followed.drop.scan()
    followed.change()
    assert followed.drop.scan().accepted == len(increments)
    names = [name.split("-versions-") for name in followed.drop.names("finished")]
    taken = [tuple(map(int, one[1][:-5].split("-"))) for one in names if len(one) == 2]
    assert sorted(taken) == increments
    assert followed.signed() == followed.actual()


@pytest.mark.part(every=2)
@pytest.mark.parametrize(
    ("point", "passage"),
    [(p, at) for p in POINTS for at in ((1, 2, 3, 4) if p.startswith("feed") else (2,))],
)
def test_a_crash_anywhere_gives_each_version_once(point: str, passage: int, tmp_path: Path):
    """A crash at any effect of the snapshot and of three versions, a restart, no help."""
    followed = Followed(tmp_path)
    faults = PlannedFaults(point, passage=passage)
    followed.drop.start(faults)

    def play() -> None:
        followed.drop.scan()
        followed.change()
        followed.drop.scan()

    with pytest.raises(Crash):
        play()
    assert faults.passed[point] == passage
    followed.drop.start()
    followed.drop.recover()
    for _ in range(2):
        followed.drop.scan()
    assert followed.signed() == followed.actual()
    assert min(followed.signed().values()) == 1
    assert not followed.drop.names("claimed")


@pytest.mark.part(every=3)
@pytest.mark.parametrize("point", POINTS[1::2])
def test_a_crash_and_a_lost_database_give_each_version_once(point: str, tmp_path: Path):
    """Position, log and folders say what came, also if a later version would join its group."""
    machine = Machine(tmp_path, "sqlite")
    machine.drop.store.close()
    followed = Followed(tmp_path, FileBatch(), store=machine.drop.store)
    machine.drop = followed.drop
    machine.restart()
    followed.drop.scan()
    followed.change()
    faults = PlannedFaults(point)
    followed.drop.start(faults)
    with pytest.raises(Crash):
        followed.drop.scan()
    followed.put(rows_of([8]))
    machine.lose_store()
    followed.drop.recover()
    for _ in range(2):
        followed.drop.scan()
    assert followed.signed() == followed.actual()
    assert len(followed.drop.increments()) in (2, 3)
    followed.drop.store.close()


def test_an_older_position_that_was_restored_makes_no_version_come_twice(tmp_path: Path):
    """The source's log knows the key of what came, whichever versions are grouped by now."""
    followed = Followed(tmp_path, FileBatch())
    followed.drop.scan()
    position = Path(followed.drop.record.folder, "sources", "orders", "_feed.json")
    older = position.read_bytes()
    followed.change()
    followed.drop.scan()
    position.write_bytes(older)
    followed.put(rows_of([8]))
    followed.drop.start()
    followed.drop.scan()
    assert followed.signed() == followed.actual()
    assert [increment.records for increment in followed.drop.increments()] == [4, 4, 1]


def test_versions_that_a_roll_back_dropped_do_not_come_again(tmp_path: Path):
    """Neither if a crash kept the position from saying that they were claimed."""
    followed = Followed(tmp_path)
    followed.drop.scan()
    followed.put(rows_of([7]))
    for passage in (2, 1):  # behind the claim; then once more, when the version was accepted
        followed.drop.start(PlannedFaults("feed_position.before", passage=passage))
        with pytest.raises(Crash):
            followed.drop.scan()
    claims = followed.drop.store.claim_rows
    (claim,) = [one for one in claims.values() if one.index == 1]
    claims[claim.id] = replace(claim, status="withdrawn")
    followed.put(rows_of([8]))
    followed.drop.start()
    assert followed.drop.scan().accepted == 1
    assert [row["id"] for row in followed.drop.rows()] == [0, 1, 2, 3, 7, 8]
    assert not followed.drop.names("claimed")


def vanish(followed: Followed) -> None:
    shutil.rmtree(followed.table)


def replace_by_another(followed: Followed) -> None:
    shutil.rmtree(followed.table)
    for number in range(4):
        followed.put(rows_of([number]), configuration=FED if not number else None)


def go_back(followed: Followed) -> None:
    Path(followed.table, "_delta_log", f"{1:020d}.json").unlink()


def lose_the_next_entry(followed: Followed) -> None:
    followed.change()
    Path(followed.table, "_delta_log", f"{2:020d}.json").unlink()


def lose_old_entries(followed: Followed) -> None:
    followed.change()
    DeltaTable(followed.table).create_checkpoint()
    for version in range(4):
        Path(followed.table, "_delta_log", f"{version:020d}.json").unlink()


def set_property(name: str, value: str) -> Callable[[Followed], None]:
    def change(followed: Followed) -> None:
        table = DeltaTable(followed.table)
        table.alter.set_table_properties({name: value})

    return change


def map_columns(followed: Followed) -> None:
    set_property("delta.logRetentionDuration", "interval 2 days")(followed)
    path = Path(followed.table, "_delta_log", f"{2:020d}.json")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if "metaData" in line:
            line["metaData"]["configuration"]["delta.columnMapping.mode"] = "name"
    path.write_text("\n".join(map(json.dumps, lines)))


@pytest.mark.parametrize(
    ("happen", "code"),
    [
        (vanish, "delta_table_gone"),
        (replace_by_another, "delta_table_replaced"),
        (go_back, "delta_table_replaced"),
        (lose_the_next_entry, "delta_version_gone"),
        (lose_old_entries, "delta_version_gone"),
        (set_property("delta.enableChangeDataFeed", "false"), "delta_feed_disabled"),
        (map_columns, "delta_unsupported"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_what_happens_to_a_table_stops_its_source_with_a_code(
    happen: Callable[[Followed], None], code: str, followed: Followed
):
    """Nothing is taken in that is not the continuation of what came; and nothing is quarantined."""
    followed.put(rows_of([9]))
    followed.drop.scan()
    happen(followed)
    assert followed.failure() == code
    assert len(followed.drop.increments()) == 1
    assert not followed.drop.names("quarantine")


def test_a_table_without_a_change_feed_is_refused_before_its_rows_come(tmp_path: Path):
    """Otherwise its rows would be there, and what becomes of them would not be known."""
    followed = Followed(tmp_path)
    shutil.rmtree(followed.table)
    followed.put(rows_of([1]))
    assert followed.failure() == "delta_feed_disabled"
    assert not followed.drop.increments()


def test_a_source_begins_when_its_table_is_there(tmp_path: Path):
    """Until then it says that there is none."""
    followed = Followed(tmp_path)
    kept = f"{followed.table}-kept"
    os.rename(followed.table, kept)
    assert followed.failure() == "delta_table_gone"
    os.rename(kept, followed.table)
    assert followed.drop.scan().accepted == 1


@pytest.mark.parametrize("table", ["link", "/etc", "."])
def test_a_table_outside_of_the_allowed_folders_is_not_read(table: str, tmp_path: Path):
    """Neither by its path nor by a link in an allowed folder."""
    followed = Followed(tmp_path / "one", options={"table": table})
    outside = Followed(tmp_path / "two").table
    os.symlink(outside, tmp_path / "one" / "warehouse" / "link")
    assert followed.failure() == "delta_place_refused"


def test_a_removed_data_file_puts_its_version_aside_and_the_later_ones_wait(followed: Followed):
    """VACUUM removed what was not read: no later version passes it, until an operator decides."""
    followed.drop.scan()
    followed.put(rows_of([7]))
    (file,) = [Path(followed.table, uri) for uri in _added(followed, 1)]
    kept = file.with_suffix(".kept")
    file.rename(kept)
    followed.put(rows_of([8]))
    assert followed.failure() == "delta_changes_refused"
    (reason,) = followed.drop.reasons()
    assert reason["code"] == "delta_version_gone"
    assert len(followed.drop.increments()) == 1
    drop = followed.drop
    for number in range(1_001):  # dropped by people, and refused since
        stray: Any = (f"x{number}", f"stray{number}", 1, "quarantined", drop.now)
        drop.store.add_claim(drop.source().new_claim(*stray, reason={"code": "format_mismatch"}))
    assert followed.failure() == "delta_changes_refused"
    kept.rename(file)
    drop.pass_seconds(60)
    drop.folder.readmit(drop.source(), reason["claim"], None, AUTHOR)
    assert drop.scan().accepted == 2
    assert followed.signed() == followed.actual()


def _added(followed: Followed, version: int) -> list[str]:
    entry = Path(followed.table, "_delta_log", f"{version:020d}.json").read_text()
    actions = [json.loads(line) for line in entry.splitlines()]
    return [action["add"]["path"] for action in actions if "add" in action]


def test_a_table_is_not_followed_while_its_dataflow_is_drained(followed: Followed):
    """Its versions wait in the table, and come once the dataflow is resumed."""
    followed.drop.scan()
    running, followed.drop.record = (
        followed.drop.record,
        replace(followed.drop.record, desired="draining"),
    )
    followed.change()
    assert followed.drop.scan().accepted == 0
    followed.drop.record = running
    assert followed.drop.scan().accepted == 3
    assert followed.signed() == followed.actual()
