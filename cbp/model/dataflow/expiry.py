"""Expiry of state by age: a group that was not called for some time loses its records.

    counts = State(..., expire="30 days")   the hidden timers `counts_expiry`: one for each group

Each call of a group sets its timer again; no author's code sees it. A group that a run visits only
for such a timer is *idle*: the author's code is not called, the group's records of that state are
deleted, and all its other records stay. The timers are a state (`cbp.engine.state.due_groups`). So
they are durable, undone by a roll-back, compacted and compared like any other state.

A time is rounded up by a sixteenth of the age at most, so that the timer of a group that is called
often is mostly emitted unchanged, which costs no I/O.

Invariant: a group that has records of the state has a timer, which is due no earlier than the age
after its last call (tests/cbp/engine/test_expiry.py).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from cbp.model.dataflow.run_context import microseconds, time_of
from cbp.model.dataflow.stage import TIMER_COLUMN, StateSpec, TranslatorSpec
from cbp.model.flow.schema import DataType, Field, Schema

EXPIRY_SUFFIX = "_expiry"

_STEPS = 16
"""Number of points in time within one age to which due times are rounded up."""


def expires_at(time: datetime, expire_ms: int) -> datetime:
    """Return when the records of a group expire if it is called now: in 1 to 1 1/16 ages."""
    step = max(1, expire_ms // _STEPS)
    end_ms = microseconds(time) // 1000 + expire_ms
    return time_of(-(-end_ms // step) * step)


def hidden_timers(state: StateSpec, key: Schema) -> StateSpec:
    """Return the hidden timers of a state that expires."""
    at = Field(TIMER_COLUMN, DataType("TIMESTAMP"), nullable=False)
    schema = Schema((*key.fields, at))
    name = state.name + EXPIRY_SUFFIX
    return StateSpec(name, schema, order_by=(TIMER_COLUMN,), timers=True, expires=state.name)


def authored(spec: TranslatorSpec) -> TranslatorSpec:
    """Return a translator as its author's code sees it: without hidden timers."""
    return replace(spec, states=spec.authored) if spec.expiries else spec
