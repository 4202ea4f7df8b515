"""Results as values, and as the JSON document that `--json` writes.

    {"machine": ..., "versions": ..., "results": [{"workload", "candidate", "form",
     "state_keys", "increment_records", "seconds_median", "seconds_all", "floor_seconds",
     "bytes_read", "bytes_shuffled", "bytes_written", "bytes_broadcast", "epochs",
     "state_records", "state_updated", "cpu_seconds", "cold_seconds", "index_bytes", "error",
     "error_stale", "cpu_seconds_all"}], "complete": ...}

The fields from `bytes_broadcast` on are extras; readers may ignore them. For a soak, `results` is
empty, and a further part `soak` is beside it (`tests.bench.soak.engine_soak.Soak`).

`complete` is false while the benchmark runs, if it was interrupted, and if candidates disagree.
Bytes are medians per increment; null if unknown.

- `workload`: the workload, then after slashes the options that differ from the default
  (`url-count/zipf/outer`).
- `state_keys`: the counted keys; fewer than requested if a candidate or a workload has fewer.
- `floor_seconds`: median of empty Spark jobs (RDD jobs) of the same rounds, with as many Python
  tasks as our runs had; null without Spark.
- `bytes_broadcast`: sent once to every task.
- `state_records`: state records before the first increment.
- `state_updated`: mean number of state records written per epoch of the workload's last phase (or
  of all epochs, if it has none).
- `cpu_seconds`: median of processor seconds per run, of the candidate's process and all its
  children.
- `cold_seconds`: its very first run, of the first size.
- `index_bytes`: size of copies on disk that can be rebuilt.
- `error`: mean distance to the true value of a page after the last run.
- `error_stale`: the same for an answer that ignores all increments measured so far.
- `cpu_seconds_all`: the processor seconds of each run, in order; null if one is unknown.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = ["Measured", "Sample", "document", "machine", "median", "versions"]

_PACKAGES = (
    "cbp", "pyspark", "delta-spark", "pyarrow", "numpy", "pyroaring", "duckdb", "pandas",
    "polars",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured run of one candidate.

    Attributes:
        bytes_read, bytes_shuffled, bytes_written: None if unknown.
        steps: Step to seconds, where the candidate knows them.
        bytes_broadcast, epochs, updated: As in `Figures`.
        cpu_seconds: CPU time of its process and all its children; None if unknown.
    """

    seconds: float
    bytes_read: int | None
    bytes_shuffled: int | None
    bytes_written: int | None
    steps: Mapping[str, float]
    bytes_broadcast: int | None = None
    epochs: int | None = None
    updated: float | None = None
    cpu_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """One line of the results; the fields of the JSON document."""

    workload: str
    candidate: str
    form: str
    state_keys: int
    increment_records: int
    seconds_median: float
    seconds_all: tuple[float, ...]
    floor_seconds: float | None
    bytes_read: int | None
    bytes_shuffled: int | None
    bytes_written: int | None
    bytes_broadcast: int | None
    epochs: int | None
    state_records: int | None
    state_updated: float | None
    cpu_seconds: float | None = None
    cold_seconds: float | None = None
    index_bytes: int | None = None
    error: float | None = None
    error_stale: float | None = None
    cpu_seconds_all: tuple[float, ...] | None = None

    @property
    def share_updated(self) -> float | None:
        """Share of the state that an epoch of the last phase writes; None if unknown."""
        if self.state_updated is None or not self.state_records:
            return None
        return self.state_updated / self.state_records

    @classmethod
    def of(
        cls,
        samples: Sequence[Sample],
        *,
        floor_seconds: float | None,
        workload: str,
        candidate: str,
        form: str,
        state_keys: int,
        increment_records: int,
        state_records: int | None = None,
        cold_seconds: float | None = None,
        index_bytes: int | None = None,
        error: float | None = None,
        error_stale: float | None = None,
    ) -> Measured:
        """Summarize the measured runs of one candidate."""
        return cls(
            workload,
            candidate,
            form,
            state_keys,
            increment_records,
            statistics.median(sample.seconds for sample in samples),
            tuple(sample.seconds for sample in samples),
            floor_seconds,
            _whole(median([sample.bytes_read for sample in samples])),
            _whole(median([sample.bytes_shuffled for sample in samples])),
            _whole(median([sample.bytes_written for sample in samples])),
            _whole(median([sample.bytes_broadcast for sample in samples])),
            _whole(median([sample.epochs for sample in samples])),
            state_records,
            median([sample.updated for sample in samples]),
            median([sample.cpu_seconds for sample in samples]),
            cold_seconds,
            index_bytes,
            error,
            error_stale,
            _known([sample.cpu_seconds for sample in samples]),
        )


def median(values: Sequence[float | None]) -> float | None:
    """Return the median of the known values; None if there are none."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _known(values: Sequence[float | None]) -> tuple[float, ...] | None:
    """Return the values; None if one of them is unknown."""
    known = tuple(value for value in values if value is not None)
    return known if len(known) == len(values) else None


def document(results: Sequence[Measured], *, complete: bool) -> dict[str, Any]:
    """Return the JSON document.

    Args:
        complete: Whether all was measured, or the time limit was reached, and in the end all
            candidates were compared.
    """
    return {
        "machine": machine(),
        "versions": versions(),
        "results": [asdict(one) for one in results],
        "complete": complete,
    }


def machine() -> dict[str, Any]:
    """Return a description of the machine, without names and addresses."""
    return {
        "system": platform.system(),
        "release": platform.release(),
        "architecture": platform.machine(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0,
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }


def versions() -> dict[str, str]:
    """Return the versions of the packages in use."""
    versions_ = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions_[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions_


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
