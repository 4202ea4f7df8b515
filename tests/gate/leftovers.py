"""What a file of tests leaves behind: threads, processes, listening ports and temporary files.

A plugin of pytest; `tests/conftest.py` registers it in each process that runs tests. It takes stock
before the first test of a file and after the last one's fixtures have ended. What is new then, and
does not go away within `GRACE_SECONDS`, fails the file's last test and is named: it would slow down
or break a test of another file, which then gets the blame.

What a fixture of several files holds (Spark, a database server, a browser) belongs to the session,
with all that it starts later.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

GRACE_SECONDS = 5.0

_LISTEN = "0A"
_OWN = ("pytest-of-",)
"""Beginnings of names of temporary files that pytest itself makes."""

_POOLS = ("cbp-sync", "cbp-write", "cbp-settle", "Dummy-", "fsspecIO", "asyncio_")
"""Beginnings of names of threads: of pools that a process has once, and of C libraries."""


_OF_PYTHON = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
"""Processes that Python starts once and ends with the process."""


@dataclass(frozen=True)
class Stock:
    """What a process holds at one moment, each thing with words that name it.

    Attributes:
        threads: Name of each thread of Python by its number.
        processes: Command line of each descendant by its number.
        ports: Address of each listening TCP socket of this process by its inode.
        files: Names of the entries of the folder for temporary files.
    """

    threads: dict[int, str] = field(default_factory=dict)
    processes: dict[int, str] = field(default_factory=dict)
    ports: dict[int, str] = field(default_factory=dict)
    files: frozenset[str] = frozenset()

    def since(self, before: Stock) -> list[str]:
        """Return what is here and was not before, a line each."""
        return [
            *(f"thread {n!r}" for i, n in self.threads.items() if i not in before.threads),
            *(f"process {i}: {n}" for i, n in self.processes.items() if i not in before.processes),
            *(f"port {n}" for i, n in self.ports.items() if i not in before.ports),
            *(f"file {name}" for name in sorted(self.files - before.files)),
        ]

    def with_(self, other: Stock) -> Stock:
        """Return what either of two holds."""
        return Stock(
            self.threads | other.threads,
            self.processes | other.processes,
            self.ports | other.ports,
            self.files | other.files,
        )

    def without(self, other: Stock) -> Stock:
        """Return what this one holds and the other does not."""
        return Stock(
            {i: n for i, n in self.threads.items() if i not in other.threads},
            {i: n for i, n in self.processes.items() if i not in other.processes},
            {i: n for i, n in self.ports.items() if i not in other.ports},
            self.files - other.files,
        )


def take_stock(session: Iterable[int] = ()) -> Stock:
    """Return what this process holds now.

    Args:
        session: Processes whose descendants are passed over.
    """
    alive = [one for one in threading.enumerate() if not one.name.startswith(_POOLS)]
    return Stock(
        {thread.ident or 0: thread.name for thread in alive},
        descendants(os.getpid(), session),
        _listening(),
        frozenset(name for name in os.listdir(tempfile.gettempdir()) if not name.startswith(_OWN)),
    )


def descendants(root: int, passed_over: Iterable[int] = ()) -> dict[int, str]:
    """Return the command line of each process that descends from one, by its number.

    Args:
        root: The process.
        passed_over: Processes that are left out, with their descendants.
    """
    children: dict[int, list[int]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                stat = Path(entry.path, "stat").read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue  # it has ended
            parent = int(stat.rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
    found, out = dict[int, str](), set(passed_over)
    waiting = [root]
    while waiting:
        for child in children.get(waiting.pop(), []):
            if child in out:
                continue
            waiting.append(child)
            command = _command(child)
            if not any(name in command for name in _OF_PYTHON):
                found[child] = command
    return found


def _command(process: int) -> str:
    try:
        raw = Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        raw = b""
    return raw.replace(b"\0", b" ").decode(errors="replace").strip()[:200] or "(ended, not reaped)"


def _listening() -> dict[int, str]:
    own = set()
    for entry in os.scandir("/proc/self/fd"):
        try:
            target = os.readlink(entry.path)
        except OSError:
            continue
        if target.startswith("socket:["):
            own.add(int(target[8:-1]))
    found = {}
    for table in ("tcp", "tcp6"):
        path = Path("/proc/self/net", table)
        lines = path.read_text(encoding="utf-8").splitlines()[1:] if path.exists() else []
        for line in lines:
            words = line.split()
            if words[3] == _LISTEN and int(words[9]) in own:
                found[int(words[9])] = str(int(words[1].rpartition(":")[2], 16))
    return found


class Leftovers:
    """The plugin; see the module header.

    Args:
        stock: Returns what the process holds, without what descends from the given processes.
        pause: Waits some seconds; what is ending may end meanwhile.
        grace_seconds: How long to wait for it.
    """

    def __init__(
        self,
        stock: Callable[[Iterable[int]], Stock] = take_stock,
        pause: Callable[[float], None] = time.sleep,
        grace_seconds: float = GRACE_SECONDS,
    ) -> None:
        self._stock, self._pause, self._grace_seconds = stock, pause, grace_seconds
        self._session = Stock()
        self._before: Stock | None = None

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any]
    ) -> Generator[None, object, object]:
        """Note what a fixture of several files holds from its start on."""
        if fixturedef.scope not in ("session", "package"):
            return (yield)
        before = self._now()
        try:
            return (yield)
        finally:
            self._session = self._session.with_(self._now().without(before))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        """Take stock before the first and after the last test of a file."""
        if self._before is None:
            self._before = self._now()
        done = yield
        if nextitem is not None and nextitem.path == item.path:
            return done
        left = self.left_since(self._before)
        self._before = None
        if left:
            self._report(item, left)
        return done

    def left_since(self, before: Stock) -> list[str]:
        """Return what is new and stays, a line each."""
        known = before.with_(self._session)
        left = self._now().since(known)
        waited = 0.0
        while left and waited < self._grace_seconds:
            self._pause(0.05)
            waited += 0.05
            left = self._now().since(known)
        return left

    def _now(self) -> Stock:
        return self._stock(self._session.processes)

    def _report(self, item: pytest.Item, left: list[str]) -> None:
        text = f"{item.path.name} leaves behind:\n" + "\n".join(f"  {line}" for line in left)
        report = pytest.TestReport(
            nodeid=item.nodeid,
            location=item.location,
            keywords={},
            outcome="failed",
            longrepr=text,
            when="teardown",
        )
        item.ihook.pytest_runtest_logreport(report=report)
