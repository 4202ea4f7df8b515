"""Fan-out estimate: how many groups an increment is expected to call, to choose enough tasks.

The number of records does not tell it: one record to `ALL` calls every group of a state. The
groups are only known once a task has called the author's RouteBy. But stages repeat themselves,
so a run is expected to call as many groups as the last run with records at the same inputs.

Guaranteed: only the number of tasks, and so the time of a run, depends on the estimate.
Not guaranteed: that the first run of a kind, here or after a restart, has enough tasks.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from cbp.engine.interface.runs import RunPlan

KINDS_MAX = 4_096
"""Maximum number of kinds of runs that are remembered, the latest ones.

Each takes some hundred bytes.
"""

_Kind = tuple[str, str, tuple[str, ...]]


class FanoutEstimate:
    """Remembers how many groups the last run of each kind called; safe to use from threads.

    Two runs of a stage are of one kind if the same inputs of the stage got records.
    """

    def __init__(self) -> None:
        self._groups: OrderedDict[_Kind, int] = OrderedDict()
        self._lock = threading.Lock()

    def expected(self, plan: RunPlan) -> int:
        """Return how many groups a run is expected to call; 0 if no run of its kind was seen."""
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
