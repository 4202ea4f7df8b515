"""One increment of many files: each counts by itself, all become visible at once.

A source whose `batch` allows it takes what waits as one increment. What holds for one file holds
for each of them, wherever the service is killed.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cbp.engine.storage.files import LocalFiles
from cbp.model.dataflow.nodes import BACKLOG_FILES, UNSAID, FileBatch, StageNode
from cbp.model.dataflow.stage import InputSpec, OutputSpec, TranslatorSpec
from cbp.model.flow.schema import Schema
from controller.ingest.errors import IntakeStoppedError
from controller.ingest.folder.eligible_files import EligibleFiles
from controller.ingest.formats.file_bytes import never
from controller.ingest.limits import IngestLimits
from controller.ingest.reader.file_reader import ReadRequest, ReadResult, read_files
from controller.ingest.source_log import SourceEntry, SourceLog
from controller.store.base import open_store
from tests.controller.ingest.harness import DictStore, Drop, lines
from tests.planned_faults import Crash, PlannedFaults

SCHEMA = "id BIGINT, name STRING"
MANY = FileBatch(files=100)
POINTS = tuple(
    f"{effect}.{side}"
    for effect in ("claim", "rename", "data_sync", "increment_file", "source_log")
    for side in ("before", "after")
)


def made(root: Path, **more: Any) -> Drop:
    return Drop(root, SCHEMA, **{"batch": MANY} | more)


def put(drop: Drop, count: int, start: int = 0) -> None:
    """Drop files of one line each, whose names and ids are in one order."""
    for number in range(start, start + count):
        drop.put(f"f{number:03d}", lines(1, start=number))


def entries(drop: Drop) -> list[SourceEntry]:
    return list(SourceLog(drop.record.folder, "orders", LocalFiles()).since(0))


def ids(drop: Drop) -> list[int]:
    return [row["id"] for row in drop.rows()]


def test_what_waits_becomes_one_increment_with_one_part(tmp_path: Path) -> None:
    """The records are in the order of the claims, and every file stays known with its records."""
    drop = made(tmp_path)
    put(drop, 5)
    drop.put("f005", lines(3, start=5))
    assert drop.scan().accepted == 6
    (entry,) = entries(drop)
    assert ids(drop) == list(range(8))
    assert len(entry.increment.files) == 1
    assert [(file.path, file.records) for file in entry.files] == [
        *((f"f{number:03d}", 1) for number in range(5)),
        ("f005", 3),
    ]
    claims = list(drop.store.claim_rows.values())
    assert [file.sha256 for file in entry.files] == [claim.sha256 for claim in claims]
    assert {(claim.status, claim.index) for claim in claims} == {("accepted", 0)}
    (record,) = drop.store.increment_rows.values()
    assert (record.origin["file_count"], record.origin["files"][0]) == (6, "f000")
    assert drop.names("claimed") == drop.names("incoming") == []
    assert len(drop.names("finished")) == 6


@pytest.mark.parametrize("batch", [FileBatch(files=3), FileBatch(bytes=3 * len(lines(1)))])
def test_an_increment_is_bounded_by_count_and_by_bytes(tmp_path: Path, batch: FileBatch) -> None:
    """Seven equal files in increments of three."""
    drop = made(tmp_path, batch=batch)
    put(drop, 7)
    drop.scan()
    assert [len(entry.files) for entry in entries(drop)] == [3, 3, 1]
    assert ids(drop) == list(range(7))


def counting() -> StageNode:
    """Give a stage that counts on the final state only: one input, and an output with a key."""
    schema, key = Schema.parse(SCHEMA), Schema.parse("id BIGINT")
    spec = TranslatorSpec(
        "Count",
        key=key,
        inputs=(InputSpec("orders", schema, ("id",)),),
        outputs=(OutputSpec("newest", schema, ("id",)),),
        states=(),
        translate=lambda *_: None,
    )
    return StageNode("count", spec, {"orders": "orders"})


def test_a_backlog_becomes_one_increment_where_only_the_final_state_counts(tmp_path: Path) -> None:
    """One bad file goes to quarantine, the others go on; fewer files have an increment each."""
    drop = made(tmp_path, batch=UNSAID, stages=[counting()])
    put(drop, BACKLOG_FILES - 1)
    drop.scan()
    assert len(entries(drop)) == BACKLOG_FILES - 1
    put(drop, BACKLOG_FILES, start=100)
    drop.put("f110", b"no record\n")
    report = drop.scan()
    assert (report.accepted, report.quarantined) == (BACKLOG_FILES - 1, 1)
    *_, entry = entries(drop)
    assert len(entries(drop)) == BACKLOG_FILES
    assert len(entry.files) == BACKLOG_FILES - 1
    assert ids(drop) == [*range(BACKLOG_FILES - 1), *range(100, 110), *range(111, 132)]


def test_a_backlog_is_taken_file_by_file_before_a_stage_that_may_notice(tmp_path: Path) -> None:
    """Such as one that reads `group.run`, or none at all."""
    spec = replace(counting().translator, reads_run=True)
    for number, stages in enumerate(((), (replace(counting(), translator=spec),))):
        drop = made(tmp_path / str(number), batch=UNSAID, stages=stages)
        put(drop, BACKLOG_FILES)
        drop.scan()
        assert len(entries(drop)) == BACKLOG_FILES


@pytest.mark.part(every=3)
@pytest.mark.parametrize("point", POINTS)
def test_a_backlog_survives_a_crash_anywhere(point: str, tmp_path: Path) -> None:
    """What was claimed is taken in once, be it still a backlog after the restart or not."""
    drop = made(tmp_path, batch=UNSAID, stages=[counting()])
    put(drop, BACKLOG_FILES + 3)
    drop.start(PlannedFaults(point))
    with pytest.raises(Crash):
        drop.scan()
    drop.start()
    drop.recover()
    while drop.names("incoming") or drop.names("claimed"):
        drop.scan()
    assert sorted(ids(drop)) == list(range(BACKLOG_FILES + 3))


def test_files_wait_for_more_of_them_for_some_time(tmp_path: Path) -> None:
    """Until the first has waited long enough, or there are enough; the pass says when that is."""
    drop = made(tmp_path, batch=FileBatch(files=3, seconds=10))
    put(drop, 1)
    begun = drop.now
    report = drop.scan()
    assert (report.accepted, report.waiting, report.ready) == (0, 1, 0)
    assert report.settles_at is not None
    assert (report.settles_at - begun).total_seconds() == 10
    drop.pass_seconds(9)
    put(drop, 1, start=1)
    assert drop.scan().settles_at == report.settles_at
    drop.pass_seconds(1)
    assert drop.scan().accepted == 2
    put(drop, 4, start=2)
    report = drop.scan()
    assert (report.accepted, report.waiting, report.ready) == (3, 1, 0)
    assert [len(entry.files) for entry in entries(drop)] == [2, 3]
    drop.pass_seconds(10)
    drop.scan()
    assert ids(drop) == list(range(6))


def test_without_a_batch_every_file_is_an_increment(tmp_path: Path) -> None:
    """A stage may count on one epoch a file; the log is as earlier versions wrote it."""
    drop = Drop(tmp_path, SCHEMA)
    put(drop, 3)
    drop.scan()
    assert [len(entry.files) for entry in entries(drop)] == [1, 1, 1]
    (log,) = (Path(drop.record.folder) / "sources" / "orders" / "_log").glob("*.json")
    shown = {key for line in log.read_text().splitlines() for key in json.loads(line)}
    assert {"claim", "sequence", "sha256", "path", "bytes", "notes", "increment"} <= shown
    assert "files" not in shown


@pytest.mark.parametrize("bad", [(0,), (2,), (4,), (0, 1), (1, 3), (0, 1, 2, 3, 4)])
def test_a_bad_file_is_rejected_alone(tmp_path: Path, bad: tuple[int, ...]) -> None:
    """Its records, also those before its wrong line, are in no increment; the others go on."""
    drop = made(tmp_path)
    put(drop, 5)
    for number in bad:
        drop.put(f"f{number:03d}", lines(2, start=100) + b'{"id": "no"}\n')
    report = drop.scan()
    assert (report.accepted, report.quarantined) == (5 - len(bad), len(bad))
    assert ids(drop) == [number for number in range(5) if number not in bad]
    assert len(entries(drop)) == (1 if len(bad) < 5 else 0)
    assert {reason["file"] for reason in drop.reasons()} == {f"f{n:03d}" for n in bad}
    assert {reason["code"] for reason in drop.reasons()} == {"value_type"}
    assert len(drop.names("finished")) == 5 - len(bad)
    parts = list(Path(drop.record.folder).rglob("*.parquet"))
    assert len(parts) == len(entries(drop))


@pytest.mark.parametrize("policy", ["accept", "skip", "quarantine"])
def test_a_known_file_is_judged_as_if_it_came_alone(tmp_path: Path, policy: str) -> None:
    """Known from an earlier increment, or from the same one: a retry, or equal content."""
    together = made(tmp_path / "together", duplicates=policy)
    alone = Drop(tmp_path / "alone", SCHEMA, duplicates=policy)
    for drop in (together, alone):
        put(drop, 2)
        drop.scan()
        drop.put("f000", lines(1))  # a retry
        drop.put("g1", lines(1, start=1))  # known content
        drop.put("g2", lines(1, start=7))
        drop.put("g3", lines(1, start=7))  # known content of the same increment
        drop.put("g4", lines(1, start=8))
        drop.scan()
    assert ids(together) == ids(alone)
    assert outcomes(together) == outcomes(alone)
    assert together.names("claimed") == []
    assert len(list(Path(together.record.folder).rglob("*.parquet"))) == len(entries(together)) == 2


def outcomes(drop: Drop) -> list[tuple[str, str, str]]:
    """Return what became of each file, and which file it repeats."""
    claims = drop.store.claim_rows.values()
    return [(c.path, c.status, (c.same_as or {}).get("file", "")) for c in claims]


def test_files_that_were_all_known_make_no_increment(tmp_path: Path) -> None:
    """A backlog that is dropped again leaves nothing behind."""
    drop = made(tmp_path)
    put(drop, 3)
    drop.scan()
    put(drop, 3)
    assert drop.scan().duplicates == 3
    assert ids(drop) == [0, 1, 2]
    assert len(list(Path(drop.record.folder).rglob("*.parquet"))) == 1


def test_a_large_file_is_an_increment_of_its_own_in_its_place(tmp_path: Path) -> None:
    """What does not fit into the reader's memory with others is read by itself."""
    drop = made(tmp_path, limits=IngestLimits(row_group_bytes=2000))
    put(drop, 2)
    drop.put("f002", lines(200, start=2))
    put(drop, 2, start=202)
    assert drop.scan().accepted == 5
    assert [len(entry.files) for entry in entries(drop)] == [2, 1, 2]
    assert ids(drop) == list(range(204))


def test_a_file_that_changes_while_it_is_read_harms_no_other(tmp_path: Path) -> None:
    """It is written to between the two reads that a known file of its batch makes necessary."""
    reads: list[ReadRequest] = []

    def reader(
        request: ReadRequest,
        stopping: Callable[[], bool] = never,
        hurried: Callable[[], bool] = never,
    ) -> ReadResult:
        if len(reads) == 1:
            Path(request.files[-1].path).write_bytes(b"{")
        reads.append(request)
        return read_files(request, stopping, hurried)

    drop = made(tmp_path, reader=reader, duplicates="skip")
    drop.put("a", lines(1))
    drop.put("b", lines(1))
    drop.put("c", lines(1, start=1))
    drop.put("d", lines(1, start=2))
    report = drop.scan()
    assert (report.accepted, report.duplicates, report.quarantined) == (2, 1, 1)
    assert ids(drop) == [0, 1]
    assert [reason["code"] for reason in drop.reasons()] == ["file_changed"]
    assert len(reads) >= 2


def test_the_files_before_a_stop_are_settled(tmp_path: Path) -> None:
    """A reader that is asked to stop leaves its batch claimed, and nothing else."""
    calls: list[int] = []

    def reader(
        request: ReadRequest,
        stopping: Callable[[], bool] = never,
        hurried: Callable[[], bool] = never,
    ) -> ReadResult:
        calls.append(len(request.files))
        if len(calls) == 2:
            raise IntakeStoppedError(request.path)
        return read_files(request, stopping, hurried)

    drop = made(tmp_path, reader=reader, batch=FileBatch(files=2))
    put(drop, 4)
    with pytest.raises(IntakeStoppedError):
        drop.scan()
    assert ids(drop) == [0, 1]
    assert len(drop.names("claimed")) == 2
    drop.scan()
    assert ids(drop) == [0, 1, 2, 3]
    assert [len(entry.files) for entry in entries(drop)] == [2, 2]


@pytest.mark.part(every=10)
@pytest.mark.parametrize("store", ["sqlite", "dict"])
@pytest.mark.parametrize("point", POINTS)
def test_a_crash_anywhere_gives_each_file_once_and_in_order(
    tmp_path: Path, point: str, store: str
) -> None:
    """Three good files, one bad, one known: killed at each passage of the point in turn."""
    passage = 0
    while True:
        passage += 1
        root = tmp_path / f"{passage}"
        if not crashes(root, point, passage, store):
            break
    assert passage > 1


def crashes(root: Path, point: str, passage: int, kind: str) -> bool:
    """Kill a scan at a passage of a point, and check what a restart makes of it.

    Returns:
        Whether there is such a passage.
    """
    root.mkdir()
    url = f"sqlite:///{root}/store.db"
    drop = made(root, store=open_store(url) if kind == "sqlite" else DictStore())
    if kind == "sqlite":
        drop.store.register(drop.record, {"count": {"items": "orders"}})
    drop.put("f000", lines(1))
    drop.scan()
    drop.put("f000", lines(1))
    drop.put("bad", b"{")
    put(drop, 3, start=1)
    drop.start(PlannedFaults(point, passage=passage))
    try:
        drop.scan()
        crashed = False
    except Crash:
        crashed = True
    if kind == "sqlite":
        drop.store.close()
        drop.store = open_store(url)
    drop.start()
    drop.recover()
    drop.scan()
    assert ids(drop) == [0, 1, 2, 3]
    assert drop.names("claimed") == drop.names("incoming") == []
    assert len(drop.names("finished")) == 5
    assert [reason["file"] for reason in drop.reasons()] == ["bad"]
    named = {f.path for increment in drop.increments() for f in increment.files}
    folder = Path(drop.record.folder)
    assert {str(path.relative_to(folder)) for path in folder.rglob("*.parquet")} == named
    assert not list(root.rglob("*.tmp"))
    if kind == "sqlite":
        claims = drop.store.claims("shop").items
        waiting = drop.store.connectors("shop")["count"]["items"].waiting
        assert [one.index for one in waiting] == list(range(len(entries(drop))))
        assert {c.index for c in claims if c.status == "accepted"} == {e.index for e in waiting}
        drop.store.close()
    return crashed


@pytest.mark.parametrize("point", ["source_log.after", ""])
def test_a_lost_store_learns_the_files_from_the_source_log(tmp_path: Path, point: str) -> None:
    """Its claims have the increment, and each file is still known; nobody reads anything again."""
    drop = made(tmp_path)
    put(drop, 3)
    if point:
        drop.start(PlannedFaults(point))
        with pytest.raises(Crash):
            drop.scan()
    else:
        drop.scan()
    before = entries(drop)
    drop.store = DictStore()
    drop.start()
    assert drop.recover().accepted == 1
    drop.scan()
    assert entries(drop) == before
    claims = sorted(drop.store.claim_rows.values(), key=lambda claim: claim.sequence)
    assert [(c.path, c.status, c.index) for c in claims] == [
        (f"f00{number}", "accepted", 0) for number in range(3)
    ]
    put(drop, 3)
    assert drop.scan().duplicates == 3
    assert ids(drop) == [0, 1, 2]


def test_an_upload_waits_with_the_others(tmp_path: Path) -> None:
    """Files that were uploaded and not read yet become one increment, checked by their digests."""
    drop = made(tmp_path)
    for number in range(3):
        stream = io.BytesIO(lines(1, start=number))
        drop.folder.upload(drop.source(), f"u{number}", stream)
    copies = [drop.place("claimed") / name for name in drop.names("claimed")]
    (damaged,) = [copy for copy in copies if copy.read_bytes() == lines(1, start=1)]
    damaged.write_bytes(lines(1, start=8))
    assert drop.scan().accepted == 2
    assert ids(drop) == [0, 2]
    assert [reason["code"] for reason in drop.reasons()] == ["file_changed"]
    assert len(entries(drop)) == 1


def test_a_source_with_a_backlog_delays_no_other_for_long(tmp_path: Path) -> None:
    """Each file takes half a second: after two seconds it is the turn of the next source."""
    seen: list[tuple[str, int]] = []

    def reader(
        request: ReadRequest,
        stopping: Callable[[], bool] = never,
        hurried: Callable[[], bool] = never,
    ) -> ReadResult:
        drop.pass_seconds(0.5 * len(request.files))
        seen.append((request.source.name, len(request.files)))
        return read_files(request, stopping, hurried)

    drop = made(tmp_path, sources=("orders", "small"), batch=FileBatch(files=2), reader=reader)
    put(drop, 40)
    for number in range(2):
        drop.put(f"s{number}", lines(1, start=number), source="small")
    report = drop.scan()
    assert [source for source, _ in seen] == ["orders", "small"]
    assert report.ready == 38
    while drop.scan().ready:
        pass
    assert ids(drop) == list(range(40))


def test_a_listing_that_took_long_serves_several_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many names are not looked at again for every few files; what came later is seen then."""
    looks: list[int] = []
    look = EligibleFiles.look

    def slow(settler: Any, *given: Any) -> Any:
        drop.pass_seconds(1)
        looks.append(1)
        return look(settler, *given)

    monkeypatch.setattr(EligibleFiles, "look", slow)
    limits = IngestLimits(claims_per_scan=2)
    drop = made(tmp_path, limits=limits)
    put(drop, 20)
    for turn in range(5):
        drop.scan()
        assert len(looks) == 1, turn
    drop.put("a-late", lines(1, start=99))
    drop.pass_seconds(11)
    drop.scan()
    assert len(looks) == 2
    while drop.scan().ready:
        pass
    assert sorted(ids(drop)) == [*range(20), 99]
