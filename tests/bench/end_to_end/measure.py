"""Measures the service from start to end: idle delays, ingestion, reads, a backlog."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.bench.end_to_end.backlog import measure_backlog
from tests.bench.end_to_end.delays import measure_delays
from tests.bench.end_to_end.figures import ServiceFigures
from tests.bench.end_to_end.ingestion import measure_ingestion
from tests.bench.end_to_end.measured_service import measured_service
from tests.bench.end_to_end.options import ServiceBenchOptions
from tests.bench.end_to_end.reads import measure_reads

__all__ = ["measure_service", "steps_of_service"]


def measure_service(
    options: ServiceBenchOptions,
    folder: Path,
    *,
    step: Callable[[str], None],
    on_figures: Callable[[ServiceFigures], None],
    on_start: Callable[[int], object],
) -> ServiceFigures:
    """Start a service, and measure what the options ask for.

    Args:
        options: What to measure.
        folder: A working folder, which is empty.
        step: Called with the name of each step.
        on_figures: Called with all figures so far, behind each part.
        on_start: Called with the id of the service's process, which leads a session.

    Raises:
        ServiceFailedError: If the service does not come up, or ends.
        BenchFailedError: If it does not apply a file, or the readers fail.
        BenchDisagreesError: If lines are lost, or counted twice.
    """
    figures = ServiceFigures(options.state_keys, options.lines, options.engine)
    step(f"the service starts, and gets {options.state_keys:,} keys")
    with measured_service(options, folder, on_start) as service:
        if options.files:
            figures.delays = measure_delays(
                service,
                files=options.files,
                lines=options.lines,
                warmup=options.warmup,
                step=step,
            )
            on_figures(figures)
        if options.read_seconds:
            figures.reads = measure_reads(
                service,
                seconds=options.read_seconds,
                clients=options.clients,
                rate=options.read_rate,
                lines=options.lines,
                step=step,
            )
            on_figures(figures)
        if options.ingest_seconds:
            figures.ingestion = measure_ingestion(
                service,
                folder,
                seconds=options.ingest_seconds,
                files=options.batch_files,
                lines=options.batch_lines,
                step=step,
            )
            on_figures(figures)
        if options.backlog:
            figures.backlog = measure_backlog(
                service,
                folder,
                files=options.backlog,
                lines=options.backlog_lines,
                rounds=options.backlog_rounds,
                beside_lines=options.lines,
                form=options.form,
                step=step,
            )
            on_figures(figures)
    return figures


def steps_of_service(options: ServiceBenchOptions) -> int:
    """Return about how many steps the bar has; rounds of ingestion are not known before."""
    rounds = 1 + options.backlog_rounds if options.backlog else 1
    return 1 + options.warmup + options.files + bool(options.read_seconds) + rounds
