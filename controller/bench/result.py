"""Results as values, and as the JSON document that `--json` writes.

    {"machine": ..., "versions": ..., "results": [{"workload", "candidate", "form",
     "state_keys", "increment_records", "seconds_median", "seconds_all", "floor_seconds",
     "bytes_read", "bytes_shuffled", "bytes_written", "bytes_broadcast", "epochs",
     "state_records", "state_updated"}]}

The last four fields of a result are extras, beside those that were asked for; readers may
leave them out. `workload` is a label: the workload, and behind slashes what was not chosen
by default (`url-count/zipf/outer`). Of a soak `results` is empty, and a fourth part `soak`
stands beside it (`controller.bench.soak.Soak`).

Bytes are medians per increment; null where nobody knows. `floor_seconds` is the median of
empty Spark jobs of the same rounds, with as many Python tasks as our runs had; null
without Spark. `bytes_broadcast` is what was sent once to every task. `state_updated` are
the state records written per epoch of the workload's last phase (or of all epochs, where
it has none), in the mean; `state_records` those before the first increment. `state_keys` are
those that were counted, fewer than asked for where a candidate or a workload has fewer.
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
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured run of one candidate.

    Attributes:
        bytes_read, bytes_shuffled, bytes_written: None where nobody knows.
        steps: Step to seconds, where the candidate knows them.
        bytes_broadcast, epochs, updated: As in `Figures`.
    """

    seconds: float
    bytes_read: int | None
    bytes_shuffled: int | None
    bytes_written: int | None
    steps: Mapping[str, float]
    bytes_broadcast: int | None = None
    epochs: int | None = None
    updated: float | None = None


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

    @property
    def share_updated(self) -> float | None:
        """Share of the state that an epoch of the last phase writes."""
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
        )


def median(values: Sequence[float | None]) -> float | None:
    """Return the median of what is known; None when nothing is."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def document(results: Sequence[Measured]) -> dict[str, Any]:
    """Return the JSON document."""
    return {
        "machine": machine(),
        "versions": versions(),
        "results": [asdict(one) for one in results],
    }


def machine() -> dict[str, Any]:
    """Say what it was measured on; no names, no addresses."""
    return {
        "system": platform.system(),
        "release": platform.release(),
        "architecture": platform.machine(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0,
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }


def versions() -> dict[str, str]:
    """Return the versions of what takes part."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
