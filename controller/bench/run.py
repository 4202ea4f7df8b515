"""A benchmark from start to end: check, start Spark, measure, print, write.

Guaranteed: what was measured is printed and written even when candidates disagree, and
the temporary folder is removed however it ends, SIGTERM included
(tests/controller/bench/test_run.py).
"""

from __future__ import annotations

import json
import shutil
import signal
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from rich.console import Console

from cbp.errors import OperatingError
from controller.bench.contest import Contest, steps_of
from controller.bench.errors import BenchDisagreesError
from controller.bench.options import NO_SPARK, BenchOptions
from controller.bench.picture import draw, require_matplotlib
from controller.bench.report import print_growth, print_results, print_soak, print_steps, progress
from controller.bench.result import Measured, Sample, document
from controller.bench.soak import soak

__all__ = ["run_bench"]

PREFIX = "cbp-bench-"
_SLOTS_WITHOUT_SPARK = 2
_WIDTH = 160
_SIGNAL_STATUS = 128


def run_bench(
    options: BenchOptions, *, console: Console | None = None, spark: Any = None
) -> list[Measured]:
    """Run a benchmark; return its results.

    Args:
        options: What to measure.
        console: Where it is printed.
        spark: A session to use instead of starting one; it stays.

    Raises:
        BenchRefusedError: A choice cannot be run; nothing was started.
        BenchDisagreesError: Candidates hold different results.
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


def _require_packages(options: BenchOptions) -> None:
    """Refuse a candidate that lacks a package before others are loaded."""
    if any(name.startswith("streaming-") for name in options.peers):
        from controller.bench.candidates.streaming import require_packages

        for name in options.peers:
            require_packages(name)


def _measured(options: BenchOptions, folder: Path, spark: Any, console: Console) -> list[Measured]:
    started = None
    try:
        if spark is None and options.master != NO_SPARK:
            spark = started = _start_spark(options, folder)
        slots = _SLOTS_WITHOUT_SPARK if spark is None else spark.sparkContext.defaultParallelism
        if options.soak:
            _soak(options, folder, spark, slots, console)
            return []
        return _contests(options, folder, spark, slots, console)
    finally:
        if started is not None:
            started.stop()


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM unwind like Ctrl-C does, as long as this lasts."""
    before = signal.signal(signal.SIGTERM, _exit)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _exit(number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(_SIGNAL_STATUS + number)


def _contests(
    options: BenchOptions, folder: Path, spark: Any, slots: int, console: Console
) -> list[Measured]:
    results: list[Measured] = []
    ours: dict[tuple[int, int], Sequence[Sample]] = {}
    wrong: list[str] = []
    with progress(console, steps_of(options)) as step:
        for state_keys in options.state_keys:
            own = folder / f"keys-{state_keys}"
            contest = Contest(options, state_keys, own, spark, slots, step)
            wrong += contest.run()
            results += contest.results
            held = contest.results[0].state_keys
            ours |= {(held, size): found for size, found in contest.ours.items()}
            if options.root is None:
                shutil.rmtree(own, ignore_errors=True)
    print_results(console, results)
    print_steps(console, ours)
    print_growth(console, results)
    _write(options, document(results))
    if options.picture is not None:
        draw(results, options.picture)
    if wrong:
        raise BenchDisagreesError(wrong)
    console.print("All candidates hold the same.")
    return results


def _soak(options: BenchOptions, folder: Path, spark: Any, slots: int, console: Console) -> None:
    with progress(console, options.epochs + 2) as step:
        found = soak(options, folder / "soak", spark, slots, step)
    print_soak(console, found)
    _write(options, {**document([]), "soak": found.to_json()})


def _write(options: BenchOptions, result: dict[str, Any]) -> None:
    if options.json_file is not None:
        options.json_file.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def _start_spark(options: BenchOptions, folder: Path) -> Any:
    from cbp.engine.spark import SparkSettings, start_session

    conf = {
        "spark.local.dir": str(folder / "spark"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        # transformWithState starts a further Python, which on a busy machine takes its time.
        "spark.python.authenticate.socketTimeout": "120s",
        # Else the code of one candidate drives out that of another between two rounds.
        "spark.sql.codegen.cache.maxEntries": "2000",
    }
    settings = SparkSettings(
        options.master, options.driver_memory, "cbp-bench", room=False, conf=conf
    )
    return start_session(settings)


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
