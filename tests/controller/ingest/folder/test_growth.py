"""A producer that still has its file open: what it writes later is reported, or was read with it.

It is reported once, as a claim in quarantine that says what was taken in.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import IO

import pytest

from controller.ingest.folder import finished_files
from controller.ingest.folder.finished_files import Stamp
from controller.ingest.folder.source_place import SourcePlace, kept_name
from controller.ingest.formats.file_bytes import open_regular
from tests.controller.ingest.harness import Drop, lines
from tests.planned_faults import Crash, PlannedFaults

SCHEMA = "id BIGINT, name STRING"
Write = Callable[[IO[bytes]], object]


def append(file: IO[bytes]) -> None:
    file.seek(0, os.SEEK_END)
    file.write(lines(2, start=70))


def overwrite(file: IO[bytes]) -> None:
    file.seek(0)
    file.write(b"#")


def truncate(file: IO[bytes]) -> None:
    file.truncate(3)


def touch(file: IO[bytes]) -> None:
    os.utime(file.fileno())


def rewrite_at_an_old_time(file: IO[bytes]) -> None:
    """As `cp -p` that stalled: it sets the time of its original at the end."""
    append(file)
    file.flush()
    os.utime(file.fileno(), (5, 5))


CHANGES: dict[Write, str] = {
    append: "file_grew",
    overwrite: "file_rewritten",
    truncate: "file_rewritten",
    rewrite_at_an_old_time: "file_grew",
}


class Producer:
    """Keeps a file of a drop folder open.

    Attributes:
        at: A point, and the passage of it, at which it writes.
    """

    def __init__(self, drop: Drop, name: str = "a", data: bytes = b"") -> None:
        drop.put(name, data or lines(3))
        os.utime(drop.incoming / name, (9, 9))
        self.file = open(drop.incoming / name, "r+b")  # noqa: SIM115 - kept open on purpose
        self.at: tuple[str, int] = ("", 0)
        self.write: Write = touch
        self.passed: dict[str, int] = {}

    def __call__(self, point: str) -> None:
        self.passed[point] = self.passed.get(point, 0) + 1
        if (point, self.passed[point]) == self.at:
            self.now(self.write)

    def now(self, write: Write) -> None:
        write(self.file)
        self.file.flush()


def shown(drop: Drop, code: str) -> dict[str, object]:
    """Expect one file that changed: as a claim, as a reason, and in quarantine; return why."""
    (accepted,) = [c for c in drop.store.claim_rows.values() if c.status == "accepted"]
    (claim,) = [c for c in drop.store.claim_rows.values() if c.status == "quarantined"]
    (reason,) = drop.reasons()
    assert claim.reason == reason
    assert (claim.id, claim.path, reason["code"]) == (f"{accepted.id}g", "a", code)
    assert drop.names("finished") == []
    assert (drop.place("quarantine") / f"{claim.id}-a").stat().st_size == claim.bytes
    assert [row["id"] for row in drop.rows()] == [0, 1, 2]
    return reason


@pytest.mark.parametrize("write", CHANGES)
@pytest.mark.parametrize(
    "at",
    [
        # Claimed and not read; read and not accepted; accepted and not moved; being moved; moved.
        *[("increment_file.after", 1), ("source_log.before", 1), ("source_log.after", 1)],
        *[("rename.before", 2), ("rename.after", 2)],
    ],
)
def test_what_is_written_while_a_file_is_taken_in_is_reported(
    write: Write, at: tuple[str, int], tmp_path: Path
):
    """At every step between the last byte that is read and the file's last place."""
    drop = Drop(tmp_path, SCHEMA)
    producer = Producer(drop)
    producer.at, producer.write = at, write
    drop.start(producer)
    report = drop.scan()
    if at == ("rename.after", 2) and not report.quarantined:
        report = drop.scan()  # stamped between the move and the write
    assert report.quarantined == 1
    shown(drop, CHANGES[write])


@pytest.mark.parametrize("write", CHANGES)
@pytest.mark.parametrize("restart", [False, True])
def test_what_is_written_later_is_reported(write: Write, restart: bool, tmp_path: Path):
    """By the next pass, or behind a restart by the next cleaning; and once."""
    drop = Drop(tmp_path, SCHEMA)
    producer = Producer(drop)
    assert drop.scan().accepted == 1
    producer.now(write)
    if restart:
        drop.start()
        drop.recover()
        drop.folder.clean(drop.record, drop.dataflow)
    else:
        assert drop.scan().quarantined == 1
    shown(drop, CHANGES[write])
    for _ in range(2):
        assert drop.scan().quarantined == 0
        drop.folder.clean(drop.record, drop.dataflow)
    shown(drop, CHANGES[write])


@pytest.mark.parametrize("write", CHANGES)
def test_what_is_written_days_later_is_reported(write: Write, tmp_path: Path):
    """Until the file is removed; it is compared before it goes."""
    drop = Drop(tmp_path, SCHEMA)
    producer = Producer(drop)
    drop.scan()
    drop.pass_seconds(30 * 86_400)
    producer.now(write)
    assert drop.scan().quarantined == 0, "a pass looks at the newest only"
    drop.folder.clean(drop.record, drop.dataflow)
    shown(drop, CHANGES[write])


def test_all_recent_files_have_their_turn(tmp_path: Path):
    """However many files were finished since, a few passes compare the oldest again, and all."""
    drop = Drop(tmp_path, SCHEMA)
    producer = Producer(drop)
    assert drop.scan().accepted == 1
    (accepted,) = drop.store.claim_rows.values()
    source = drop.dataflow.sources["orders"]
    place = SourcePlace.of(drop.record, drop.dataflow, source, tmp_path / "drop")
    recent = drop.folder._finished
    for number in range(3_000):
        claim = replace(accepted, id=f"{number:032x}", path=f"b{number}")
        path = place.finished / kept_name(claim.id, claim.path)
        path.write_bytes(b"")
        assert recent.finished(place, claim, Stamp.of(path), lambda: False) == 0
    for write in (touch, append):
        producer.now(write)
        reported = [drop.scan().quarantined for _ in range(4)]
        assert sum(reported) == (write is append)


def test_a_pass_says_when_recent_files_are_compared_again(tmp_path: Path):
    """Soon at first, as a producer that goes on does so soon; in the end not any more."""
    drop = Drop(tmp_path, SCHEMA)
    assert drop.scan().again_at is None
    drop.put("a.jsonl", lines(2))
    seconds = []
    for passed in (0, 1, 9, 90, 400, 200):
        drop.pass_seconds(passed)
        again_at = drop.scan().again_at
        seconds.append(None if again_at is None else (again_at - drop.now).total_seconds())
    assert seconds == [1, 1, 10, 60, 60, None]


@pytest.mark.parametrize("restart", [False, True])
def test_a_file_that_is_touched_or_left_alone_stays_finished(restart: bool, tmp_path: Path):
    """Only its content counts; it is hashed once, not at each cleaning."""
    drop = Drop(tmp_path, SCHEMA)
    producer = Producer(drop)
    Producer(drop, "b", lines(2, start=9))
    assert drop.scan().accepted == 2
    producer.now(touch)
    if restart:
        drop.start()
    drop.scan()
    drop.folder.clean(drop.record, drop.dataflow)
    assert len(drop.names("finished")) == 2
    assert drop.reasons() == []


def test_a_file_is_hashed_once_more_only_when_it_was_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A cleaning of many files costs a look at each name, also behind a restart."""
    drop = Drop(tmp_path, SCHEMA)
    producers = [Producer(drop, name, lines(1, start=ord(name))) for name in "abc"]
    drop.scan()
    opened: list[Path] = []

    def opens(path: Path) -> object:
        opened.append(path)
        return open_regular(path)

    monkeypatch.setattr(finished_files, "open_regular", opens)
    drop.folder.clean(drop.record, drop.dataflow)
    assert opened == []
    drop.start()
    producers[0].now(touch)
    for _ in range(2):
        drop.folder.clean(drop.record, drop.dataflow)
    assert len(opened) == 1


def test_the_reason_says_what_came_in_and_what_to_do(tmp_path: Path):
    """The command that it names gives the rest, which is taken in like any file."""
    drop = Drop(tmp_path, SCHEMA)
    producer = Producer(drop)
    drop.scan()
    producer.now(append)
    drop.scan()
    reason = shown(drop, "file_grew")
    (accepted,) = [c for c in drop.store.claim_rows.values() if c.status == "accepted"]
    assert reason["ingested"] == {
        "claim": accepted.id,
        "increment": 0,
        "bytes": len(lines(3)),
        "sha256": accepted.sha256,
    }
    (kept,) = drop.place("quarantine").glob("*-a")
    assert f"tail -c +{len(lines(3)) + 1} '{kept}'" in str(reason["message"])
    drop.put("rest", kept.read_bytes()[len(lines(3)) :])
    drop.scan()
    assert [row["id"] for row in drop.rows()] == [0, 1, 2, 70, 71]


def test_a_line_that_was_taken_in_cut_is_reported(tmp_path: Path):
    """What was read ended inside a line: its last record may be wrong."""
    drop = Drop(tmp_path, "name STRING", "csv", options={"header": "false"})
    producer = Producer(drop, data=b"one\ntwo\nthr")
    drop.scan()
    producer.now(lambda file: (file.seek(0, os.SEEK_END), file.write(b"ee\n")))
    drop.scan()
    (reason,) = drop.reasons()
    assert "may be cut" in reason["message"]


@pytest.mark.parametrize(
    "point",
    [
        *("data_file.before", "data_file.after", "rename.before", "rename.after"),
        *("claim.before", "claim.after"),
    ],
)
def test_a_change_is_reported_once_wherever_it_is_killed(point: str, tmp_path: Path):
    """The reason, then the move, then the claim; a restart finds each half."""
    drop = Drop(tmp_path, SCHEMA)
    producer = Producer(drop)
    drop.scan()
    producer.now(append)
    drop.start(PlannedFaults(point))
    with pytest.raises(Crash):
        drop.folder.clean(drop.record, drop.dataflow)
    drop.start()
    drop.recover()
    drop.scan()
    drop.folder.clean(drop.record, drop.dataflow)
    shown(drop, "file_grew")


def test_a_repeated_file_that_grows_is_reported_too(tmp_path: Path):
    """Its first bytes are known from another file; those behind them from none."""
    drop = Drop(tmp_path, SCHEMA)
    Producer(drop)
    drop.scan()
    producer = Producer(drop)
    assert drop.scan().duplicates == 1
    producer.now(append)
    assert drop.scan().quarantined == 1
    (reason,) = drop.reasons()
    assert reason["code"] == "file_grew"


def test_a_file_that_changes_between_listing_and_claim_waits_on(tmp_path: Path):
    """It is not whole yet: it is no more eligible, and nothing is rejected."""
    drop = Drop(tmp_path, SCHEMA, settle_seconds=2)
    drop.put("first", lines(1, start=50))
    os.utime(drop.incoming / "first", (1, 1))
    producer = Producer(drop)
    producer.at, producer.write = ("claim.before", 1), append
    drop.start(producer)
    drop.scan()
    drop.pass_seconds(2)
    report = drop.scan()
    assert (report.accepted, report.quarantined) == (1, 0)
    assert drop.names("incoming") == ["a"]
    drop.scan()
    drop.pass_seconds(2)
    assert drop.scan().accepted == 1
    assert [row["id"] for row in drop.rows()] == [50, 0, 1, 2, 70, 71]
