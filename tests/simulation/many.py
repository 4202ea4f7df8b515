"""Many seeds: in this process or in several, with a progress bar and a summary."""

from __future__ import annotations

import argparse
import itertools
import logging
import multiprocessing
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.simulation.bench import Bench
from tests.simulation.run import Outcome, simulate

__all__ = ["bench_root", "main", "play_all"]

FIGURES = (
    "epochs",
    "files",
    "deaths",
    "errors",
    "takeovers",
    "corrections",
    "closes",
    "rollbacks",
    "versions",
    "retentions",
    "decisions",
    "priorities",
    "lookups",
    "bags",
    "passes",
    "rewrites",
    "versions_followed",
)
SHOWN_MAX = 5
TOLD_EVERY = 500
"""Seeds between two lines of a log file, which has no bar."""

_bench: Bench | None = None


def bench_root() -> Path:
    """Return a folder of this process for simulations.

    It is where `TMPDIR` says, which `deploy/test.sh` removes; else in memory, if that is there.
    """
    if "TMPDIR" in os.environ:
        return Path(tempfile.mkdtemp(prefix="cbp-simulation-"))
    memory = Path("/dev/shm")
    parent = memory if memory.is_dir() and os.access(memory, os.W_OK) else None
    return Path(tempfile.mkdtemp(prefix="cbp-simulation-", dir=parent))


def play_all(seeds: Iterable[int], *, power: bool, jobs: int) -> Iterator[Outcome]:
    """Play seeds; outcomes come in any order where there are several jobs."""
    if jobs == 1:
        bench = Bench(bench_root())
        try:
            yield from (_outcome(bench, seed, power=power) for seed in seeds)
        finally:
            bench.close()
        return
    work = ((seed, power) for seed in seeds)
    # The processes are ended, not asked: what they leave is removed here.
    place = bench_root()
    try:
        context = multiprocessing.get_context("spawn")
        with context.Pool(jobs, initializer=_begin, initargs=(str(place),)) as pool:
            yield from pool.imap_unordered(_play, work, chunksize=8)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _begin(place: str) -> None:
    global _bench
    logging.disable()
    _bench = Bench(Path(place) / str(os.getpid()))


def _play(work: tuple[int, bool]) -> Outcome:
    assert _bench is not None, "made when the process began"
    return _outcome(_bench, work[0], power=work[1])


def _outcome(bench: Bench, seed: int, *, power: bool) -> Outcome:
    outcome = simulate(bench, seed, power=power)
    if not outcome.failure:
        outcome.trace.clear()  # it is only sent for nothing
    return outcome


def main(arguments: list[str] | None = None) -> int:
    """Play the seeds that the arguments name; return 1 if a promise broke."""
    asked = _parser().parse_args(arguments)
    logging.disable()  # what the product says about injected errors is in the trace
    console = Console()
    columns = (
        TextColumn("seeds"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[failed]} failed"),
    )
    seeds = itertools.islice(itertools.count(asked.first), asked.seeds)
    started, failed, figures = time.monotonic(), [], Counter[str]()
    if asked.trace:
        bench = Bench(bench_root())
        for seed in seeds:
            outcome = simulate(bench, seed, power=asked.power)
            console.print(outcome.report(), markup=False, highlight=False, soft_wrap=True)
            failed += [outcome] if outcome.failure else []
        bench.close()
        return bool(failed)
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("", total=asked.seeds, failed=0)
        for done, outcome in enumerate(play_all(seeds, power=asked.power, jobs=asked.jobs), 1):
            figures += outcome.figures
            if not console.is_terminal and done % TOLD_EVERY == 0:
                console.print(f"{done} of {asked.seeds} seeds, {len(failed)} failed")
            if outcome.failure:
                failed.append(outcome)
                if len(failed) <= SHOWN_MAX:
                    progress.print(outcome.report(), markup=False, highlight=False, soft_wrap=True)
            progress.update(bar, advance=1, failed=len(failed))
    seconds = time.monotonic() - started
    told = ", ".join(f"{figures[name]} {name}" for name in FIGURES)
    console.print(f"{asked.seeds} seeds in {seconds:.0f} s: {told}; {len(failed)} failed")
    if failed:
        console.print("failed:", *sorted(outcome.seed for outcome in failed))
    return bool(failed)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seeds", type=int, default=1_000, help="how many")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first one")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--power", action="store_true", help="machines lose their power")
    parser.add_argument("--trace", action="store_true", help="print every step of every seed")
    return parser
