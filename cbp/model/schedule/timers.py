"""Timers: when a stage runs without input. Pure.

The record of each run holds a time before which no timer of the stage is due (`Intention.due_ms`).
If the Runnable does not start the stage, and that time has come, a run that reads nothing calls the
groups with a due timer. Such a run calls no group if the timer was dropped meanwhile.

Invariant: a run that starts at or after the due time checks all timers, and records a due time that
is later than its own time, unless the author's code set a timer in the past. So no stage runs
forever for its timers (tests/cbp/model/schedule/test_timers.py, tests/simulation).
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from cbp.model.dataflow.run_context import time_of
from cbp.model.flow.connector import Decision


def due_at(due_ms: int | None) -> datetime | None:
    """Return the time of a stage's next timer; `None` if there is none."""
    return None if due_ms is None else time_of(due_ms)


def is_due(at: datetime | None, now: datetime) -> bool:
    """Return whether a stage runs for its timers."""
    return at is not None and at <= now


def woken(memo: Any) -> Decision:
    """Return the decision of a run for timers: it reads no input and keeps the Runnable's memo."""
    return Decision(memo=memo)


def waiting_words(at: datetime | None) -> str:
    """Return which timer a stage waits for, in words; empty if there is none."""
    return "" if at is None else f"waits for its timer at {at:%Y-%m-%d %H:%M:%S} UTC"
