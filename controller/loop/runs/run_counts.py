"""Counts of runs and ticks since this process started; for metrics."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, TypeVar

from cbp.clock import MACHINE
from cbp.model.plan.spark_or_worker import lanes_of
from cbp.model.run.timeline import is_begin, timeline
from cbp.model.schedule.waiting import Wait

BUCKETS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
"""Upper bounds of the buckets of seconds."""

_OUTCOME_BY_CODE = {
    "run_cancelled": "cancelled",
    "run_gave_way": "gave_way",
    "run_interrupted": "interrupted",
}

FIGURES = (
    "bytes_read",
    "bytes_in",
    "bytes_written",
    "records_in",
    "records_out",
    "groups",
    "lookups_index",
    "lookups_scan",
)
WAITS = ("readers", "place")
"""Kinds of waits that show that capacity is lacking."""

_T = TypeVar("_T")

_NO_JOB = "none"


@dataclass(frozen=True, slots=True)
class LaneCount:
    """Runs of one dataflow that took the same lanes.

    Attributes:
        lane: For example `spark`; `resident+spark` if the jobs of a run took several lanes; `none`
            for runs without a job.
    """

    dataflow: str
    lane: str
    runs: int = 0
    seconds: float = 0.0


@dataclass
class Counts:
    """A copy of the counts, which no longer changes.

    Attributes:
        runs: (dataflow, outcome) -> runs; an outcome is `committed`, `failed`, `cancelled`,
            `gave_way` or `interrupted`.
        figures: (dataflow, figure) -> total over committed runs.
        phase_seconds: (dataflow, phase) -> total seconds.
        buckets: Phase -> runs by bucket of seconds; one more than `BUCKETS`, for longer ones.
        waited: (dataflow, stage, kind) -> seconds; only kinds in `WAITS`.
        lanes: (dataflow, lane) -> its runs, including those of deleted dataflows.
    """

    runs: Counter[tuple[str, str]] = field(default_factory=Counter)
    figures: defaultdict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    phase_seconds: defaultdict[tuple[str, str], float] = field(
        default_factory=lambda: defaultdict(float)
    )
    buckets: dict[str, list[int]] = field(default_factory=dict)
    waited: defaultdict[tuple[str, str, str], float] = field(
        default_factory=lambda: defaultdict(float)
    )
    ticks: int = 0
    failed_ticks: int = 0
    tick_seconds: float = 0.0
    lanes: dict[tuple[str, str], LaneCount] = field(default_factory=dict)


class RunCounts:
    """The counts; safe to use from several threads."""

    def __init__(self, monotonic: Callable[[], float] = MACHINE.seconds) -> None:
        self._monotonic, self._lock = monotonic, threading.Lock()
        self._counts, self._looked = Counts(), monotonic()

    def commit(self, dataflow: str, figures: Mapping[str, float], finish_seconds: float) -> None:
        """Count a committed run.

        Args:
            finish_seconds: Duration of its last phase, which the figures do not contain.
        """
        begins = [figures[name] for name in figures if is_begin(name)]
        end = max(begins, default=0.0) + finish_seconds
        lane = dataflow, "+".join(lanes_of(figures)) or _NO_JOB
        with self._lock:
            counts = self._counts
            was = counts.lanes.get(lane, LaneCount(*lane))
            seconds = was.seconds + figures.get("seconds_job", 0.0)
            counts.lanes[lane] = LaneCount(*lane, was.runs + 1, seconds)
            counts.runs[dataflow, "committed"] += 1
            for name in FIGURES:
                counts.figures[dataflow, name] += figures.get(name, 0.0)
            for phase in timeline(figures, end):
                seconds = max(0.0, (end if phase.end is None else phase.end) - phase.begin)
                counts.phase_seconds[dataflow, phase.name] += seconds
                buckets = counts.buckets.setdefault(phase.name, [0] * (len(BUCKETS) + 1))
                buckets[bisect_left(BUCKETS, seconds)] += 1

    def fail(self, dataflow: str, code: str) -> None:
        """Count a run that ended without a result, by the code of its error."""
        with self._lock:
            self._counts.runs[dataflow, _OUTCOME_BY_CODE.get(code, "failed")] += 1

    def tick(
        self, tick: Callable[[], _T], waits: Callable[[], Iterable[Mapping[tuple[str, str], Wait]]]
    ) -> _T:
        """Do a tick and count it, with the waits of stages since the last one.

        Args:
            waits: Returns the waits of the dataflows that the tick examined; other waits are
                not counted.
        """
        began = self._monotonic()
        failed = 1
        try:
            done = tick()
            failed = 0
            return done
        finally:
            ended = self._monotonic()
            with self._lock:
                counts, since = self._counts, ended - self._looked
                self._looked = ended
                counts.ticks += 1
                counts.failed_ticks += failed
                counts.tick_seconds += ended - began
                for (dataflow, stage), wait in (one for mine in waits() for one in mine.items()):
                    if wait.kind in WAITS:
                        counts.waited[dataflow, stage, wait.kind] += since

    def forget(self, dataflow: str) -> None:
        """Drop the counts of a deleted dataflow."""
        with self._lock:
            counts = self._counts
            tables: tuple[dict[Any, Any], ...] = (
                counts.runs,
                counts.figures,
                counts.phase_seconds,
                counts.waited,
            )
            for table in tables:
                for key in [key for key in table if key[0] == dataflow]:
                    del table[key]

    def all(self) -> Counts:
        """Return a copy of the counts."""
        with self._lock:
            return deepcopy(self._counts)
