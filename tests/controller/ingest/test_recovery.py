"""A crash at any point, then recovery: nothing is lost and nothing comes twice."""

from __future__ import annotations

import errno
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controller.ingest.folder import claims
from controller.ingest.folder.folder_report import ScanReport
from controller.ingest.folder.quarantine_folder import kept_files
from controller.ingest.limits import IngestLimits
from controller.ingest.reader import file_reader
from controller.store.base import ClaimRecord, open_store
from tests.controller.ingest.harness import DictStore, Drop, lines
from tests.planned_faults import Crash, PlannedFaults

SCHEMA = "id BIGINT, name STRING"
SIDES = ("before", "after")
POINTS = tuple(
    f"{effect}.{side}"
    for effect in ("claim", "rename", "data_sync", "increment_file", "source_log")
    for side in ("before", "after")
)


class Machine:
    """A drop folder over a store that may be SQLite; crashes keep disk and store."""

    def __init__(self, root: Path, kind: str) -> None:
        self.kind, self.root = kind, root
        self.url = f"sqlite:///{root}/store.db"
        self.drop = Drop(root, SCHEMA, store=self._store())
        if kind == "sqlite":
            self.drop.store.register(self.drop.record, {"count": {"items": "orders"}})

    def _store(self) -> Any:
        return open_store(self.url) if self.kind == "sqlite" else DictStore()

    def restart(self) -> None:
        if self.kind == "sqlite":
            self.drop.store.close()
            self.drop.store = self._store()
        self.drop.start()

    def lose_store(self) -> None:
        """Start with an empty store; the disk stays."""
        if self.kind == "sqlite":
            self.drop.store.close()
            for path in self.root.glob("store.db*"):
                path.unlink()
        self.drop.store = self._store()
        if self.kind == "sqlite":
            self.drop.store.register(self.drop.record, {"count": {"items": "orders"}})
        self.drop.start()

    def claims(self) -> list[ClaimRecord]:
        """Return all claims in the order in which they were made."""
        if self.kind == "sqlite":
            return list(reversed(self.drop.store.claims("shop").items))
        return list(self.drop.store.claim_rows.values())

    def statuses(self) -> dict[str, str]:
        return {c.path: c.status for c in self.claims()}

    def indexed(self) -> list[int]:
        if self.kind == "sqlite":
            actual = self.drop.store.increments("shop", "orders").items
            queue = self.drop.store.connectors("shop")["count"]["items"]
            assert sorted(i.increment.index for i in actual) == sorted(
                e.increment.index for e in queue.queue
            )
            return sorted(i.increment.index for i in actual)
        return sorted(index for _, index in self.drop.store.increment_rows)


@pytest.fixture(params=["dict", "sqlite"])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path, request.param)
    yield made
    if made.kind == "sqlite":
        made.drop.store.close()


def check_once(machine: Machine, names: int) -> None:
    """Every file became exactly one increment; nothing is left behind."""
    drop = machine.drop
    assert sorted(row["id"] for row in drop.rows()) == list(range(names))
    assert machine.indexed() == list(range(names))
    assert set(machine.statuses().values()) == {"accepted"}
    assert drop.names("claimed") == drop.names("incoming") == []
    assert len(drop.names("finished")) == names
    named = {f.path for increment in drop.increments() for f in increment.files}
    tables = Path(drop.record.folder)
    assert {str(p.relative_to(tables)) for p in tables.rglob("*.parquet")} == named
    assert not [p for p in machine.root.rglob("*") if p.name.endswith(".tmp")]


@pytest.mark.part(every=4)
@pytest.mark.parametrize("passage", [1, 2])
@pytest.mark.parametrize("point", POINTS)
def test_crash_anywhere_gives_each_file_once(machine: Machine, point: str, passage: int):
    """Two files, a crash at one passage of one point, a restart, no help."""
    drop = machine.drop
    if point.startswith(("claim.", "data_sync.", "source_log.")):  # which a group passes once
        drop.limit(IngestLimits(group_files=1))
    for i in range(2):
        drop.put(f"f{i}", lines(1, start=i))
    faults = PlannedFaults(point, passage=passage)
    drop.start(faults)
    with pytest.raises(Crash):
        drop.scan()
    assert faults.passed[point] == passage
    machine.restart()
    drop.recover()
    drop.scan()
    check_once(machine, 2)


@pytest.mark.parametrize("passage", range(1, 7))
def test_a_crash_between_the_moves_of_a_group_gives_each_file_once(passage: int, tmp_path: Path):
    """Files are claimed, and moved away, three at a time; a crash is before any of the moves."""
    machine = Machine(tmp_path, "dict")
    drop = machine.drop
    for i in range(3):
        drop.put(f"f{i}", lines(1, start=i))
    drop.start(PlannedFaults("rename.before", passage=passage))
    with pytest.raises(Crash):
        drop.scan()
    machine.restart()
    drop.recover()
    drop.scan()
    check_once(machine, 3)
    assert [row["id"] for row in drop.rows()] == [0, 1, 2]


@pytest.mark.part(every=2)
@pytest.mark.parametrize(
    ("point", "passage"),
    [
        *((f"increment_file.{side}", n) for side in ("before", "after") for n in (1, 2, 3)),
        *((f"{effect}.{side}", 1) for effect in ("data_sync", "source_log") for side in SIDES),
    ],
)
def test_a_crash_between_the_steps_of_a_group_gives_each_file_once(
    machine: Machine, point: str, passage: int
):
    """Three files are synced, named, logged and indexed together, also if the database is lost."""
    drop = machine.drop
    for i in range(3):
        drop.put(f"f{i}", lines(1, start=i))
    faults = PlannedFaults(point, passage=passage)
    drop.start(faults)
    with pytest.raises(Crash):
        drop.scan()
    logged = len(drop.increments())
    assert logged == (3 if point == "source_log.after" else 0)
    assert machine.indexed() == []
    machine.restart()
    drop.recover()
    assert len(machine.indexed()) == logged
    drop.scan()
    check_once(machine, 3)
    assert [row["id"] for row in drop.rows()] == [0, 1, 2]


def test_a_file_is_never_known_by_one_that_is_not_accepted(machine: Machine):
    """Race: (1) two equal files are read together (2) a crash before the first is accepted
    (3) the first is rejected at the next try: the second one's records must come."""
    drop = machine.drop
    place = drop.dataflow.sources["orders"]
    drop.dataflow = replace(drop.dataflow, sources={"orders": replace(place, duplicates="skip")})
    for name in ("f0", "f1"):
        drop.put(name, lines(1))
    drop.start(PlannedFaults("source_log.before"))
    with pytest.raises(Crash):
        drop.scan()
    (first,) = (name for name in drop.names("claimed") if name.endswith("f0"))
    (drop.place("claimed") / first).write_bytes(b"x" * len(lines(1)))
    machine.restart()
    drop.recover()
    drop.scan()
    assert machine.statuses() == {"f0": "quarantined", "f1": "accepted"}
    assert [row["id"] for row in drop.rows()] == [0]


def test_files_that_are_settled_together_are_named_after_their_increments(machine: Machine):
    """Rejected and known ones between them take no number."""
    drop = machine.drop
    place = drop.dataflow.sources["orders"]
    drop.dataflow = replace(drop.dataflow, sources={"orders": replace(place, duplicates="skip")})
    contents = {"a": lines(1), "b": b"x\n", "c": lines(1), "d": lines(1, start=1), "e": b"x\n"}
    for name, data in contents.items():
        drop.put(name, data)
    report = drop.scan()
    assert (report.accepted, report.quarantined, report.duplicates) == (2, 2, 1)
    accepted, skipped = {"a": "accepted", "d": "accepted"}, {"c": "duplicate"}
    assert machine.statuses() == {**accepted, **skipped, "b": "quarantined", "e": "quarantined"}
    (known,) = (claim for claim in machine.claims() if claim.path == "c")
    assert known.same_as is not None
    assert (known.same_as["file"], known.same_as["index"]) == ("a", 0)
    for index, increment in enumerate(drop.increments()):
        (file,) = increment.files
        assert f"/{index:012d}-00000-" in file.path
    assert [row["id"] for row in drop.rows()] == [0, 1]
    parts = list(Path(drop.record.folder).rglob("*.parquet*"))
    assert len(parts) == 2


def test_what_was_read_before_a_failure_is_settled(tmp_path: Path):
    """A device that fails at the third file keeps no other waiting, and nothing is read twice."""
    drop = Drop(tmp_path, SCHEMA)
    read = list[str]()

    def failing(
        request: file_reader.ReadRequest, stopping: Any = None, hurried: Any = None
    ) -> file_reader.ReadResult:
        read.append(request.path)
        if len(read) == 3:
            raise OSError(5, "Input/output error")
        return file_reader.read_files(request)

    for i in range(4):
        drop.put(f"f{i}", lines(1, start=i))
    drop.start(reader=failing)
    report = drop.scan()
    assert (report.accepted, len(report.failures)) == (2, 1)
    assert [row["id"] for row in drop.rows()] == [0, 1]
    assert drop.scan().accepted == 2
    assert [row["id"] for row in drop.rows()] == [0, 1, 2, 3]
    assert len(read) == 5


def test_what_a_crash_left_claimed_costs_one_look_at_what_was_moved_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A folder of finished files may hold a million names, and a group has many claims."""
    machine, looks = Machine(tmp_path, "dict"), Counter[str]()
    drop = machine.drop
    for i in range(20):
        drop.put(f"f{i:02d}", lines(1, start=i))
    drop.start(PlannedFaults("rename.before", passage=5))
    with pytest.raises(Crash):
        drop.scan()
    machine.restart()
    drop.recover()
    kept = kept_files

    def counting(folder: Path) -> dict[str, Path]:
        looks[folder.name] += 1
        return kept(folder)

    monkeypatch.setattr(claims, "kept_files", counting)
    drop.scan()
    check_once(machine, 20)
    assert looks == {"finished": 1, "quarantine": 1}


@pytest.mark.part(every=2)
@pytest.mark.parametrize("second", POINTS)
@pytest.mark.parametrize("first", POINTS)
def test_crash_while_recovering_from_a_crash(first: str, second: str, tmp_path: Path):
    """Recovery may be killed as well, and goes on the next time."""
    machine = Machine(tmp_path, "dict")
    drop = machine.drop
    drop.put("f0", lines(1))
    drop.start(PlannedFaults(first))
    with pytest.raises(Crash):
        drop.scan()
    drop.start(PlannedFaults(second))
    try:
        drop.recover()
        drop.scan()
    except Crash:
        pass  # a point that the recovery of this crash does not pass is no crash
    machine.restart()
    drop.recover()
    drop.scan()
    check_once(machine, 1)


def test_recovery_reads_no_file(machine: Machine, monkeypatch: pytest.MonkeyPatch):
    """What was claimed, and a file that no claim names, are left to the first pass as they are."""
    drop = machine.drop
    drop.put("f0", lines(1))
    drop.start(PlannedFaults("rename.after"))
    with pytest.raises(Crash):
        drop.scan()
    (drop.place("claimed") / "stray").write_bytes(lines(1, start=1))
    machine.restart()
    before = drop.names("claimed")
    with monkeypatch.context() as patch:
        patch.setattr(file_reader, "ClaimedContent", _refuse)
        assert drop.recover() == ScanReport()
    assert drop.names("claimed") == before
    drop.scan()
    check_once(machine, 2)


def _refuse(*_: object) -> None:
    raise AssertionError("a file is read")


def test_recovery_removes_what_killed_writers_left(tmp_path: Path):
    """Beside the increments, in their log and index, in the rejects table and in quarantine."""
    drop = Drop(tmp_path, SCHEMA)
    increments, rejects = Path(drop.source().increments), Path(drop.record.folder, "rejects/orders")
    log, index = increments / "_log", increments / "_objects"
    table_log, quarantine = rejects / "_delta_log", drop.place("quarantine")
    for folder in (increments, log, log / "sealed", index, rejects, table_log, quarantine):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".1.json.0.tmp").touch()
    drop.recover()
    assert not list(tmp_path.rglob("*.tmp"))


def test_lost_store_is_filled_again_from_the_source_log(machine: Machine):
    """The database may be lost: increments, claims and identities come back."""
    drop = machine.drop
    for i in range(3):
        drop.put(f"f{i}", lines(1, start=i))
        drop.scan()
    machine.lose_store()
    assert drop.recover().accepted == 3
    check_once(machine, 3)
    drop.put("f1", lines(1, start=1))
    assert drop.scan().duplicates == 1
    drop.put("new", lines(1, start=3))
    assert drop.scan().accepted == 1
    assert machine.indexed() == [0, 1, 2, 3]


@pytest.mark.part(every=2)
@pytest.mark.parametrize("passage", [0, 1, 2])
@pytest.mark.parametrize("point", ["claim.before", "claim.after"])
def test_a_lost_store_learns_what_is_in_quarantine(
    point: str, passage: int, machine: Machine
) -> None:
    """P1 and P6: as before the loss, if recovery dies in between, too; nothing else is claimed."""
    drop = machine.drop
    for name, data in (("bad1", b"x\n"), ("good", lines(1)), ("b-a d2", b"y\n"), ("bad3", b"z\n")):
        drop.put(name, data)
        drop.scan()
        drop.pass_seconds(1)
    before = [claim for claim in machine.claims() if claim.status == "quarantined"]
    assert [claim.path for claim in before] == ["bad1", "b-a d2", "bad3"]
    places = ["foreign-file", "0123456789ab-_CLOSE", "0123456789ab-_CLOSE.reason.json"]
    for name in places:
        (drop.place("quarantine") / name).write_bytes(b"{}")
    damaged = drop.place("quarantine") / f"{before[2].id}-bad3.reason.json"
    damaged.write_bytes(b"{")
    machine.lose_store()
    if passage:
        drop.start(PlannedFaults(point, passage=passage))
        with pytest.raises(Crash):
            drop.recover()
        machine.restart()
    for _ in range(2):
        drop.recover()
        good, *after = machine.claims()
        assert (good.path, good.status) == ("good", "accepted")
        assert [replace(one, sequence=0, reason=None) for one in after] == [
            replace(one, sequence=0, reason=None) for one in before
        ]
        assert [one.reason for one in after[:2]] == [one.reason for one in before[:2]]
        assert after[2].reason is not None
        assert after[2].reason["code"] == "reason_unreadable"
    assert drop.scan() == ScanReport()
    assert len(drop.rows()) == 1


def test_lost_store_with_a_claimed_file_takes_it_again(tmp_path: Path):
    """A copy in `claimed` that no claim names goes back to `incoming`."""
    drop = Drop(tmp_path, SCHEMA)
    drop.put("f0", lines(1))
    drop.start(PlannedFaults("rename.after"))
    with pytest.raises(Crash):
        drop.scan()
    drop.store = DictStore()
    drop.start()
    drop.recover()
    assert drop.scan().accepted == 1
    assert len(drop.rows()) == 1


def test_crash_between_quarantine_and_store_keeps_the_verdict(tmp_path: Path):
    """A rejected file that was moved but not settled is rejected again, once."""
    drop = Drop(tmp_path, SCHEMA)
    drop.put("bad", b"x\n")
    settle = drop.store.update_claim

    def crash(claim: Any) -> None:
        if claim.status == "quarantined":
            raise Crash("store")
        settle(claim)

    drop.store.update_claim = crash
    with pytest.raises(Crash):
        drop.scan()
    drop.store.update_claim = settle
    drop.start()
    drop.recover()
    assert drop.scan().quarantined == 1
    assert len(drop.reasons()) == 1
    assert [c.status for c in drop.store.claim_rows.values()] == ["quarantined"]
    assert drop.names("claimed") == []


@pytest.mark.parametrize("status", ["duplicate", "accepted"])
def test_failed_move_to_finished_is_tried_again(status: str, tmp_path: Path):
    """A settled file that stays in `claimed` never comes twice."""
    drop = Drop(tmp_path, SCHEMA)
    if status == "duplicate":
        drop.put("f0", lines(1))
        drop.scan()
    drop.put("f0", lines(1))
    error = OSError(errno.EIO, "Input/output error")
    drop.start(PlannedFaults("rename.before", passage=2, error=error))
    drop.scan()
    assert len(drop.names("claimed")) == 1
    drop.start()
    drop.scan()
    assert drop.names("claimed") == []
    assert len(drop.increments()) == 1
    assert [c.status for c in drop.store.claim_rows.values()][-1] == status


def test_file_that_replaced_the_claimed_name_settles_anew(tmp_path: Path):
    """Race: (1) claim recorded (2) killed (3) the producer begins to write the name again."""
    drop = Drop(tmp_path, SCHEMA, settle_seconds=1)
    drop.put("f0", lines(1))
    drop.scan()
    drop.pass_seconds(1)
    drop.start(PlannedFaults("rename.before"))
    drop.scan()
    drop.pass_seconds(1)
    with pytest.raises(Crash):
        drop.scan()
    drop.put("f0", lines(1)[:5])
    drop.start()
    drop.recover()
    assert drop.scan().accepted == 0
    drop.put("f0", lines(7))
    drop.scan()
    drop.pass_seconds(1)
    assert drop.scan().accepted == 1
    assert len(drop.rows()) == 7
    assert len(drop.store.claim_rows) == 1


def test_whole_folder_copied_elsewhere_still_works(tmp_path: Path):
    """No absolute path is recorded: tables and log may be moved with their folder."""
    drop = Drop(tmp_path / "one", SCHEMA)
    drop.put("f0", lines(2))
    drop.scan()
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    moved = Drop(tmp_path / "two", SCHEMA)
    assert moved.recover().accepted == 1
    assert len(moved.rows()) == 2


def test_a_controller_that_was_deposed_removes_nothing_of_its_successor(tmp_path: Path):
    """Race: (1) it stalls before it names a part (2) another one recovers and accepts the file
    (3) it goes on, and fails: what it discards is its own."""
    drop = Drop(tmp_path, SCHEMA)
    other = Drop(tmp_path, SCHEMA, store=drop.store)
    stalled: list[str] = []

    def stalls(point: str) -> None:
        if point == "increment_file.before" and not stalled:
            stalled.append(point)
            other.recover()
            assert other.scan().accepted == 1
            raise OSError(5, "Input/output error")

    drop.put("a", lines(2))
    drop.start(stalls)
    drop.scan()
    assert stalled
    assert [row["id"] for row in drop.rows()] == [0, 1]


def test_a_lost_newest_entry_stops_the_source_before_the_next_one_is_put(machine: Machine):
    """The database knows it: neither a start nor a pass goes on behind the gap."""
    drop = machine.drop
    for group in range(2):
        for number in range(2):
            drop.put(f"{group}{number}", lines(1, start=2 * group + number))
        assert drop.scan().accepted == 2
    log = Path(drop.record.folder) / "sources" / "orders" / "_log"
    newest = sorted(log.glob("*.json"))[-1]
    whole = newest.read_bytes()
    newest.unlink()
    drop.put("next", lines(1, start=4))
    machine.restart()
    assert [error.code for error in drop.recover().failures] == ["source_failed"]
    (words,) = drop.folder.troubled("shop")
    assert newest.name in words
    assert drop.scan().accepted == 0
    assert not list(log.glob("*4.json"))
    newest.write_bytes(whole)
    machine.restart()
    drop.recover()
    assert drop.scan().accepted == 1
    check_once(machine, 5)
