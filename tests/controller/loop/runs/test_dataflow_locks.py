"""Turns to work on a dataflow: who waits, who does not, and what the log says of who has it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import structlog

from controller.loop.runs.dataflow_locks import LONG_SECONDS, DataflowLocks

WAIT_SECONDS = 60


@contextmanager
def held(exclusion: DataflowLocks, name: str) -> Iterator[None]:
    """Let another thread hold a dataflow's turn meanwhile."""
    taken, ended = threading.Event(), threading.Event()

    def work() -> None:
        with exclusion.hold(name, "has its files read"):
            taken.set()
            ended.wait(6 * WAIT_SECONDS)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert taken.wait(WAIT_SECONDS)
    yield
    ended.set()
    thread.join(WAIT_SECONDS)


def tried_beside(exclusion: DataflowLocks, name: str) -> bool:
    """Let another thread try; tell whether it got the turn."""
    got = list[bool]()

    def work() -> None:
        with exclusion.attempt(name, "is collected") as free:
            got.append(free)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(WAIT_SECONDS)
    return got[0]


def test_who_tries_never_waits() -> None:
    """A turn that is taken is not got, one that is free is; others' turns are their own."""
    exclusion = DataflowLocks()
    with held(exclusion, "a"):
        with exclusion.attempt("a", "is collected") as free:
            assert not free
        with exclusion.attempt("b", "is collected") as free:
            assert free
    with exclusion.attempt("a", "is collected") as free, exclusion.hold("a", "is collected"):
        assert free


def test_who_has_time_waits_for_the_turn() -> None:
    """An attempt with seconds gets the turn as soon as its holder ends; without, it is missed."""
    exclusion, got = DataflowLocks(), list[bool]()

    def work() -> None:
        with exclusion.attempt("a", "has a sink begun", seconds=WAIT_SECONDS) as free:
            got.append(free)

    waiting = threading.Thread(target=work, daemon=True)
    with held(exclusion, "a"):
        waiting.start()
        assert not tried_beside(exclusion, "a")
        assert not got
    waiting.join(WAIT_SECONDS)
    assert got == [True]


def test_a_turn_that_was_tried_is_kept_from_others() -> None:
    """What an attempt got is held until its end, also where it ends with an error."""
    exclusion = DataflowLocks()
    with suppress(ValueError), exclusion.attempt("a", "is collected"):
        assert not tried_beside(exclusion, "a")
        raise ValueError
    assert tried_beside(exclusion, "a")


def test_who_has_a_dataflow_for_long_is_named_once() -> None:
    """The log names the holder when something else is kept out for long, once per holding."""
    now = [0.0]
    exclusion = DataflowLocks(lambda: now[0])

    def told() -> list[tuple[str, str, int]]:
        with structlog.testing.capture_logs() as logs, exclusion.attempt("a", "is collected"):
            pass
        return [(log["dataflow"], log["holder"], log["seconds"]) for log in logs]

    for _ in range(2):
        now[0] = 0.0
        with held(exclusion, "a"):
            now[0] = LONG_SECONDS - 1
            assert told() == []
            now[0] = LONG_SECONDS
            assert told() == [("a", "has its files read", int(LONG_SECONDS))]
            assert told() == []
        assert told() == []


def test_what_is_done_inside_a_turn_is_of_its_holder() -> None:
    """A turn taken again by its thread keeps the first name and time, and is shown once."""
    now = [0.0]
    exclusion = DataflowLocks(lambda: now[0])
    with structlog.testing.capture_logs() as logs, exclusion.attempt("a", "is finished"):
        now[0] = 1.0
        with exclusion.hold("a", "is changed"):
            now[0] = 1.0 + LONG_SECONDS
            assert not tried_beside(exclusion, "a")
        assert not tried_beside(exclusion, "a")
    assert [(log["holder"], log["seconds"]) for log in logs] == [("is finished", 61)]
