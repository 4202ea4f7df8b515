"""Prints a benchmark's progress, then its tables; see `tests.bench.measurements.result`."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.bench.candidates.ours.engine_driver import STEPS
from tests.bench.measurements.result import Measured, Sample
from tests.bench.options import OURS
from tests.bench.soak.engine_soak import Soak

__all__ = ["growth", "print_growth", "print_results", "print_soak", "print_steps", "progress"]


@contextmanager
def progress(console: Console, total: int) -> Iterator[Callable[[str], None]]:
    """Show a bar, or without a terminal a line per step; the yielded function names the step.

    Lines go to stderr, so that a file with the tables holds nothing else.
    """
    if not console.is_terminal:
        yield partial(_line, time.monotonic())
        return
    bar = Progress(
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
        console=console,
        transient=True,
    )
    with bar:
        task = bar.add_task("", total=total, completed=-1)

        def step(what: str) -> None:
            bar.update(task, advance=1, description=what)

        yield step


def _line(begun: float, what: str) -> None:
    sys.stderr.write(f"{time.monotonic() - begun:8.1f} s  {what}\n")
    sys.stderr.flush()


def print_results(console: Console, results: Sequence[Measured]) -> None:
    """Print a line per candidate, and how much slower than `cbp` it was."""
    table = _table("workload", "state", "records", "candidate", "form")
    columns = ("median s", "min", "max", "rounds", "sum s", "cpu s", "cold s", "x ours", "x floor")
    moved = ("read", "shuffled", "broadcast", "written", "index", "epochs", "updated")
    for column in (*columns, *moved, "error", "stale"):
        table.add_column(column, justify="right")
    ours: dict[Any, Measured] = {}
    for one in results:
        if one.candidate == OURS:
            ours.setdefault(_case(one), one)
    for one in results:
        base = ours.get(_case(one)) or _of_other_state(one, results)
        table.add_row(
            one.workload,
            f"{one.state_keys:,}",
            f"{one.increment_records:,}",
            one.candidate,
            one.form,
            f"{one.seconds_median:.3f}",
            f"{min(one.seconds_all):.3f}",
            f"{max(one.seconds_all):.3f}",
            f"{len(one.seconds_all):,}",
            f"{sum(one.seconds_all):.3f}",
            _seconds(one.cpu_seconds),
            _seconds(one.cold_seconds),
            _ratio(one.seconds_median, base.seconds_median if base else None),
            _ratio(one.seconds_median, one.floor_seconds),
            *(_bytes(n) for n in (one.bytes_read, one.bytes_shuffled, one.bytes_broadcast)),
            _bytes(one.bytes_written),
            _bytes(one.index_bytes or None),
            "-" if one.epochs is None else f"{one.epochs:,}",
            "-" if one.share_updated is None else f"{one.share_updated:.2%}",
            *("-" if e is None else f"{e:.2g}" for e in (one.error, one.error_stale)),
        )
    console.print(table)


def print_growth(console: Console, results: Sequence[Measured]) -> None:
    """Print how much slower a candidate is on its largest state than on its smallest."""
    for one, other in growth(results):
        console.print(
            f"{other.candidate}, {other.increment_records:,} records: on {other.state_keys:,} keys "
            f"{other.seconds_median / one.seconds_median:.2f} x the time on {one.state_keys:,}"
        )


def growth(results: Sequence[Measured]) -> list[tuple[Measured, Measured]]:
    """Return the results of equal increments on the smallest and the largest state; pure."""
    cases: dict[tuple[str, str, str, int], list[Measured]] = {}
    for one in results:
        case = one.workload, one.candidate, one.form, one.increment_records
        cases.setdefault(case, []).append(one)
    pairs = []
    for measured in cases.values():
        ordered = sorted(measured, key=lambda one: one.state_keys)
        if ordered[0].state_keys < ordered[-1].state_keys:
            pairs.append((ordered[0], ordered[-1]))
    return pairs


def print_steps(console: Console, ours: Mapping[tuple[int, int], Sequence[Sample]]) -> None:
    """Print the time of each step of `cbp`, in milliseconds; keys are (state, increment)."""
    table = _table("state", "records")
    for step in (*STEPS, "other", "all"):
        table.add_column("of which task" if step == "task" else step, justify="right")
    for (state_keys, size), samples in ours.items():
        steps = {step: [s.steps.get(step, 0.0) for s in samples] for step in STEPS}
        every = [s.seconds for s in samples]
        named = [sum(s.steps.get(step, 0.0) for step in STEPS if step != "task") for s in samples]
        other = [all_ - some for all_, some in zip(every, named, strict=True)]
        cells = [statistics.median(v) * 1000 for v in (*steps.values(), other, every)]
        table.add_row(f"{state_keys:,}", f"{size:,}", *(f"{cell:.1f}" for cell in cells))
    console.print()
    console.print("Where the time of cbp goes, medians in milliseconds", style="bold")
    console.print(table)


def print_soak(console: Console, soak: Soak) -> None:
    """Print the results of a soak, a line per figure."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    figures = soak.to_json()
    ages = figures.pop("ages")
    kinds = figures.pop("bytes_by_kind")
    figures |= {f"bytes, {kind}": value for kind, value in kinds.items()}
    for name, value in figures.items():
        shown = f"{value:,.3f}" if isinstance(value, float) else f"{value:,}"
        table.add_row(name.replace("_", " "), shown)
    console.print(table)
    console.print("What lies in the folder, inputs left out", style="bold")
    grown = _table(*(name.replace("_", " ") for name in ages[0]))
    for age in ages:
        grown.add_row(*(f"{value:,}" for value in age.values()))
    console.print(grown)


def _table(*texts: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in texts:
        table.add_column(column, justify="right" if column in ("state", "records") else "left")
    return table


def _case(one: Measured) -> tuple[Any, ...]:
    return one.workload, one.state_keys, one.increment_records


def _of_other_state(one: Measured, results: Sequence[Measured]) -> Measured | None:
    """Return the result of `cbp` for a candidate that could not hold the whole state."""
    same = [r for r in results if r.increment_records == one.increment_records]
    before = [r for r in same[: same.index(one)] if r.candidate == OURS]
    return before[-1] if before else None


def _ratio(seconds: float, base: float | None) -> str:
    return f"{seconds / base:.1f}" if base else "-"


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.3f}"


def _bytes(size: int | None) -> str:
    return "-" if size is None else f"{size / 1e6:,.2f} MB"
