"""Priority: the weight of a stage's waiting time when a slot for a run is free.

    low       a quarter of its waiting time counts
    normal    its waiting time counts as it is; the default
    high      four times its waiting time counts

An operator sets it; it changes the order of the starts, never a result. The stage whose weighted
waiting time is longest goes first (`cbp.model.schedule.scheduler`). The time of a waiting stage
keeps growing, so a priority delays and never starves.

How long at most? Let w be the weight of a waiting stage X, and W the largest weight of n stages
that can run. Call the last w / (w + W) of the time that X has waited its *tail*. A stage that
started within the tail and could start again within it has waited less than the tail. That is less
than w / W of the time that X had waited even when the tail began, so X goes first. Hence each other
stage starts at most once in the tail before X does, and the tail is no longer than a round: the
time in which every stage runs once. X waits at most 1 + W / w rounds, whatever the lengths of the
runs: 2 among equals, 5 for a normal stage beside high ones, 17 for a low one beside them.

Guaranteed: among equal priorities the order is that of the waiting times alone
(tests/cbp/model/schedule/test_priority.py).

Source: ours; ageing: Corbato et al., "An Experimental Time-Sharing System" (1962).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal, get_args

Priority = Literal["low", "normal", "high"]

PRIORITIES: tuple[Priority, ...] = get_args(Priority)
"""All priorities, the lowest first."""

NORMAL: Priority = "normal"

WEIGHTS: dict[Priority, int] = {"low": 1, "normal": 4, "high": 16}
"""Only ratios of weights matter."""


def waited(since: datetime, now: datetime, priority: Priority) -> timedelta:
    """Return how long a stage has waited, times its weight; 0 if a clock was set back."""
    return max(now - since, timedelta(0)) * WEIGHTS[priority]
