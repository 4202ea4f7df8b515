"""What a replaced file and a rebuild beside cost, next to adding records.

    python -m tests.bench.corrections --keys 1000000 --files 100 --records 20000

One service in one thread, with real files and syncs: a stage that adds up numbers per key, on
columns, without signed records (its groups are recomputed). Each figure
is from the file that was received to the published tables: reading it, comparing it, the run. The
medians of some rounds are compared; after the last one the table is compared with what counts.
The rebuild runs in a thread beside the updates; none of these is lost.
"""

from __future__ import annotations

import argparse
import logging
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import structlog

from controller.loop.beside.rebuild_job import RebuildJob
from tests.controller.corrected_files import DOCUMENT, Row, Shelf

STAGE = {**DOCUMENT, "stages": {"sums": {**DOCUMENT["stages"]["columns"], "buckets": 8}}}


class Corrected:
    """A service that has read many files, and how long it takes over more."""

    def __init__(self, root: Path, keys: int, files: int, records: int, share: float) -> None:
        self.threads = ThreadPoolExecutor(1)
        self.shelf = Shelf(root, STAGE, verifier=self.threads, rebuild_share=share)
        self.keys, self.records, self.made = keys, records, 0
        self.random = random.Random(7)
        self.loading = [self.add(records) for _ in range(files)]

    def rows(self, number: int) -> list[Row]:
        """Return records of random keys."""
        return [
            (f"key-{self.random.randrange(self.keys):08d}", self.random.randrange(1000))
            for _ in range(number)
        ]

    def timed(self, ask: Callable[[], object]) -> float:
        """Ask for something; return the seconds until it is applied and published."""
        ask()
        began = time.perf_counter()
        self.shelf.take_in()
        return time.perf_counter() - began

    def add(self, records: int) -> float:
        """Add a file."""
        name, rows = f"file-{self.made:05d}", self.rows(records)
        self.made += 1
        self.shelf.counts[name] = rows
        return self.timed(lambda: self.shelf.put(name, *rows))

    def replace(self, share: float) -> float:
        """Replace one of the first files by one in which a share of the records differs."""
        name = f"file-{self.random.randrange(10):05d}"
        rows = self.shelf.counts[name]
        differ = int(len(rows) * share)
        rows = [*self.rows(differ), *rows[differ:]]
        self.shelf.counts[name] = rows
        return self.timed(lambda: self.shelf.replace(name, *rows))

    def build(self) -> RebuildJob:
        """Begin to build the tables anew beside the present ones."""
        controller = self.shelf.world.controller
        return controller.rebuild_jobs.start(STAGE, controller.validate(STAGE))

    def during(self, job: RebuildJob, records: int) -> Iterator[float]:
        """Yield the seconds of adding files while a rebuild is under way."""
        jobs = self.shelf.world.controller.rebuild_jobs
        while (shown := jobs.show("shelf", job.id)).status == "building":
            yield self.add(records)
        assert shown.status == "ready", shown.error

    def close(self) -> None:
        """End its threads, and release the store."""
        self.threads.shutdown()
        self.shelf.close()


def main() -> None:
    """Print each figure, and the ratios of the goals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=100)
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--share", type=float, default=0.5, help="CBP_REBUILD_SHARE")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    few, rounds = options.records // 100, range(options.rounds)
    with tempfile.TemporaryDirectory() as folder:
        given = options.keys, options.files, options.records, options.share
        made = Corrected(Path(folder) / "world", *given)
        figures = {
            f"add {few:,}": [made.add(few) for _ in rounds],
            f"add {2 * options.records:,}": [made.add(2 * options.records) for _ in rounds],
            "replace, 1 % differs": [made.replace(0.01) for _ in rounds],
            "replace, all differs": [made.replace(1.0) for _ in rounds],
        }
        made.shelf.require_right()
        began = time.perf_counter()
        job = made.build()
        figures[f"add {few:,} during a rebuild"] = list(made.during(job, few))
        beside = time.perf_counter() - began
        made.shelf.world.controller.rebuild_jobs.swap("shelf", job.id)
        made.threads.submit(lambda: None).result()
        made.shelf.world.ticks()
        made.shelf.require_right()
        began = time.perf_counter()
        job = made.build()
        made.threads.submit(lambda: None).result()
        alone = time.perf_counter() - began
        made.close()
    median = {name: statistics.median(times) for name, times in figures.items() if times}
    print(f"{options.keys:,} keys, {options.files} files of {options.records:,} records")
    for name, seconds in median.items():
        print(f"{name:32} {1000 * seconds:8.0f} ms (median of {len(figures[name])})")
    print(f"{'rebuild':32} {1000 * alone:8.0f} ms; with updates meanwhile {1000 * beside:.0f} ms")
    small, large, one, all_, *during = median.values()
    print(f"replace of 1 %: {one / small:.1f} x of adding as many records as differ")
    print(f"replace of all: {all_ / large:.1f} x of adding twice its records")
    print(f"rebuild: {alone / all_:.1f} x of a replace of all")
    mean = {name: statistics.fmean(times) for name, times in figures.items() if times}
    small_mean, _, _, _, *during_mean = mean.values()
    for slow, slow_mean in zip(during, during_mean, strict=True):
        print(
            f"updates during a rebuild at {options.share:.0%}: {slow / small:.2f} x in the median, "
            f"{slow_mean / small_mean:.2f} x on average"
        )


if __name__ == "__main__":
    main()
