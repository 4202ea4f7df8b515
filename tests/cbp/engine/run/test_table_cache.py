"""The cache of open tables: what one table's disk does to others, and what is forgotten."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from cbp.engine.run import table_cache
from cbp.engine.run.table_cache import OpenTables
from cbp.engine.storage.engine_limits import DEFAULT_LIMITS
from cbp.engine.storage.files import LocalFiles

SECONDS = 120


class SlowDisk:
    """Opens tables; one whose path ends with `slow` only once the test lets it."""

    def __init__(self) -> None:
        self.begun, self.go = threading.Event(), threading.Event()
        self.opened: list[str] = []

    def open(self, path: str, *_: Any, **__: Any) -> Any:
        """Return another object each time."""
        if path.endswith("slow"):
            self.begun.set()
            assert self.go.wait(SECONDS)
        self.opened.append(path)
        return SimpleNamespace(path=path)


@pytest.fixture(name="disk")
def _disk(monkeypatch: pytest.MonkeyPatch) -> SlowDisk:
    disk = SlowDisk()
    monkeypatch.setattr(table_cache, "open_table", disk.open)
    return disk


def test_a_table_that_hangs_delays_no_other(disk: SlowDisk) -> None:
    """Neither the first opening of another table, nor the use of one that is open."""
    tables = OpenTables(LocalFiles(), DEFAULT_LIMITS)
    with ThreadPoolExecutor() as threads:
        slow = threads.submit(tables.table, "a/slow")
        assert disk.begun.wait(SECONDS)
        other = threads.submit(tables.table, "b/other")
        try:
            assert other.result(SECONDS).path == "b/other"
        finally:
            disk.go.set()
        assert tables.table("b/other") is other.result()
        assert tables.table("a/slow") is slow.result(SECONDS)


def test_two_threads_that_open_a_table_get_the_same(disk: SlowDisk) -> None:
    """A publisher's lock is in the object, so there must be one."""
    tables = OpenTables(LocalFiles(), DEFAULT_LIMITS)
    with ThreadPoolExecutor() as threads:
        both = [threads.submit(tables.table, "a/slow") for _ in range(2)]
        disk.go.set()
        first, second = (one.result(SECONDS) for one in both)
    assert first is second


def test_a_table_that_is_forgotten_while_it_is_opened_is_opened_again(disk: SlowDisk) -> None:
    """The folder may be that of another dataflow by the time at which it is open."""
    tables = OpenTables(LocalFiles(), DEFAULT_LIMITS)
    with ThreadPoolExecutor() as threads:
        table = threads.submit(tables.table, "a/slow")
        assert disk.begun.wait(SECONDS)
        tables.forget("a")
        disk.go.set()
        table.result(SECONDS)
    assert disk.opened == ["a/slow", "a/slow"]
    assert tables.table("a/slow") is table.result()
    assert len(disk.opened) == 2
