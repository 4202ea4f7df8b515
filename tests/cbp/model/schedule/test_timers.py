"""When a stage runs for its timers, and what it says while it waits."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from cbp.model.flow.back_pressure import FlowLimit
from cbp.model.flow.connector import Connector
from cbp.model.flow.increment import DataFile, Increment
from cbp.model.schedule.parallel_runs import Places
from cbp.model.schedule.scheduler import StageView, decide
from cbp.model.schedule.timers import due_at
from tests.cbp.model.schedule.test_scheduler import NOW, READY, view

DUE = replace(view("a", ready=False), due_at=NOW, memo={"n": 1})


def test_a_stage_without_input_runs_once_its_timer_is_due() -> None:
    """It reads nothing, removes nothing, and keeps the Runnable's memo."""
    (start,) = decide([DUE], now=NOW, places=Places(1)).starts
    assert (start.decision.read, start.decision.remove, start.decision.memo) == ({}, {}, {"n": 1})


def test_input_goes_first() -> None:
    """A run that reads looks at the timers as well."""
    ready = replace(DUE, connectors=READY)
    (start,) = decide([ready], now=NOW, places=Places(1)).starts
    assert start.decision.read == {"items": (4,)}


def test_a_stage_waits_for_its_timer_in_words() -> None:
    """With the time; a stage without a timer does not mention any."""
    later = replace(DUE, due_at=NOW + timedelta(seconds=1))
    schedule = decide([later, view("b", ready=False)], now=NOW, places=Places(1))
    assert not schedule.starts
    wait = schedule.waits["flow", "a"]
    assert wait.kind == "timer"
    assert wait.words.endswith("; waits for its timer at 2026-11-21 06:00:01 UTC")
    assert schedule.waits["flow", "b"].kind == "input"
    assert "timer" not in schedule.waits["flow", "b"].words


def test_a_due_timer_starts_no_stage_that_must_not_run() -> None:
    """Not while it runs, is paused, or has to wait after a failure."""
    for held in (
        replace(DUE, running=True),
        replace(DUE, active=False, paused_because="x"),
        replace(DUE, retry_at=NOW + timedelta(seconds=5)),
    ):
        assert not decide([held], now=NOW, places=Places(1)).starts


def test_back_pressure_holds_what_a_timer_would_write() -> None:
    """A stage behind it that is full and busy keeps it waiting."""
    full = Connector("i").append(Increment("a.o", 0, 0, (DataFile("f", 9, 9),)))
    behind = StageView("flow", "b", 0, {"i": full}, NOW, running=True, wiring={"i": "a.o"})
    held = replace(DUE, limits={"a.o": FlowLimit(1)})
    schedule = decide([held, behind], now=NOW, places=Places(9))
    assert schedule.waits["flow", "a"].kind == "readers"


def test_the_time_of_a_record_is_in_utc() -> None:
    """To the millisecond; a stage without a timer has none."""
    assert due_at(None) is None
    due = due_at(int(NOW.timestamp() * 1000) + 7)
    assert due == NOW + timedelta(milliseconds=7)
