"""The source log: what it says does not depend on how it was put, is sealed, or was half sealed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cbp.engine.storage.files import LocalFiles
from cbp.errors import FileDamagedError, FileLostError, LogConflictError
from cbp.model.flow.increment import Increment
from controller.ingest.source_log import ArrivedFile, SourceEntry, SourceLog
from tests.planned_faults import Crash, PlannedFaults

ENTRIES = 11


def entry(index: int, claim: str = "") -> SourceEntry:
    increment = Increment("a", index, index)
    at = datetime(2026, 1, 1, tzinfo=UTC)
    files = tuple(
        ArrivedFile(f"{claim or f'c{index}'}{more}", index, "sha", "p", 3, records=records)
        for more, records in (([("", None)]) if index % 3 else [("", 2), ("a", 0), ("b", 1)])
    )
    return SourceEntry(increment, files, at)


def filled(root: Path, sizes: Sequence[int] = ENTRIES * (1,)) -> SourceLog:
    """Return a log whose entries were put in groups of these sizes."""
    log, index = SourceLog(str(root), "a", LocalFiles()), 0
    for size in sizes:
        log.put([entry(number) for number in range(index, index + size)])
        index += size
    assert index == ENTRIES
    return log


def require_whole(log: SourceLog) -> None:
    for index in range(ENTRIES + 1):
        assert list(log.since(index)) == [entry(number) for number in range(index, ENTRIES)]


@pytest.mark.parametrize("sizes", [(11,), (3, 8), (1, 5, 1, 4), (4, 4, 3), (2, 2, 1, 6)])
@pytest.mark.parametrize("below", [0, 4, 5, 6, 9, 10, 11])
def test_entries_that_were_put_together_are_entries_like_others(
    tmp_path: Path, sizes: Sequence[int], below: int
) -> None:
    """Read from every entry on, sealed up to every entry, and never more than was allowed."""
    log = filled(tmp_path, sizes)
    assert len(list(tmp_path.rglob("*.json"))) == len(sizes)
    require_whole(log)
    sealed = log.seal(below, entries=4)
    require_whole(log)
    assert sealed <= below
    ends = {sum(sizes[:number]) for number in range(len(sizes) + 1)}
    assert sealed in ends
    # What could be sealed was: an end of a group is left out only below four entries.
    assert not [end for end in ends if sealed + 4 <= end <= below]
    single = sorted(int(path.name.removesuffix(".json")) for path in tmp_path.rglob("*.json"))
    assert single == sorted(end for end in ends if sealed <= end < ENTRIES)


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_a_file_cut_at_the_end_of_a_line_is_damaged(tmp_path: Path, lost: int) -> None:
    """Otherwise the entries behind the cut would be numbers that are free."""
    log = filled(tmp_path, (3, 4, 4))
    path = next(path for path in tmp_path.rglob("*.json") if "3.json" in path.name)
    path.write_bytes(b"\n".join(path.read_bytes().splitlines()[:-lost]))
    with pytest.raises(FileDamagedError):
        list(log.since(0))


@pytest.mark.parametrize(
    ("claims", "refused"),
    [(["c3", "c4"], False), (["c3"], True), (["c3", "c4", "c5"], True), (["x", "c4"], True)],
)
def test_a_number_is_put_once(tmp_path: Path, claims: list[str], refused: bool) -> None:
    """By a controller that repeats exactly what it put; another learns that it leads no more."""
    log = SourceLog(str(tmp_path), "a", LocalFiles())
    log.put([entry(0), entry(1), entry(2)])
    log.put([entry(3), entry(4)])
    again = [entry(3 + number, claim) for number, claim in enumerate(claims)]
    with pytest.raises(LogConflictError) if refused else nullcontext():
        log.put(again)
    assert list(log.since(0)) == [entry(number) for number in range(5)]


@pytest.mark.parametrize("point", ["source_log.before", "source_log.after"])
def test_a_crash_leaves_all_that_was_put_together_or_none(tmp_path: Path, point: str) -> None:
    """So no number is ever missing in the middle."""
    with suppress(Crash):
        log = SourceLog(str(tmp_path), "a", LocalFiles(PlannedFaults(point)))
        log.put([entry(0), entry(1)])
    expected = [entry(0), entry(1)] if point.endswith("after") else []
    assert list(SourceLog(str(tmp_path), "a", LocalFiles()).since(0)) == expected


def test_a_sealed_log_says_the_same(tmp_path: Path) -> None:
    """From every entry on; whole thousands only, and no single file is left of them."""
    log = filled(tmp_path)
    require_whole(log)
    assert log.seal(9, entries=4) == 8
    require_whole(log)
    singles = sorted(path.name for path in tmp_path.rglob("*.json"))
    assert [int(name.removesuffix(".json")) for name in singles] == [8, 9, 10]
    assert len(list(tmp_path.rglob("*.jsonl"))) == 2
    assert log.seal(9, entries=4) == 0
    assert log.seal(-3, entries=4) == 0


@pytest.mark.parametrize("effect", ["source_log", "dead_record"])
@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("passage", [1, 2, 5])
def test_a_crash_while_it_is_sealed_changes_nothing(
    tmp_path: Path, effect: str, side: str, passage: int
) -> None:
    """Killed anywhere, it says the same, and is sealed at the next time."""
    whole = filled(tmp_path)
    faults = PlannedFaults(f"{effect}.{side}", passage=passage)
    with suppress(Crash):
        SourceLog(str(tmp_path), "a", LocalFiles(faults)).seal(9, entries=4)
    require_whole(whole)
    whole.seal(9, entries=4)
    require_whole(whole)
    assert len(list(tmp_path.rglob("*.json"))) == 3


def test_who_puts_a_sealed_number_again_is_not_heard(tmp_path: Path) -> None:
    """A controller that slept for a thousand files."""
    log = filled(tmp_path)
    log.seal(9, entries=4)
    log.put([entry(2, "zombie")])
    require_whole(log)
    log.seal(9, entries=4)
    require_whole(log)
    assert len(list(tmp_path.rglob("*.json"))) == 3


@pytest.mark.parametrize("lost", ["first", "middle", "cut"])
def test_sealed_entries_that_are_gone_are_missed(tmp_path: Path, lost: str) -> None:
    """A log that goes on behind them is not read as if they had never been."""
    log = filled(tmp_path)
    log.seal(9, entries=4)
    sealed = sorted(tmp_path.rglob("*.jsonl"))
    if lost == "cut":
        lines = sealed[0].read_bytes().splitlines()
        sealed[0].write_bytes(b"\n".join(lines[:-1]))
    else:
        sealed[0 if lost == "first" else 1].unlink()
    # The middle one is the last of the sealed: what follows it shows that it is gone.
    with pytest.raises(FileDamagedError) as refused:
        log.require_end(len(list(log.since(0))))
    assert refused.value.code == ("file_damaged" if lost == "cut" else "file_lost")


def test_a_damaged_entry_is_not_sealed(tmp_path: Path) -> None:
    """Its own file would be removed, and with it the name under which a backup of it belongs."""
    log = filled(tmp_path)
    path = sorted(tmp_path.rglob("*.json"))[2]
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    with pytest.raises(FileDamagedError):
        log.seal(9, entries=4)
    path.unlink()
    with pytest.raises(FileLostError):
        log.seal(9, entries=4)
    path.write_bytes(whole)
    assert log.seal(9, entries=4) == 8
    require_whole(log)


def test_a_copy_beside_an_entry_is_no_entry(tmp_path: Path) -> None:
    """An operator who makes a backup beside a file stops nothing."""
    log = filled(tmp_path)
    path = sorted(tmp_path.rglob("*.json"))[2]
    path.with_name("2 (copy).json").write_bytes(path.read_bytes())
    assert log.seal(9, entries=4) == 8
    (sealed, _) = sorted(tmp_path.rglob("*.jsonl"))
    sealed.with_name(f"copy of {sealed.name}").write_bytes(b"")
    require_whole(log)


@pytest.mark.parametrize("sizes", [(11,), (3, 8), (9, 1, 1), (4, 4, 3)])
def test_a_log_that_lost_its_newest_file_is_not_at_its_end(
    tmp_path: Path, sizes: Sequence[int]
) -> None:
    """A database that has its entries asks for the next one: it must not be put behind a gap."""
    log = filled(tmp_path, sizes)
    assert list(log.since(ENTRIES)) == []
    newest = sorted(tmp_path.rglob("*.json"))[-1]
    newest.unlink()
    with pytest.raises(FileLostError) as refused:
        list(log.since(ENTRIES))
    assert Path(refused.value.details["path"]) == newest


def test_sealed_entries_are_no_gap(tmp_path: Path) -> None:
    """Right behind them the log may end; without the last sealed file it may not."""
    log = filled(tmp_path, (4, 4, 3))
    assert log.seal(ENTRIES, entries=3) == ENTRIES
    assert list(log.since(ENTRIES)) == []
    sorted(tmp_path.rglob("*.jsonl"))[-1].unlink()
    with pytest.raises(FileLostError):
        list(log.since(ENTRIES))
