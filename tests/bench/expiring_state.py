"""What the age of a state costs a call: URL count with `expire="30 days"`, and without.

    python -m tests.bench.expiring_state --keys 200000 --records 10000 --rounds 11 [--profile FILE]

The candidates count the same URLs on tables of their own, in turn in one process. `same` is the
usual round: the timers of the called groups stay as they are. In a round of `new` so much time has
passed that each of them is written anew, which happens to a group at most sixteen times within its
age. A figure is the median over the rounds of the processor's seconds in a run's tasks, and in
brackets of a whole run with its publication; a ratio is the median of the ratios of each round.
"""

from __future__ import annotations

import argparse
import cProfile
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from cbp import DataflowBuilder, Input, Output, State, Translate, TranslateArrow
from cbp.engine.direct import LocalEngine
from cbp.engine.task.stage_task import StageTask
from tests.driver import Driver

SCHEMA = "url STRING, n BIGINT"
BEGIN_MS = 1_800_000_000_000
STEP_MS = 2 * 24 * 3_600_000
"""More than a sixteenth of the age."""


class Counts(Translate):
    """Counts how often each URL was seen."""

    urls = Input("url STRING", route_by="url")
    totals = Output(SCHEMA, key="url")

    def __init__(self, age: str | None = None) -> None:
        self.counts = State(SCHEMA, expire=age)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Add the new sightings of one URL to its count."""
        n = sum(1 for _ in group.urls) + sum(row.n for row in group.counts)
        out.counts(url=key.url, n=n)
        out.totals(url=key.url, n=n)


class CountsArrow(TranslateArrow):
    """The same by tables."""

    urls, totals = Counts.urls, Counts.totals

    def __init__(self, age: str | None = None) -> None:
        self.counts = State(SCHEMA, expire=age)

    def translate(self, groups: Any, out: Any) -> None:
        """Add the new sightings to the counts."""
        n = groups.sizes("urls") + groups.sums("counts", "n")
        counts = groups.keys.append_column("n", pa.array(n))
        out.counts(counts)
        out.totals(counts)


FORMS: dict[str, Any] = {"groupwise": Counts, "arrow": CountsArrow}
CANDIDATES = ((None, 0), ("30 days", 0), ("30 days", STEP_MS))
"""The age, and the time that passes from round to round."""


def url(number: int) -> dict[str, Any]:
    """Return one sighting of a URL."""
    return {"url": f"https://example.org/pages/{number:012d}"}


class Candidate:
    """One translator on its own tables, which know all URLs."""

    def __init__(self, translator: Any, folder: Path, keys: int, step_ms: int) -> None:
        builder = DataflowBuilder("count")
        builder.stage("count", translator, urls=builder.source("urls", "url STRING"), buckets=8)
        engine = LocalEngine(cache=f"{folder}/cache")
        self.driver, self.step_ms = Driver(engine, builder.build(), folder / "tables"), step_ms
        self.driver.time_ms = BEGIN_MS
        for first in range(0, keys, 250_000):
            self.driver.feed("urls", [url(n) for n in range(first, min(first + 250_000, keys))])
            self.driver.run_until_idle()

    def round(self, numbers: list[int]) -> float:
        """Count some sightings; return seconds of the processor in the run."""
        self.driver.time_ms += self.step_ms
        self.driver.feed("urls", [url(number) for number in numbers])
        started = time.process_time()
        assert self.driver.run("count")
        return time.process_time() - started


def measure(form: str, keys: int, records: int, rounds: int, profile: str) -> None:
    """Print the seconds of all candidates, and their ratios to the first."""
    spent: list[float] = []
    run = StageTask.run_arranged
    profiler = cProfile.Profile()

    def watched(task: StageTask) -> Any:
        started = time.process_time()
        is_profiled = bool(profile) and bool(task.plan.spec.expiries) and measuring
        try:
            return profiler.runcall(run, task) if is_profiled else run(task)
        finally:
            spent.append(time.process_time() - started)

    dice, measuring = random.Random(1), False
    times: list[list[tuple[float, float]]] = [[] for _ in CANDIDATES]
    with tempfile.TemporaryDirectory() as folder, patch.object(StageTask, "run_arranged", watched):
        candidates = [
            Candidate(FORMS[form](age), Path(folder) / f"{at}", keys, step_ms)
            for at, (age, step_ms) in enumerate(CANDIDATES)
        ]
        measuring = True
        for number in range(rounds + 2):
            numbers = [dice.randrange(keys) for _ in range(records)]
            for each, mine in zip(candidates, times, strict=True):
                spent.clear()
                whole = each.round(numbers)
                if number > 1:
                    mine.append((sum(spent), whole))
    cells = [
        f"{statistics.median(task for task, _ in mine):.3f} "
        f"({statistics.median(all_ for _, all_ in mine):.3f})"
        for mine in times
    ]
    for mine in times[1:]:
        pairs = list(zip(mine, times[0], strict=True))
        task, whole = (statistics.median(one[at] / no[at] for one, no in pairs) for at in (0, 1))
        cells.append(f"{task:.2f} ({whole:.2f})")
    print(f"| {form} | {' | '.join(cells)} |", flush=True)
    if profile:
        profiler.dump_stats(profile)


def main() -> None:
    """Print a line for each form."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=200_000)
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=11, help="13 at most: then groups expire")
    parser.add_argument("--forms", default="groupwise,arrow")
    parser.add_argument("--profile", default="", help="file for a profile of tasks with an age")
    options = parser.parse_args()
    print("| form | no age, s | same, s | new, s | same, ratio | new, ratio |")
    print("| --- | --- | --- | --- | --- | --- |")
    for form in options.forms.split(","):
        measure(form, options.keys, options.records, options.rounds, options.profile)


if __name__ == "__main__":
    main()
