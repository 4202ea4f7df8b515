"""The source log: what it says does not depend on whether it is sealed, or was half sealed."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cbp.engine.storage.failpoints import Crash, PlannedFaults
from cbp.engine.storage.files import LocalFiles
from cbp.model.flow.increment import Increment
from controller.ingest import source_log
from controller.ingest.source_log import SourceEntry, SourceLog

ENTRIES = 11


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_log, "SEALED_ENTRIES", 4)


def entry(index: int, claim: str = "") -> SourceEntry:
    increment = Increment("a", index, index)
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return SourceEntry(increment, claim or f"c{index}", index, "sha", "p", 3, at)


def filled(root: Path) -> SourceLog:
    log = SourceLog(str(root), "a", LocalFiles())
    for index in range(ENTRIES):
        log.put(entry(index))
    return log


def require_whole(log: SourceLog) -> None:
    for index in range(ENTRIES + 1):
        assert list(log.since(index)) == [entry(number) for number in range(index, ENTRIES)]


def test_a_sealed_log_says_the_same(tmp_path: Path) -> None:
    """From every entry on; whole thousands only, and no single file is left of them."""
    log = filled(tmp_path)
    require_whole(log)
    assert log.seal(9) == 8
    require_whole(log)
    singles = sorted(path.name for path in tmp_path.rglob("*.json"))
    assert [int(name.removesuffix(".json")) for name in singles] == [8, 9, 10]
    assert len(list(tmp_path.rglob("*.jsonl"))) == 2
    assert log.seal(9) == 0
    assert log.seal(-3) == 0


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
        SourceLog(str(tmp_path), "a", LocalFiles(faults)).seal(9)
    require_whole(whole)
    whole.seal(9)
    require_whole(whole)
    assert len(list(tmp_path.rglob("*.json"))) == 3


def test_who_puts_a_sealed_number_again_is_not_heard(tmp_path: Path) -> None:
    """A controller that slept for a thousand files."""
    log = filled(tmp_path)
    log.seal(9)
    log.put(entry(2, "zombie"))
    require_whole(log)
    log.seal(9)
    require_whole(log)
    assert len(list(tmp_path.rglob("*.json"))) == 3
