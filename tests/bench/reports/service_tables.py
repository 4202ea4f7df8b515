"""Prints what the benchmark of the service found; see `tests.bench.end_to_end`."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from tests.bench.end_to_end.figures import (
    PARTS,
    Backlog,
    Delay,
    Ingestion,
    Reads,
    ServiceFigures,
    percentile,
)

__all__ = ["print_service"]


def print_service(console: Console, figures: ServiceFigures) -> None:
    """Print a table for each thing that was measured."""
    if figures.delays:
        _print_delays(console, figures)
    if figures.ingestion is not None:
        _print_ingestion(console, figures.ingestion)
    if figures.reads is not None:
        _print_reads(console, figures.reads)
    if figures.backlog is not None:
        _print_backlog(console, figures.backlog)


def _print_delays(console: Console, figures: ServiceFigures) -> None:
    console.print(
        f"From the rename to the readable result: {figures.lines:,} lines on "
        f"{figures.state_keys:,} keys, engine {figures.engine}, {len(figures.delays)} files, "
        "milliseconds",
        style="bold",
    )
    table = _table("part", "p50", "p99", "max")
    for part in PARTS:
        table.add_row(part, *_in_ms([delay.parts[part] for delay in figures.delays]))
        for phase in _phases(figures.delays) if part == "run" else ():
            spans = [delay.phases.get(phase, 0.0) for delay in figures.delays]
            table.add_row(f"  {phase}", *_in_ms(spans))
    table.add_row("all", *_in_ms([delay.seconds for delay in figures.delays]))
    console.print(table)


def _phases(delays: Sequence[Delay]) -> list[str]:
    """Return the phases of the runs, in their order."""
    return list(dict.fromkeys(phase for delay in delays for phase in delay.phases))


def _print_ingestion(console: Console, found: Ingestion) -> None:
    console.print("Sustained ingestion, lines a second, in turn", style="bold")
    table = _table("reader", "median", "least", "most", "rounds")
    for name, rounds in (("cbp", found.ours), ("Polars, append to Delta", found.peer)):
        cells = (statistics.median(rounds), min(rounds), max(rounds), len(rounds))
        table.add_row(name, *(f"{cell:,.0f}" for cell in cells))
    console.print(table)
    console.print(f"cbp takes in {found.ratio:.2f} lines while Polars takes in one")


def _print_reads(console: Console, reads: Reads) -> None:
    console.print(
        f"REST reads by {reads.clients} clients while {reads.runs} files were applied: "
        f"{reads.per_second:,.0f} a second, {sum(reads.errors.values())} errors",
        style="bold",
    )
    table = _table("request", "count", "p50 ms", "p99 ms", "max ms")
    for kind, taken in reads.latencies.items():
        if taken:
            table.add_row(kind, f"{len(taken):,}", *_in_ms(taken))
    console.print(table)
    cpu = ", ".join(f"{kind} {ms:.2f}" for kind, ms in reads.cpu_ms.items())
    console.print(f"Processor time of each answer, milliseconds: {cpu}")
    console.print(f"The clients read {reads.client_limit:,.0f} constant answers a second")
    for status, count in sorted(reads.errors.items()):
        console.print(f"{count} answers were {status}")


def _print_backlog(console: Console, backlog: Backlog) -> None:
    console.print(
        f"{backlog.files:,} waiting files of {backlog.lines:,} lines, counted by two stages",
        style="bold",
    )
    table = _table("", "median", "least", "most")
    for name, seconds in (("cbp", backlog.seconds), ("Polars", backlog.peer_seconds)):
        files = [backlog.files / one for one in seconds]
        lines = [backlog.lines * one for one in files]
        for unit, rates in (("files", files), ("lines", lines)):
            cells = (statistics.median(rates), min(rates), max(rates))
            table.add_row(f"{name}, {unit} a second", *(f"{cell:,.0f}" for cell in cells))
    cpu = backlog.cpu_seconds
    cells = (statistics.median(cpu), min(cpu), max(cpu))
    table.add_row("cbp, seconds of processors", *(f"{cell:,.1f}" for cell in cells))
    for where, seconds in (("", backlog.beside), ("dataflow's ", backlog.elsewhere)):
        if seconds:
            cells = (percentile(seconds, 0.5), min(seconds), max(seconds))
            table.add_row(f"seconds of another {where}source", *(f"{one:,.2f}" for one in cells))
    console.print(table)
    first, peak = max(backlog.first_bytes) >> 20, max(backlog.peak_bytes) >> 20
    console.print(f"The service had {first:,} MB before, and {peak:,} MB at most")
    console.print(f"cbp applies {backlog.ratio:.3f} lines while Polars takes in one")


def _in_ms(seconds: Sequence[float]) -> tuple[str, str, str]:
    """Return p50, p99 and the maximum, in milliseconds."""
    chosen = (percentile(seconds, 0.5), percentile(seconds, 0.99), max(seconds))
    p50, p99, most = (f"{1000 * one:,.1f}" for one in chosen)
    return p50, p99, most


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(first)
    for column in others:
        table.add_column(column, justify="right")
    return table
