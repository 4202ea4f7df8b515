"""Counts of committed runs by lane, since this process started; for metrics."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from cbp.model.plan.lanes import lanes_of

_NO_JOB = "none"


@dataclass(frozen=True, slots=True)
class LaneCount:
    """Runs of one dataflow that took the same lanes.

    Attributes:
        lane: For example `spark`; `resident+spark` if the jobs of a run took several lanes; `none`
            for runs without a job.
        seconds: Total time of their jobs.
    """

    dataflow: str
    lane: str
    runs: int = 0
    seconds: float = 0.0


class LaneCounts:
    """The counts; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, str], LaneCount] = {}

    def add(self, dataflow: str, figures: Mapping[str, float]) -> None:
        """Count a committed run."""
        lane = "+".join(lanes_of(figures)) or _NO_JOB
        seconds = figures.get("seconds_job", 0.0)
        with self._lock:
            was = self._counts.get((dataflow, lane), LaneCount(dataflow, lane))
            now = LaneCount(dataflow, lane, was.runs + 1, was.seconds + seconds)
            self._counts[dataflow, lane] = now

    def all(self) -> tuple[LaneCount, ...]:
        """Return all counts, by dataflow and lane."""
        with self._lock:
            return tuple(self._counts[key] for key in sorted(self._counts))
