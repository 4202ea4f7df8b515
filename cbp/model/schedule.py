"""What to start next: a pure decision over everything that waits.

`decide` is called at every tick with a picture of all stages and returns the
runs to start. Rules: epochs of one stage are serial; at most `parallel_max` runs
at a time; whoever waited longest goes first, so nothing starves; a stage that
does not start says why, in words an operator can act on.

Absent on purpose: clocks, threads and stores. `now` is an argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from cbp.errors import CbpError
from cbp.model.connector import Connector, Decision
from cbp.model.consult import consult
from cbp.model.stage import RunnableSpec

__all__ = ["Schedule", "StageView", "Start", "decide"]


@dataclass(frozen=True, slots=True)
class StageView:
    """Everything that decides whether one stage may run.

    Attributes:
        epoch: Number of the next run.
        waiting_since: When it could first have run, or last started; orders the starts.
        running: Whether a run of it is under way.
        active: Whether the dataflow and the stage are wanted to run.
        paused_because: Why it is not active, in words.
        retry_at: After a failed run, not before this time (UTC); `None`: at once.
    """

    dataflow: str
    stage: str
    epoch: int
    connectors: Mapping[str, Connector]
    waiting_since: datetime
    running: bool = False
    active: bool = True
    paused_because: str = ""
    retry_at: datetime | None = None
    memo: Any = None
    runnable: RunnableSpec = field(default=RunnableSpec())


@dataclass(frozen=True, slots=True)
class Start:
    """A run to start: which epoch of which stage, on what."""

    dataflow: str
    stage: str
    epoch: int
    decision: Decision


@dataclass(frozen=True, slots=True)
class Schedule:
    """The answer of `decide`.

    Attributes:
        starts: In the order in which to start them.
        waiting: (dataflow, stage) to the reason why it does not start now.
        failed: Of those that wait, whose Runnable failed; they must not be asked again.
    """

    starts: tuple[Start, ...]
    waiting: Mapping[tuple[str, str], str]
    failed: Mapping[tuple[str, str], CbpError] = field(default_factory=dict)


def decide(stages: Iterable[StageView], *, now: datetime, parallel_max: int) -> Schedule:
    """Choose the runs to start now, longest waiting first; explain the others."""
    views = sorted(stages, key=lambda view: (view.waiting_since, view.dataflow, view.stage))
    free = parallel_max - sum(view.running for view in views)
    starts: list[Start] = []
    waiting: dict[tuple[str, str], str] = {}
    failed: dict[tuple[str, str], CbpError] = {}
    for view in views:
        try:
            reason, decision = _judge(view, now)
        except CbpError as error:
            failed[view.dataflow, view.stage] = error
            reason, decision = error.message, None
        if not reason and len(starts) >= free:
            reason = f"waits for one of {parallel_max} places for runs"
        if reason or decision is None:
            waiting[view.dataflow, view.stage] = reason
        else:
            starts.append(Start(view.dataflow, view.stage, view.epoch, decision))
    return Schedule(tuple(starts), waiting, failed)


def _judge(view: StageView, now: datetime) -> tuple[str, Decision | None]:
    """Return why a stage may not start, or else what it would read."""
    if view.running:
        return f"runs epoch {view.epoch}", None
    if not view.active:
        return view.paused_because or "is paused", None
    if view.retry_at is not None and now < view.retry_at:
        return f"tries again at {view.retry_at:%Y-%m-%d %H:%M:%S} UTC", None
    decision = consult(view.stage, view.runnable, view.connectors, view.memo)
    return ("", decision) if decision.runnable else (decision.waits_for, None)
