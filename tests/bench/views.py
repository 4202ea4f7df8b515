"""What a view costs more than a state with an output: URL count, both in turn in one process.

    python -m tests.bench.views --keys 1000000 --records 10000 --rounds 11 [--profile FILE]

Both count the same URLs on tables of their own. A figure is the median over the rounds of the
processor's seconds in a run's tasks, and in brackets of a whole run with its publication. The view
does more than the output: it has the current count per URL, and says of each URL what it was.
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

from cbp import DataflowBuilder, TranslateArrow
from cbp.engine.direct import LocalEngine
from cbp.engine.task.stage_task import StageTask
from stages.translators.url_count import UrlCount
from stages.translators.url_count_arrow import UrlCountArrow
from stages.translators.url_count_view import UrlCountView
from tests.driver import Driver


class ViewCountArrow(TranslateArrow):
    """Counts how often each URL was seen, in a view, by tables."""

    urls, counts = UrlCountView.urls, UrlCountView.counts

    def translate(self, groups: Any, out: Any) -> None:
        """Add the new sightings to the counts."""
        n = groups.sizes("urls") + groups.sums("counts", "n")
        out.counts(groups.keys.append_column("n", pa.array(n)))


FORMS: dict[str, tuple[type, type]] = {
    "groupwise": (UrlCount, UrlCountView),
    "arrow": (UrlCountArrow, ViewCountArrow),
}


def url(number: int) -> dict[str, Any]:
    """Return one sighting of a URL."""
    return {"url": f"https://example.org/pages/{number:012d}"}


class Candidate:
    """One translator on its own tables, which know all URLs."""

    def __init__(self, translator: Any, folder: Path, keys: int) -> None:
        builder = DataflowBuilder("count")
        builder.stage("count", translator, urls=builder.source("urls", "url STRING"), buckets=8)
        engine = LocalEngine(cache=f"{folder}/cache")
        self.driver = Driver(engine, builder.build(), folder / "tables")
        for first in range(0, keys, 250_000):
            self.driver.feed("urls", [url(n) for n in range(first, min(first + 250_000, keys))])
            self.driver.run_until_idle()

    def round(self, numbers: list[int]) -> float:
        """Count some sightings; return seconds of the processor in the run."""
        self.driver.feed("urls", [url(number) for number in numbers])
        started = time.process_time()
        self.driver.run_until_idle()
        return time.process_time() - started


def measure(form: str, keys: int, records: int, rounds: int, profile: str) -> None:
    """Print both candidates' seconds, and their ratio."""
    spent: list[float] = []
    run = StageTask.run_arranged
    profiler = cProfile.Profile()

    def watched(task: StageTask) -> Any:
        started = time.process_time()
        is_view = bool(profile) and bool(task.plan.spec.views) and measuring
        try:
            return profiler.runcall(run, task) if is_view else run(task)
        finally:
            spent.append(time.process_time() - started)

    dice, measuring = random.Random(1), False
    times: tuple[list[tuple[float, float]], list[tuple[float, float]]] = ([], [])
    with tempfile.TemporaryDirectory() as folder, patch.object(StageTask, "run_arranged", watched):
        candidates = [
            Candidate(translator(), Path(folder) / f"{at}", keys)
            for at, translator in enumerate(FORMS[form])
        ]
        measuring = True
        for number in range(rounds + 2):
            numbers = [dice.randrange(keys) for _ in range(records)]
            for each, mine in zip(candidates, times, strict=True):
                spent.clear()
                whole = each.round(numbers)
                if number > 1:
                    mine.append((sum(spent), whole))
    (output, output_whole), (view, view_whole) = (
        (statistics.median(task for task, _ in mine), statistics.median(all_ for _, all_ in mine))
        for mine in times
    )
    print(
        f"| {form} | {output:.3f} ({output_whole:.3f}) | {view:.3f} ({view_whole:.3f}) | "
        f"{view / output:.2f} ({view_whole / output_whole:.2f}) |",
        flush=True,
    )
    if profile:
        profiler.dump_stats(profile)


def main() -> None:
    """Print a line for each form."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--forms", default="groupwise,arrow")
    parser.add_argument("--profile", default="", help="file for a profile of the view's tasks")
    options = parser.parse_args()
    print("| form | state and output, s | view, s | ratio |")
    print("| --- | --- | --- | --- |")
    for form in options.forms.split(","):
        measure(form, options.keys, options.records, options.rounds, options.profile)


if __name__ == "__main__":
    main()
