"""The protocol of the drop folder: what is claimed, when, in which order, and once."""

from __future__ import annotations

import errno
import hashlib
import io
import itertools
import os
import queue
import shutil
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cbp.engine.storage.files import LocalFiles
from cbp.errors import DataflowInvalidError, DiskFullError, LogConflictError, OperatingError
from cbp.model.flow.increment import Increment
from controller.ingest.errors import DataflowDrainsError, DropFolderError, IntakeStoppedError
from controller.ingest.formats.file_bytes import never
from controller.ingest.limits import IngestLimits
from controller.ingest.reader.file_reader import FileReader, ReadRequest, ReadResult, read_files
from controller.ingest.source_log import ArrivedFile, SourceEntry, SourceLog
from tests.controller.ingest.harness import DictStore, Drop, lines
from tests.planned_faults import PlannedFaults

SCHEMA = "id BIGINT, name STRING"


def test_file_becomes_one_increment_and_is_finished(tmp_path: Path):
    """The whole way: increment file, source log, store, finished folder, one call."""
    drop = Drop(tmp_path, SCHEMA)
    drop.put("day 1.jsonl", lines(3))
    assert drop.scan().accepted == 1
    (record,) = drop.store.increment_rows.values()
    (claim,) = drop.store.claim_rows.values()
    (increment,) = drop.increments()
    digest = hashlib.sha256(lines(3)).hexdigest()
    assert record.increment == increment
    assert record.origin["files"] == ["day 1.jsonl"]
    assert record.origin["sha256"] == claim.sha256 == digest
    assert (claim.status, claim.index, claim.bytes) == ("accepted", 0, len(lines(3)))
    assert increment.files[0].path == f"sources/orders/000000000000-00000-{claim.id}.parquet"
    assert drop.names("finished") == [f"{claim.id}-day_1.jsonl"]
    assert drop.names("incoming") == drop.names("claimed") == []
    assert [row["id"] for row in drop.rows()] == [0, 1, 2]
    assert drop.accepted_calls == 1


def test_file_is_taken_only_when_it_was_still_for_the_settle_time(tmp_path: Path):
    """Half-written files are not taken: every growth begins the wait anew."""
    drop = Drop(tmp_path, SCHEMA, settle_seconds=2)
    drop.put("a", lines(1))
    assert drop.scan().waiting == 1
    drop.pass_seconds(3)
    drop.put("a", lines(2))
    assert (drop.scan().accepted, drop.scan().waiting) == (0, 1)
    drop.pass_seconds(1.5)
    assert drop.scan().waiting == 1
    drop.pass_seconds(0.5)
    assert drop.scan().accepted == 1
    assert len(drop.rows()) == 2


def test_one_listing_is_never_enough(tmp_path: Path):
    """After a pause of the service, a file met for the first time waits."""
    drop = Drop(tmp_path, SCHEMA, settle_seconds=1)
    drop.pass_seconds(3600)
    drop.put("a", lines(1))
    assert drop.scan().waiting == 1


def test_clock_that_is_set_back_only_lengthens_the_wait(tmp_path: Path):
    """No file is lost or taken early when our own clock jumps."""
    drop = Drop(tmp_path, SCHEMA, settle_seconds=2)
    drop.put("a", lines(1))
    drop.scan()
    drop.pass_seconds(-3600)
    assert drop.scan().waiting == 1
    drop.pass_seconds(2)
    assert drop.scan().accepted == 1


def test_times_of_files_do_not_decide_whether_they_are_taken(tmp_path: Path):
    """A producer whose clock is ten minutes off, or years, loses nothing."""
    drop = Drop(tmp_path, SCHEMA, settle_seconds=1)
    for name, seconds in (("old", 0), ("future", 4_000_000_000)):
        drop.put(name, lines(1, start=seconds))
        os.utime(drop.incoming / name, (seconds, seconds))
    drop.scan()
    drop.pass_seconds(1)
    assert drop.scan().accepted == 2


@pytest.mark.parametrize("name", [".hidden", "a.part", "a.tmp", "a.crdownload", "a.jsonl~"])
def test_unfinished_names_are_left_alone(name: str, tmp_path: Path):
    """What a producer marks as unfinished is not listed, until it is renamed."""
    drop = Drop(tmp_path, SCHEMA)
    drop.put(name, lines(1))
    report = drop.scan()
    assert (report.accepted, report.waiting) == (0, 0)
    os.rename(drop.incoming / name, drop.incoming / "done.jsonl")
    assert drop.scan().accepted == 1


@pytest.mark.parametrize("end", [".filepart", ".1a2b3c4d.partial", "._COPYING_"])
def test_a_file_that_a_tool_writes_in_two_halves_is_taken_once(end: str, tmp_path: Path):
    """Under the tool's own name, however long it takes; whole under the name that it gets then."""
    drop = Drop(tmp_path, SCHEMA, settle_seconds=1)
    written = drop.incoming / f"day.jsonl{end}"
    for half in (lines(1), lines(1, start=1)):
        with written.open("ab") as file:
            file.write(half)
        for _ in range(4):
            drop.pass_seconds(1)
            assert (drop.scan().accepted, drop.names("claimed")) == (0, [])
    written.rename(drop.incoming / "day.jsonl")
    drop.scan()
    drop.pass_seconds(1)
    assert drop.scan().accepted == 1
    assert [row["id"] for row in drop.rows()] == [0, 1]


def test_a_source_may_say_which_names_are_unfinished(tmp_path: Path):
    """In the listing, in what is shown, and in what a manifest may name."""
    drop = Drop(tmp_path, SCHEMA, unfinished=(".wip",))
    for name in ("a.wip", "b.tmp"):
        drop.put(name, lines(1))
    (shown,) = drop.folder.look(drop.record, drop.dataflow)
    assert (shown["waiting"], [one["name"] for one in shown["oldest_unclaimed"]]) == (
        1,
        ["a.wip"],
    )
    drop.put("_MANIFEST.json", b'{"files": [{"name": "a.wip", "bytes": 1}]}')
    report = drop.scan()
    assert (report.accepted, report.quarantined) == (1, 1)
    assert [reason["code"] for reason in drop.reasons()] == ["manifest_mismatch"]


@pytest.mark.parametrize(
    "name",
    [
        *("_SUCCESS", "_x", "with space", "日本.jsonl", "new\nline", "a..b", "*[x]{y}?"),
        *("-rf", "%2e%2e%2f", "a'b\"c;d", "x" * 255, "a\\b", "con"),
    ],
)
def test_any_name_is_taken_and_none_reaches_a_path(name: str, tmp_path: Path):
    """Names are evidence: what we write is named by ids and safe characters."""
    drop = Drop(tmp_path, SCHEMA)
    drop.put(name, lines(1))
    assert drop.scan().accepted == 1
    (record,) = drop.store.increment_rows.values()
    assert record.origin["files"] == [name]
    (kept,) = drop.names("finished")
    assert set(kept) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def test_name_that_is_no_utf8_is_shown_escaped(tmp_path: Path):
    """Bytes that are no text become text that every store can hold."""
    drop = Drop(tmp_path, SCHEMA)
    drop.put(b"caf\xe9.jsonl", b"[]")
    assert drop.scan().quarantined == 1
    (reason,) = drop.reasons()
    assert reason["file"] == "caf\\xe9.jsonl"


def test_links_fifos_and_folders_are_not_files(tmp_path: Path):
    """Nothing but a regular file is opened; the others stay and are counted."""
    drop = Drop(tmp_path, SCHEMA)
    secret = tmp_path / "secret"
    secret.write_bytes(lines(1))
    (drop.incoming / "link").symlink_to(secret)
    (drop.incoming / "folder").mkdir()
    os.mkfifo(drop.incoming / "fifo")
    report = drop.scan()
    assert (report.accepted, report.quarantined, report.ignored) == (0, 0, 3)
    assert secret.exists()


def test_link_that_replaces_a_file_after_the_listing_is_not_followed(tmp_path: Path):
    """Race: (1) listed as a file (2) replaced by a link (3) renamed: the link is rejected."""
    drop = Drop(tmp_path, SCHEMA)
    secret = tmp_path / "secret"
    secret.write_bytes(lines(1))

    def swap(point: str) -> None:
        if point == "rename.before" and (drop.incoming / "a").exists():
            (drop.incoming / "a").unlink()
            (drop.incoming / "a").symlink_to(secret)

    drop.put("a", lines(1))
    drop.start(swap)
    assert drop.scan().quarantined == 1
    assert drop.reasons()[0]["code"] == "not_regular"
    assert not drop.increments()


def test_a_retry_is_skipped_and_shown(tmp_path: Path):
    """A file of the same name and content is the same file."""
    drop = Drop(tmp_path, SCHEMA)
    drop.put("a", lines(5))
    drop.scan()
    drop.put("a", lines(5))
    assert drop.scan().duplicates == 1
    assert [c.status for c in drop.store.claim_rows.values()] == ["accepted", "duplicate"]
    assert len(drop.increments()) == 1
    assert len(drop.names("finished")) == 2
    assert len(list(Path(drop.record.folder).rglob("*.parquet"))) == 1


def test_same_name_with_new_content_may_be_a_new_increment(tmp_path: Path):
    """A producer may write the same name each day, if its source says so."""
    drop = Drop(tmp_path, SCHEMA, same_name="add")
    for start in (0, 10):
        drop.put("daily.jsonl", lines(2, start))
        assert drop.scan().accepted == 1
    assert [row["id"] for row in drop.rows()] == [0, 1, 10, 11]


def test_same_content_in_two_sources_counts_twice(tmp_path: Path):
    """Sources do not know of each other."""
    drop = Drop(tmp_path, SCHEMA, sources=("orders", "returns"))
    for source in ("orders", "returns"):
        drop.put("a", lines(2), source)
    assert drop.scan().accepted == 2
    assert len(drop.increments("orders")) == len(drop.increments("returns")) == 1


def test_files_of_one_listing_are_ordered_by_time_then_name(tmp_path: Path):
    """The sequence is given at the claim; times only order files of one listing."""
    drop = Drop(tmp_path, SCHEMA)
    for name, second in (("c", 1), ("a", 2), ("b", 2)):
        drop.put(name, lines(1, start=ord(name)))
        os.utime(drop.incoming / name, (second, second))
    drop.scan()
    assert [chr(row["id"]) for row in drop.rows()] == ["c", "a", "b"]
    assert [c.sequence for c in drop.store.claim_rows.values()] == [0, 1, 2]


def test_bad_file_goes_to_quarantine_and_the_rest_goes_on(tmp_path: Path):
    """The reason names file, line and cause, beside the file and in the store."""
    drop = Drop(tmp_path, SCHEMA)
    for second, (name, data) in enumerate(
        {"1": lines(1), "2../ bad": b"x", "3": lines(1, 5)}.items()
    ):
        safe = name.replace("/", "_")
        drop.put(safe, data)
        os.utime(drop.incoming / safe, (second, second))
    report = drop.scan()
    assert (report.accepted, report.quarantined) == (2, 1)
    (reason,) = drop.reasons()
    (claim,) = [c for c in drop.store.claim_rows.values() if c.status == "quarantined"]
    assert claim.reason == reason
    assert {k: reason[k] for k in ("code", "file", "line", "claim")} == {
        "code": "json_invalid",
        "file": "2.._ bad",
        "line": 1,
        "claim": claim.id,
    }
    assert reason.keys() - {"lines", "lines_more"} == {
        *("code", "message", "file", "line", "column", "cause", "claim")
    }
    assert drop.names("quarantine") == [
        f"{claim.id}-2..__bad",
        f"{claim.id}-2..__bad.reason.json",
    ]
    assert (drop.place("quarantine") / f"{claim.id}-2..__bad").read_bytes() == b"x"
    assert [row["id"] for row in drop.rows()] == [0, 5]


def test_file_written_to_after_its_claim_is_quarantined(tmp_path: Path):
    """An open writer is noticed: the bytes that were hashed are not the file any more."""
    drop = Drop(tmp_path, SCHEMA)
    drop.put("a", lines(2))
    writer = open(drop.incoming / "a", "ab")  # noqa: SIM115 - kept open on purpose

    def append(point: str) -> None:
        if point == "rename.after":
            writer.write(lines(1))
            writer.flush()

    drop.start(append)
    assert drop.scan().quarantined == 1
    writer.close()
    assert drop.reasons()[0]["code"] == "file_changed"
    assert "write files under a name that ends in .part" in drop.reasons()[0]["message"]
    assert not drop.increments()


def test_file_taken_away_before_its_claim_is_no_error(tmp_path: Path):
    """Race: (1) listed (2) deleted by its producer (3) renamed: the claim is settled, visibly."""
    drop = Drop(tmp_path, SCHEMA)

    def delete(point: str) -> None:
        if point == "rename.before":
            (drop.incoming / "a").unlink(missing_ok=True)

    drop.put("a", lines(1))
    drop.start(delete)
    assert drop.scan().failures == ()
    drop.scan()
    (claim,) = drop.store.claim_rows.values()
    assert claim.status == "quarantined"
    assert claim.reason is not None
    assert claim.reason["code"] == "file_gone"
    (reported,) = drop.folder.look(drop.record, drop.dataflow)
    assert [(one["name"], one["lost"]) for one in reported["gone"]] == [("a", False)]
    assert drop.folder.troubled(drop.dataflow.name) == []


@pytest.mark.parametrize("point", ["increment_file.before", "increment_file.after"])
def test_full_disk_loses_nothing_and_keeps_the_order(point: str, tmp_path: Path):
    """The file stays claimed, later files wait behind it, and the next pass goes on."""
    drop = Drop(tmp_path, SCHEMA)
    for second, name in enumerate("ab"):
        drop.put(name, lines(1, start=second))
        os.utime(drop.incoming / name, (second, second))
    drop.start(PlannedFaults(point, error=OSError(errno.ENOSPC, "No space left on device")))
    report = drop.scan()
    assert report.accepted == 0
    assert [type(error) for error in report.failures] == [DiskFullError]
    assert len(drop.names("claimed")) == 2
    assert drop.increments() == []
    assert drop.scan().accepted == 2
    assert [row["id"] for row in drop.rows()] == [0, 1]


def test_failing_source_does_not_stop_another(tmp_path: Path):
    """Each source has its own pass."""
    drop = Drop(tmp_path, SCHEMA, sources=("orders", "returns"))
    drop.put("a", lines(1), "returns")
    shutil.rmtree(drop.place("incoming", "orders").parent)
    report = drop.scan()
    assert report.accepted == 1
    assert [error.code for error in report.failures] == ["drop_folder_unusable"]


def test_a_source_that_a_new_version_lacks_has_no_trouble(tmp_path: Path):
    """The failure of a source ends with it, and degrades the service no more."""
    drop = Drop(tmp_path, SCHEMA, sources=("orders", "returns"))
    shutil.rmtree(drop.place("incoming", "orders").parent)
    drop.scan()
    assert len(drop.folder.troubled(drop.dataflow.name)) == 1
    sources = {"returns": drop.dataflow.sources["returns"]}
    drop.dataflow = replace(drop.dataflow, sources=sources)
    drop.scan()
    assert drop.folder.troubled(drop.dataflow.name) == []


def test_backlog_is_taken_in_shares(tmp_path: Path):
    """One scan takes a bounded number of files of each source; the others are waiting."""
    drop = Drop(tmp_path, SCHEMA, limits=IngestLimits(claims_per_scan=2))
    for i in range(5):
        drop.put(f"{i}", lines(1, start=i))
    reports = [drop.scan() for _ in range(3)]
    assert [(r.accepted, r.waiting, r.ready) for r in reports] == [(2, 3, 3), (2, 1, 1), (1, 0, 0)]


def _slow(drop: Drop) -> FileReader:
    """Return a reader that takes three seconds for a file."""

    def read(
        request: ReadRequest,
        stopping: Callable[[], bool] = never,
        hurried: Callable[[], bool] = never,
    ) -> ReadResult:
        drop.pass_seconds(3)
        return read_files(request, stopping, hurried)

    return read


def test_a_pass_ends_after_its_time(tmp_path: Path):
    """However many files wait, the sources behind get their turn; one file is taken at least."""
    drop = Drop(tmp_path, SCHEMA, limits=IngestLimits(scan_seconds=5))
    for i in range(4):
        drop.put(f"{i}", lines(1, start=i))

    drop.start(reader=_slow(drop))
    reports = [drop.scan() for _ in range(2)]
    assert [(r.accepted, r.ready) for r in reports] == [(2, 2), (2, 0)]


def test_uploads_that_wait_end_a_pass_after_its_time(tmp_path: Path):
    """They are claimed already: however many there are, the sources behind get their turn."""
    drop = Drop(tmp_path, SCHEMA, limits=IngestLimits(scan_seconds=5))
    for i in range(4):
        data = io.BytesIO(lines(1, start=i))
        drop.folder.upload(drop.source(), f"{i}", data)
    drop.put("behind", lines(1, start=4))

    drop.start(reader=_slow(drop))
    reports = [drop.scan() for _ in range(3)]
    assert [(r.accepted, r.ready) for r in reports] == [(2, 3), (2, 1), (1, 0)]
    assert [row["id"] for row in drop.rows()] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("most", "groups"), [(IngestLimits().group_bytes, 2), (50, 22)])
def test_small_files_are_claimed_and_moved_away_together(most: int, groups: int, tmp_path: Path):
    """Each step costs a sync of the disk, or two; a bad file goes to quarantine alone."""
    limits = IngestLimits(group_bytes=most)
    drop, passed = Drop(tmp_path, SCHEMA, limits=limits), Counter[str]()
    drop.start(lambda point: passed.update([point]))
    many = limits.group_files + 1
    for i in range(many):
        drop.put(f"{i:03d}", b"{" * 14 if i == 7 else b'{"id": %6d}\n' % i)
    report = drop.scan()
    assert (report.accepted, report.quarantined) == (many - 1, 1)
    assert [row["id"] for row in drop.rows()] == [i for i in range(many) if i != 7]
    assert passed["claim.before"] == groups
    assert passed["rename.after"] == 2 * groups + 1
    assert drop.names("claimed") == drop.names("incoming") == []


def test_large_file_becomes_several_parts_in_order(tmp_path: Path):
    """An increment may have several files; their order is the order of the records."""
    limits = IngestLimits(batch_rows=100, row_group_bytes=1, part_bytes=1)
    drop = Drop(tmp_path, SCHEMA, limits=limits)
    drop.put("a", lines(1000))
    drop.scan()
    (increment,) = drop.increments()
    assert [f.path[len("sources/orders/") :][:18] for f in increment.files] == [
        f"000000000000-{part:05d}" for part in range(10)
    ]
    assert [row["id"] for row in drop.rows()] == list(range(1000))


def test_second_controller_is_fenced_by_the_source_log(tmp_path: Path):
    """A controller that finds another claim under its index stops."""
    drop = Drop(tmp_path, SCHEMA)
    drop.put("a", lines(1))

    def other(point: str) -> None:
        if point == "increment_file.after":
            first = Increment("orders", 0, 0, ())
            entry = SourceEntry(first, (ArrivedFile("another", 0, "", "b", 0),), drop.now)
            SourceLog(drop.record.folder, "orders", LocalFiles()).put([entry])

    drop.start(other)
    with pytest.raises(LogConflictError):
        drop.scan()
    assert drop.accepted_calls == 0


def test_prepare_refuses_folders_that_cannot_be_used(tmp_path: Path):
    """A start-up check says which folder is wrong before a file is touched."""
    target = tmp_path / "elsewhere"
    target.mkdir()
    root = tmp_path / "drop" / "shop" / "orders"
    root.mkdir(parents=True)
    (root / "claimed").symlink_to(target)
    with pytest.raises(DropFolderError) as caught:
        Drop(tmp_path, SCHEMA)
    assert caught.value.details["path"].endswith("claimed")


@pytest.mark.parametrize(
    ("format_", "options"),
    [
        ("csv", {"delimiter": ";;"}),
        ("csv", {"heder": "true"}),
        ("csv", {"header": "maybe"}),
        ("csv", {"quote": ","}),
        ("jsonl", {"header": "true"}),
    ],
)
def test_wrong_options_are_refused_at_once(format_: str, options: dict[str, str], tmp_path: Path):
    """A source's options are checked before the first file arrives."""
    dataflow = Drop(tmp_path, SCHEMA, format_, options=options).dataflow
    with pytest.raises(DataflowInvalidError) as caught:
        dataflow.check()
    assert ("option_invalid", "sources.orders.options") in [
        (mistake.code, mistake.where) for mistake in caught.value.mistakes
    ]


def test_change_in_incoming_wakes_the_watcher(tmp_path: Path):
    """The begin of the watch, and each new file behind it, are hints that a listing is due."""
    drop = Drop(tmp_path, SCHEMA)
    stop, woken = threading.Event(), queue.Queue[frozenset[str]]()
    thread = threading.Thread(target=drop.folder.watch, args=(stop, woken.put))
    thread.start()
    try:
        assert woken.get(timeout=120) == {drop.dataflow.name}
        with pytest.raises(queue.Empty):
            woken.get(timeout=0.1)
        drop.put("a.jsonl", lines(1))
        assert woken.get(timeout=120) == {drop.dataflow.name}
    finally:
        stop.set()
        thread.join(120)
    assert not thread.is_alive()


def test_store_that_survives_is_all_a_restart_needs(tmp_path: Path):
    """A new process continues the numbering of increments."""
    store = DictStore()
    for start in (0, 1):
        drop = Drop(tmp_path, SCHEMA, store=store)
        drop.put(f"a{start}", lines(1, start=start))
        assert drop.recover().accepted == 0
        assert drop.scan().accepted == 1
    assert [i.index for i in drop.increments()] == [0, 1]


def after(many: int) -> Callable[[], bool]:
    """Return what says to leave off once it was asked so often."""
    asked = itertools.count()
    return lambda: next(asked) >= many


@pytest.mark.parametrize("format_", ["jsonl", "parquet"])
def test_a_pass_that_leaves_off_anywhere_loses_nothing(tmp_path: Path, format_: str):
    """Between files, batches and reads: no half of a file is left, and the next pass goes on."""
    data = {"jsonl": lines(6), "parquet": parquet(6)}[format_]
    other = {"jsonl": lines(6, start=6), "parquet": parquet(6, start=6)}[format_]
    codes, left = [], set[tuple[int, int]]()
    for many in range(100):
        drop = Drop(tmp_path / str(many), SCHEMA, format_, limits=IngestLimits(batch_rows=2))
        drop.put("a", data)
        drop.put("b", other)
        try:
            drop.folder.scan(drop.record, drop.dataflow, stopping=after(many))
        except IntakeStoppedError as error:
            codes.append(error.code)
        else:
            break
        left.add((len(drop.increments()), len(drop.names("claimed"))))
        folder = Path(drop.record.folder)
        named = {file.path for increment in drop.increments() for file in increment.files}
        assert {str(p.relative_to(folder)) for p in folder.rglob("*.parquet")} == named
        assert not list(folder.rglob("*.tmp"))
        drop.scan()
        assert [row["id"] for row in drop.rows()] == list(range(12))
    else:
        raise AssertionError("it never came to its end")
    assert codes == ["intake_stopped"] * len(codes)
    assert len(codes) >= 2 + 2 * 3, "asked for each file, and between batches"
    assert left == {(0, 0), (0, 2), (1, 1)}, "taken in and claimed: one after the other"


def parquet(count: int, start: int = 0) -> bytes:
    """Return the records of `lines` as a Parquet file."""
    ids = range(start, start + count)
    file = io.BytesIO()
    pq.write_table(pa.table({"id": ids, "name": [f"n{i}" for i in ids]}), file)
    return file.getvalue()


def test_a_dataflow_that_is_drained_claims_nothing_new(tmp_path: Path):
    """Claimed files are finished; files and close markers stay in `incoming` until the resume."""
    closes: list[str] = []
    drop = Drop(tmp_path, SCHEMA, on_close=lambda *names: closes.append(names[1]))
    drop.folder.upload(drop.source(), "u.jsonl", io.BytesIO(lines(1)))
    drop.put("late.jsonl", lines(2))
    drop.put("_CLOSE", b"")
    running, drop.record = drop.record, replace(drop.record, desired="draining")
    assert drop.scan().accepted == 1
    drop.record = replace(drop.record, desired="drained")
    report = drop.scan()
    assert (report.accepted, closes) == (0, [])
    assert drop.names("incoming") == ["_CLOSE", "late.jsonl"]
    with pytest.raises(DataflowDrainsError):
        drop.folder.upload(drop.source(), "v.jsonl", io.BytesIO(lines(1)))
    drop.record = running
    assert drop.scan().accepted == 1
    assert len(drop.increments()) == 2


def test_a_pass_says_when_a_source_that_fails_is_tried_again(tmp_path: Path) -> None:
    """Also a pass that leaves it out; nothing else would ask for the next one."""
    drop = Drop(tmp_path, "id BIGINT")

    def fails(*_: Any, **__: Any) -> Any:
        message = "no device"
        raise OperatingError(message)

    drop.folder._pass.take_in = fails  # type: ignore[method-assign]
    for _ in range(4):
        report = drop.scan()
        trouble = drop.folder.troubles.of(tmp_path / "drop" / drop.dataflow.name / "orders")
        assert trouble is not None
        assert (report.again_at, len(report.failures)) == (trouble.retry_at, 1)
