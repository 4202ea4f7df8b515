"""Measures a backlog: files that wait at once, in turn with Polars that reads the same files.

Two stages count the files' source, which puts waiting files into one increment. A round of ours
begins with the first rename and ends when both stages show all files. Meanwhile two producers
rename files into another source, one of the same dataflow and one of another dataflow: one file
after the other, and each waits for its result.

In a round of Polars the same files are read by `scan_ndjson` and appended to a Delta table in one
commit, with nothing beside it. Polars neither counts, nor remembers what it has read, nor syncs.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from controller.client.service_client import ServiceClient
from tests.bench.end_to_end.figures import Backlog
from tests.bench.end_to_end.ingestion import append_by_polars, copy_file, lines_held
from tests.bench.end_to_end.measured_service import BACKLOG, BESIDE, MeasuredService
from tests.bench.errors import BenchDisagreesError
from tests.bench.measurements.session_memory import (
    session_cpu_seconds,
    session_memory_bytes,
)

__all__ = ["measure_backlog"]

_POLL_SECONDS = 0.1
_MEMORY_SECONDS = 1.0
_BESIDE_SECONDS = 1.0
"""Pause between two files of the other source."""


def measure_backlog(
    service: MeasuredService,
    folder: Path,
    *,
    files: int,
    lines: int,
    rounds: int,
    beside_lines: int,
    form: str,
    step: Callable[[str], None],
) -> Backlog:
    """Let files wait, and measure until all of them are applied.

    Args:
        service: A running service; it gets another dataflow.
        folder: A working folder.
        files, lines: Number of files, and lines of each.
        rounds: How often.
        beside_lines: Lines of a file of the other source.
        form: Of the stages that count the backlog.
        step: Called with the name of each step.

    Raises:
        BenchDisagreesError: If the peer's table does not have all lines in the end.
    """
    counted = service.of(replace(BACKLOG, form=form), service.client, seed=1)
    counted.register(BESIDE)
    table, copies = folder / "polars-backlog", folder / "backlog-copies"
    copies.mkdir()
    ours, peer = list[float](), list[float]()
    beside, elsewhere = list[float](), list[float]()
    first, peak, cpu = list[int](), list[int](), list[float]()
    with ServiceClient(service.settings) as client:
        other = service.of(BESIDE, client, seed=2)
        for number in range(rounds):
            step(f"backlog, round {number + 1}")
            batch = [counted.write_file(lines, durable=False) for _ in range(files)]
            same = [copy_file(path, copies) for path in batch]
            os.sync()
            if number % 2:
                peer.append(append_by_polars(same, table))
            first.append(session_memory_bytes(service.process_id))
            near = partial(_files_beside, other, beside_lines, beside)
            far = partial(_files_beside, service, beside_lines, elsewhere)
            before = session_cpu_seconds(service.process_id)
            with _peak_memory(service.process_id, peak), _beside(near), _beside(far):
                ours.append(_apply(counted, batch))
            cpu.append(session_cpu_seconds(service.process_id) - before)
            if not number % 2:
                peer.append(append_by_polars(same, table))
            for path in same:
                path.unlink()
    held = lines_held(table)
    if held != rounds * files * lines:
        why = f"Polars holds {held:,} lines, {rounds * files * lines:,} were dropped"
        raise BenchDisagreesError([why])
    return Backlog(
        files,
        lines,
        tuple(ours),
        tuple(peer),
        tuple(first),
        tuple(peak),
        tuple(cpu),
        tuple(beside),
        tuple(elsewhere),
    )


def _apply(counted: MeasuredService, batch: Sequence[Path]) -> float:
    """Return the seconds from the first rename until all files are applied."""
    begun = time.perf_counter()
    for path in batch:
        counted.rename_in(path)
    counted.wait_until_readable(_POLL_SECONDS)
    return time.perf_counter() - begun


@contextmanager
def _peak_memory(process_id: int, peaks: list[int]) -> Iterator[None]:
    """Add the most memory that the service has meanwhile."""
    most = [session_memory_bytes(process_id)]

    def watch(ended: threading.Event, _given_up: threading.Event) -> None:
        while not ended.wait(_MEMORY_SECONDS):
            most[0] = max(most[0], session_memory_bytes(process_id))

    with _beside(watch):
        yield
    peaks.append(most[0])


def _files_beside(
    other: MeasuredService,
    lines: int,
    seconds: list[float],
    ended: threading.Event,
    given_up: threading.Event,
) -> None:
    """Rename files into the other source until the end; add how long each took."""
    while not ended.is_set():
        path, begun = other.write_file(lines), time.perf_counter()
        other.rename_in(path)
        other.wait_until_readable(_POLL_SECONDS, given_up.is_set)
        if given_up.is_set():
            return
        seconds.append(time.perf_counter() - begun)
        ended.wait(_BESIDE_SECONDS)


@contextmanager
def _beside(work: Callable[[threading.Event, threading.Event], None]) -> Iterator[None]:
    """Work in a thread until the block is left; raise what failed there.

    The work gets two events: one when the block was left, and one when it was left by an error or
    a signal, so that nobody needs the rest.
    """
    ended, given_up, failures = threading.Event(), threading.Event(), list[BaseException]()

    def run() -> None:
        try:
            work(ended, given_up)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    except BaseException:
        given_up.set()
        raise
    finally:
        ended.set()
        thread.join()
    for failure in failures:
        raise failure
