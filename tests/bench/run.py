"""Runs a benchmark from start to end: check, start Spark, measure, print, write.

Guaranteed: results are written after every round, so they exist however the call ends; they are
printed even if candidates disagree. A document is `complete` if all candidates were compared at
the end. The temporary folder is removed however the call ends, SIGTERM included
(tests/bench/test_run.py); of the service, its processes end, too, also after SIGKILL
(tests/bench/test_clean_up.py).
"""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from rich.console import Console

from cbp.errors import OperatingError
from tests.bench.clean_up import CleanUp
from tests.bench.contest.contest import Contest, steps_of
from tests.bench.contest.entrant import LocalEntrant, MakeEntrant
from tests.bench.contest.own_process import OwnProcess
from tests.bench.end_to_end.figures import ServiceFigures
from tests.bench.end_to_end.measure import measure_service, steps_of_service
from tests.bench.end_to_end.options import ServiceBenchOptions
from tests.bench.errors import BenchDisagreesError
from tests.bench.measurements.result import Measured, Sample, document
from tests.bench.options import NO_SPARK, BenchOptions
from tests.bench.reports.console import (
    print_growth,
    print_results,
    print_soak,
    print_steps,
    progress,
)
from tests.bench.reports.picture import draw, require_matplotlib
from tests.bench.reports.service_tables import print_service
from tests.bench.soak.engine_soak import soak
from tests.bench.spark_session import slots_of, start_spark

__all__ = ["run_bench", "run_service_bench"]

PREFIX = "cbp-bench-"
_WIDTH = 260
_SIGNAL_STATUS = 128


def run_bench(
    options: BenchOptions, *, console: Console | None = None, spark: Any = None
) -> list[Measured]:
    """Run a benchmark; return its results.

    Args:
        options: What to measure.
        console: Where the results are printed.
        spark: A session in this process that all candidates share; it is not stopped.

    Raises:
        BenchRefusedError: An option cannot be run; nothing was started.
        BenchDisagreesError: A candidate's answer is wrong; earlier results are written.
        BenchFailedError: A candidate failed.
    """
    options.check()
    if options.picture is not None:
        require_matplotlib()
    _require_packages(options)
    console = console or _console()
    with _terminable():
        folder = _folder(options.root)
        try:
            return _measured(options, folder, spark, console)
        finally:
            if options.root is None:
                shutil.rmtree(folder, ignore_errors=True)


def run_service_bench(
    options: ServiceBenchOptions, *, console: Console | None = None
) -> ServiceFigures:
    """Run the benchmark of the service; return its figures.

    Raises:
        BenchRefusedError: An option cannot be run; nothing was started.
        CbpError: See `tests.bench.end_to_end.measure.measure_service`.
    """
    options.check()
    console = console or _console()

    def write(figures: ServiceFigures, *, complete: bool = False) -> None:
        found = {**document([], complete=complete), "service": figures.to_json()}
        _write(options.json_file, found)

    folder = _folder(options.root)
    # Not `_terminable`: what reads in C, such as Polars, would hold a signal up until its end.
    with (
        CleanUp(folder if options.root is None else None) as behind,
        progress(console, steps_of_service(options)) as step,
    ):
        figures = measure_service(
            options, folder, step=step, on_figures=write, on_start=behind.add_session
        )
    write(figures, complete=True)
    print_service(console, figures)
    return figures


def _require_packages(options: BenchOptions) -> None:
    """Refuse a candidate that lacks a package, before other candidates are loaded."""
    if any(name.startswith("streaming-") for name in options.peers):
        from tests.bench.candidates.peers.streaming import require_packages

        for name in options.peers:
            require_packages(name)


def _measured(options: BenchOptions, folder: Path, spark: Any, console: Console) -> list[Measured]:
    if spark is None and options.isolated and not options.soak:
        make: MakeEntrant = partial(OwnProcess, options=options)
        return _contests(options, folder, make, console)
    started = None
    try:
        if spark is None and options.master != NO_SPARK:
            spark = started = start_spark(options, folder)
        slots = slots_of(options, spark)
        if options.soak:
            _soak(options, folder, spark, slots, console)
            return []
        make = partial(LocalEntrant, options=options, spark=spark, slots=slots)
        return _contests(options, folder, make, console)
    finally:
        if started is not None:
            started.stop()


@contextmanager
def _terminable() -> Iterator[None]:
    """Make SIGTERM unwind like Ctrl-C inside this context."""
    before = signal.signal(signal.SIGTERM, _exit)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _exit(number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(_SIGNAL_STATUS + number)


def _contests(
    options: BenchOptions, folder: Path, make: MakeEntrant, console: Console
) -> list[Measured]:
    results: list[Measured] = []
    ours: dict[tuple[int, int], Sequence[Sample]] = {}
    wrong: list[str] = []
    until = time.monotonic() + 60 * options.minutes if options.minutes else math.inf
    with progress(console, steps_of(options)) as step:
        for state_keys in options.state_keys:
            own = folder / f"keys-{state_keys}"
            contest = Contest(options, state_keys, own, make, step, until=until)
            contest.on_round = partial(_keep, options, tuple(results), contest)
            wrong += contest.run()
            results += contest.results
            held = contest.results[0].state_keys if contest.results else state_keys
            ours |= {(held, size): measured for size, measured in contest.ours.items()}
            if options.root is None:
                shutil.rmtree(own, ignore_errors=True)
    print_results(console, results)
    print_steps(console, ours)
    print_growth(console, results)
    _write(options.json_file, document(results, complete=not wrong))
    if options.picture is not None and results:
        draw(results, options.picture)
    if wrong:
        raise BenchDisagreesError(wrong)
    console.print("All candidates hold the same, and emitted the same.")
    return results


def _keep(options: BenchOptions, before: Sequence[Measured], contest: Contest) -> None:
    _write(options.json_file, document([*before, *contest.results], complete=False))


def _soak(options: BenchOptions, folder: Path, spark: Any, slots: int, console: Console) -> None:
    with progress(console, options.epochs + 2) as step:
        result = soak(options, folder / "soak", spark, slots, step)
    print_soak(console, result)
    _write(options.json_file, {**document([], complete=True), "soak": result.to_json()})


def _write(target: Path | None, result: dict[str, Any]) -> None:
    if target is not None:
        after = target.with_name(f"{target.name}.next")
        after.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
        os.replace(after, target)  # atomic: an interruption leaves a whole file


def _folder(root: Path | None) -> Path:
    try:
        if root is not None:
            root.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=PREFIX, dir=root)).resolve()
    except OSError as exc:
        where = str(root or tempfile.gettempdir())
        message = f"no folder can be made in {where}: {exc.strerror}"
        raise OperatingError(message, path=where) from exc


def _console() -> Console:
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_WIDTH)
