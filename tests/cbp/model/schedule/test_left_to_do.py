"""Nothing left to do: then nothing happens until something arrives."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

import pytest

from cbp.model.dataflow.runnable import RunAll, RunAny
from cbp.model.dataflow.stage import RunnableSpec
from cbp.model.flow.connector import Connector, Decision, Queued
from cbp.model.flow.framing import Framing
from cbp.model.flow.increment import Increment
from cbp.model.flow.position import Position, StagePosition
from cbp.model.schedule.left_to_do import left_to_do
from cbp.model.schedule.waiting import Wait


def position(arrived: int = 0, **queues: int) -> Position:
    """A dataflow of one stage; input name to how many increments wait."""
    connectors = {
        name: Connector(name, tuple(Queued(Increment(name, n, n, ())) for n in range(count)))
        for name, count in queues.items()
    }
    if arrived:
        waiting = tuple(Increment("f", n, n, ()) for n in range(arrived))
        connectors["f"] = Connector("f", (), Framing(), waiting)
    return Position("d", {"s": StagePosition(0, None, connectors)}, ())


def test_what_runs_may_run_or_is_to_be_framed_is_left():
    """Each in words; what waits for another input has nothing left."""
    rules = {"s": RunnableSpec(RunAll())}
    assert left_to_do(rules, position(a=1, b=0), ()) == {}
    assert left_to_do(rules, position(a=1, b=1), ()) == {"s": "can run"}
    assert left_to_do(rules, position(a=0), ["s"]) == {"s": "runs"}
    assert left_to_do(rules, position(arrived=1, a=0), ()) == {"s": "frames new increments"}


def test_what_runs_says_since_when():
    """So a person sees that it hangs; a last decision that was another one says nothing of it."""
    rules, since = {"s": RunnableSpec(RunAll())}, datetime(2026, 11, 23, 4, 0, tzinfo=UTC)
    for kind, words in (
        ("running", "runs epoch 7, started at 2026-11-23 04:00:00 UTC"),
        ("input", "runs"),
    ):
        waits = {"s": Wait(kind, "runs epoch 7", since)}  # type: ignore[arg-type]
        assert left_to_do(rules, position(a=0), ["s"], waits) == {"s": words}


def test_a_close_that_is_not_applied_is_left():
    """Though nothing has arrived: it may end a frame."""
    closing = Connector("f", (), Framing(), (), (3,))
    actual = Position("d", {"s": StagePosition(0, None, {"f": closing})}, ())
    assert left_to_do({"s": RunnableSpec(RunAll())}, actual, ()) == {"s": "frames new increments"}


def test_a_runnable_that_fails_has_something_left():
    """It is stopped, not done."""

    def wrong(connectors: Any, memo: Any) -> Decision:
        return Decision({"nobody": (0,)})

    left = left_to_do({"s": RunnableSpec(wrong)}, position(a=0), ())
    assert "nobody" in left["s"]


def test_an_authors_function_is_not_called_where_its_last_answer_is_given():
    """It can take any time, so a list of dataflows does not wait for it."""

    def hangs(connectors: Any, memo: Any) -> Decision:
        raise AssertionError("it was called")

    rules = {"s": RunnableSpec(hangs)}
    words, now = "waits for the answer of hangs", datetime(2026, 1, 1, tzinfo=UTC)
    assert left_to_do(rules, position(a=1), (), {"s": Wait("input", words, now)}) == {}
    assert left_to_do(rules, position(a=1), (), {"s": Wait("asking", words, now)}) == {"s": words}
    assert left_to_do(rules, position(a=1), (), {}) == {"s": "can run"}
    assert left_to_do(rules, position(a=0), (), {}) == {}
    ready = {"s": RunnableSpec(RunAny())}
    stale = {"s": Wait("input", "waits for input", now)}
    assert left_to_do(ready, position(a=1), (), stale) == {"s": "can run"}


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_left_exactly_when_the_rule_would_not_run(seed: int):
    """For any queues, with either rule."""
    draw = random.Random(seed)
    queues = {name: draw.randrange(3) for name in "ab"}
    every = {"s": RunnableSpec(RunAll())}
    any_ = {"s": RunnableSpec(RunAny())}
    assert bool(left_to_do(every, position(**queues), ())) == all(queues.values()), f"seed {seed}"
    assert bool(left_to_do(any_, position(**queues), ())) == any(queues.values()), f"seed {seed}"
