"""Measures sustained ingestion, in turn with Polars that reads the same files and writes Delta.

In a round of ours a batch of files is renamed in, and the round ends when all of them are applied:
claimed, checked line by line, counted into the state, and published. In a round of Polars the same
files are read by `scan_ndjson` and appended to a Delta table in one commit. Polars neither counts,
nor remembers which files it has read, nor syncs what it wrote.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import polars

from tests.bench.end_to_end.figures import Ingestion
from tests.bench.end_to_end.measured_service import MeasuredService
from tests.bench.errors import BenchDisagreesError

__all__ = ["append_by_polars", "copy_file", "lines_held", "measure_ingestion"]


def measure_ingestion(
    service: MeasuredService,
    folder: Path,
    *,
    seconds: float,
    files: int,
    lines: int,
    step: Callable[[str], None],
    monotonic: Callable[[], float] = time.monotonic,
) -> Ingestion:
    """Take in batches in turn, until the time is over; at least one round of each.

    Raises:
        BenchDisagreesError: If the peer's table does not have all lines in the end.
    """
    table = folder / "polars"
    ours, peer, copies = list[float](), list[float](), folder / "copies"
    copies.mkdir()
    until = monotonic() + seconds
    while not ours or monotonic() < until:
        step(f"ingestion, round {len(ours) + 1}")
        batch = [service.write_file(lines) for _ in range(files)]
        same = [copy_file(path, copies) for path in batch]
        if len(ours) % 2:
            peer.append(files * lines / append_by_polars(same, table))
            ours.append(files * lines / _by_service(service, batch))
        else:
            ours.append(files * lines / _by_service(service, batch))
            peer.append(files * lines / append_by_polars(same, table))
    held = lines_held(table)
    if held != len(peer) * files * lines:
        why = f"Polars holds {held:,} lines, {len(peer) * files * lines:,} were dropped"
        raise BenchDisagreesError([why])
    return Ingestion(tuple(ours), tuple(peer))


def lines_held(table: Path) -> int:
    """Return how many lines the peer's table has."""
    held: int = polars.scan_delta(str(table)).select(polars.len()).collect().item()
    return held


def copy_file(path: Path, folder: Path) -> Path:
    """Copy a file into a folder, for the peer; return the copy."""
    copy = folder / path.name
    copy.write_bytes(path.read_bytes())
    return copy


def _by_service(service: MeasuredService, batch: Sequence[Path]) -> float:
    """Return how many seconds the service took to apply a batch."""
    begun = time.perf_counter()
    for path in batch:
        service.rename_in(path)
    service.wait_until_readable()
    return time.perf_counter() - begun


def append_by_polars(batch: Sequence[Path], table: Path) -> float:
    """Return how many seconds Polars took to append a batch to its table."""
    begun = time.perf_counter()
    lines = polars.scan_ndjson(list(batch), schema={"url": polars.String}).collect()
    lines.write_delta(str(table), mode="append")
    return time.perf_counter() - begun
