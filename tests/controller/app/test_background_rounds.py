"""Rounds: dataflows have their turns beside each other, each once at a time, in their order.

A slow file, or a device that hangs, delays the files of its own dataflow only. A stop, and a leader
that retires, leave a file between two batches of it.
"""

from __future__ import annotations

import threading
from collections import Counter
from datetime import UTC, datetime, timedelta

import structlog

from cbp.clock import MACHINE
from cbp.model.schedule.parallel_runs import Places
from controller.app.leader_duties import Rounds
from controller.loop.runs.threads import Threads
from tests.controller.world import Deferred

WAIT_SECONDS = 120
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Driven:
    """Rounds whose work the test ends one by one; the test moves the clock."""

    def __init__(self, places: Places) -> None:
        self.now, self.done = NOW, list[str]()
        self.executor = Deferred()
        self.rounds = Rounds(
            "work", self.done.append, executor=self.executor, places=places, clock=lambda: self.now
        )

    def end(self) -> str:
        """End what began first; return whose it was."""
        self.executor.run_next()
        return self.done[-1]


def test_so_many_go_on_at_a_time_and_nobody_starves() -> None:
    """Places bound what goes on; who is asked for all the time is behind those that wait."""
    driven = Driven(Places(2, 10.0, 8))
    for _ in range(10):
        driven.rounds.ask("abcde")
        assert len(driven.executor.waiting) <= 2
        driven.end()
    assert Counter(driven.done) == dict.fromkeys("abcde", 2)


def test_what_is_asked_for_while_it_goes_on_has_another_turn() -> None:
    """Never beside itself, and once more behind it, however often it was asked for."""
    driven = Driven(Places(2, 10.0, 8))
    for _ in range(3):
        driven.rounds.ask(["a"])
    assert len(driven.executor.waiting) == 1
    driven.end()
    assert len(driven.executor.waiting) == 1
    driven.end()
    assert not driven.executor.waiting


def test_what_is_slow_holds_no_place() -> None:
    """As many as there are places hang: once they are slow, the next has its turn."""
    driven = Driven(Places(2, 10.0, 8))
    driven.rounds.ask("abc")
    assert len(driven.executor.waiting) == 2
    driven.now += timedelta(seconds=10)
    driven.rounds.ask(())
    assert len(driven.executor.waiting) == 3


def test_after_a_stop_nothing_begins_until_it_is_begun_again() -> None:
    """What waits has no turn any more; what is under way is stopped, and waited for."""
    driven = Driven(Places(1))
    driven.rounds.ask("ab")
    assert not driven.rounds.stopping()
    driven.rounds.stop()
    assert driven.rounds.stopping()
    assert not driven.rounds.wait(0)
    driven.end()
    assert driven.rounds.wait(0)
    driven.rounds.ask("a")
    assert not driven.executor.waiting
    driven.rounds.begin()
    driven.rounds.ask("a")
    assert driven.end() == "a"


def test_what_fails_has_its_next_turn() -> None:
    """An error ends one turn of one dataflow, and is in the log."""
    begun, tries = threading.Semaphore(0), list[str]()

    def work(dataflow: str) -> None:
        tries.append(dataflow)
        begun.release()
        raise OSError("stale handle")

    rounds = Rounds("work", work, executor=Threads("work"), places=Places(2), clock=MACHINE.now)
    with structlog.testing.capture_logs() as logs:
        for _ in range(2):
            rounds.ask("ab")
            assert begun.acquire(timeout=WAIT_SECONDS)
            assert begun.acquire(timeout=WAIT_SECONDS)
            assert rounds.wait(WAIT_SECONDS)
    assert Counter(tries) == {"a": 2, "b": 2}
    assert [log["event"] for log in logs] == ["round.failed"] * 4
