"""Candidates of a benchmark in turn, in one process: the processor's seconds of their tasks.

Every candidate has tables of its own. `task_seconds` times the tasks of all runs; `rounds_in_turn`
gives each candidate the same numbers in each round, so a slow moment of the machine hits all alike.
"""

from __future__ import annotations

import cProfile
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol
from unittest.mock import patch

from cbp import DataflowBuilder
from cbp.engine.direct import LocalEngine
from cbp.engine.task.stage_task import StageTask
from cbp.model.dataflow.dataflow import Dataflow
from tests.driver import Driver

AT_ONCE = 250_000
"""Records that an increment of a first load has."""

WARMUP = 2
"""Rounds that do not count."""

Seconds = tuple[float, float]
"""Seconds that the tasks of a round took, and its whole run with the publication."""


class Candidate(Protocol):
    """What takes part in rounds."""

    def round(self, numbers: list[int]) -> float:
        """Run an increment of these numbers; return the processor's seconds of the run."""
        ...


@contextmanager
def task_seconds(
    watches: Callable[[StageTask], bool] = lambda task: False, profile: str = ""
) -> Iterator[dict[str, float]]:
    """Yield stage -> the processor's seconds of its tasks since the caller cleared it.

    Args:
        watches: Whether a task is profiled.
        profile: File for the profile; empty means none.
    """
    spent: dict[str, float] = {}
    run, profiler = StageTask.run_arranged, cProfile.Profile()

    def timed(task: StageTask) -> Any:
        started, stage = time.process_time(), task.plan.stage
        try:
            return profiler.runcall(run, task) if profile and watches(task) else run(task)
        finally:
            spent[stage] = spent.get(stage, 0.0) + time.process_time() - started

    with patch.object(StageTask, "run_arranged", timed):
        yield spent
    if profile:
        profiler.dump_stats(profile)


def rounds_in_turn(
    candidates: Sequence[Candidate],
    spent: dict[str, float],
    *,
    keys: int,
    records: int,
    rounds: int,
) -> list[list[Seconds]]:
    """Return the seconds of each candidate's rounds; all get the same random keys in a round."""
    dice = random.Random(1)
    times: list[list[Seconds]] = [[] for _ in candidates]
    for number in range(rounds + WARMUP):
        numbers = [dice.randrange(keys) for _ in range(records)]
        for each, mine in zip(candidates, times, strict=True):
            spent.clear()
            whole = each.round(numbers)
            if number >= WARMUP:
                mine.append((sum(spent.values()), whole))
    return times


def medians(mine: Sequence[Seconds]) -> Seconds:
    """Return the median of the tasks, and of whole runs."""
    task, whole = (statistics.median(one) for one in zip(*mine, strict=True))
    return task, whole


class Loaded:
    """A dataflow on its own tables, which were loaded with a record of every key.

    Args:
        dataflow: The dataflow.
        folder: Where its tables are made.
        source: The source of the first load.
        records: The number of the records of the first load.
        make: Makes a record of it from its number.
        time_ms: The time of the first load.
    """

    def __init__(
        self,
        dataflow: Dataflow,
        folder: Path,
        source: str,
        records: int,
        make: Callable[[int], dict[str, Any]],
        *,
        time_ms: int = 0,
    ) -> None:
        self.driver = Driver(LocalEngine(cache=f"{folder}/cache"), dataflow, folder / "tables")
        self.driver.time_ms = time_ms
        for first in range(0, records, AT_ONCE):
            numbers = range(first, min(first + AT_ONCE, records))
            self.driver.feed(source, [make(number) for number in numbers])
            self.driver.run_until_idle()

    def timed(self, source: str, records: list[dict[str, Any]]) -> float:
        """Run an increment; return the processor's seconds of the run."""
        self.driver.feed(source, records)
        started = time.process_time()
        self.driver.run_until_idle()
        return time.process_time() - started


def url(number: int) -> dict[str, Any]:
    """Return one sighting of a URL."""
    return {"url": f"https://example.org/pages/{number:012d}"}


class UrlCounts(Loaded):
    """A translator that counts URLs, on tables that know all of them."""

    def __init__(
        self,
        translator: Any,
        folder: Path,
        keys: int,
        *,
        time_ms: int = 0,
        step_ms: int = 0,
    ) -> None:
        builder = DataflowBuilder("count")
        builder.stage("count", translator, urls=builder.source("urls", "url STRING"), buckets=8)
        super().__init__(builder.build(), folder, "urls", keys, url, time_ms=time_ms)
        self.step_ms = step_ms

    def round(self, numbers: list[int]) -> float:
        """Count some sightings, `step_ms` after the round before."""
        self.driver.time_ms += self.step_ms
        return self.timed("urls", [url(number) for number in numbers])
