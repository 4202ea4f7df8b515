"""How many groups an increment is expected to reach, so that enough tasks share them.

How many records an increment has says nothing of it: one record to `ALL` calls every group of
a state. Nobody knows before a task has asked the author's RouteBy; but stages repeat themselves:
whatever comes at the same inputs is expected to reach what it reached the last time.

Guaranteed: nothing depends on it but how many tasks a run has, and so how long it takes.
Not guaranteed: that the first run of a kind, here or after a restart, has enough of them.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from cbp.engine.base import RunPlan

__all__ = ["Reach"]

KINDS_MAX = 4_096
"""Kinds of runs that are remembered, the last ones; each takes some hundred bytes."""

_Kind = tuple[str, str, tuple[str, ...]]


class Reach:
    """Remembers how many groups the last run of each kind called; safe to use from threads.

    Runs of one stage are of one kind if records came at the same of its inputs.
    """

    def __init__(self) -> None:
        self._groups: OrderedDict[_Kind, int] = OrderedDict()
        self._lock = threading.Lock()

    def expected(self, plan: RunPlan) -> int:
        """Return how many groups a run is expected to call; 0: none like it was seen."""
        with self._lock:
            return self._groups.get(_kind(plan), 0)

    def note(self, plan: RunPlan, groups: int) -> None:
        """Remember how many groups a run called."""
        kind = _kind(plan)
        with self._lock:
            self._groups[kind] = groups
            self._groups.move_to_end(kind)
            while len(self._groups) > KINDS_MAX:
                self._groups.popitem(last=False)


def _kind(plan: RunPlan) -> _Kind:
    came = sorted(name for name, many in plan.inputs.items() if any(i.records for i in many))
    return plan.folder, plan.node.name, tuple(came)
