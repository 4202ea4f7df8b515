"""Soak test: thousands of small runs of a whole service, in this process, without Spark.

Every file takes a user's path: upload, claim, increment, queue, run, record, publication, commit,
housekeeping. Once old data is removed as fast as new data arrives, seconds per run, memory and
open files must be flat; a soak in which they grow fails (`grown`). Each accepted file leaves some
hundred bytes on disk for good, but no file of its own; more than that also fails the soak
(`left_behind`).

Compared are medians of two tenths of the samples: the one in the middle and the last one. By the
middle, everything with a retention is filled. Retention is as short as possible, so that this is
early.
Not shown: the growth of Spark's process (`python -m tests.bench run url-count --soak` shows it).
"""

from __future__ import annotations

import gc
import io
import json
import os
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from controller.app import Service
from controller.settings import Settings
from tests.bench.errors import BenchFailedError, BenchRefusedError
from tests.bench.measurements.held_memory import held_memory_bytes

__all__ = [
    "FIGURES",
    "ServiceSample",
    "ServiceSoak",
    "draw_service_soak",
    "grown",
    "left_behind",
    "service_soak",
]

NAME, SOURCE, STAGE = "soak", "pages", "count"
SAMPLES = 200
RUNS_MIN = 40
_KEYS, _RECORDS = 500, 20
_CLEAN_EVERY = 50

FIGURES = {
    "seconds": "seconds per run",
    "disk_bytes": "bytes on disk",
    "memory_bytes": "resident memory in bytes",
    "handles": "open files",
}
"""Figure to its description."""

LIMITED = ("seconds", "memory_bytes", "handles")
"""Figures that must not grow."""

FILES_PER_RUN_MAX = 0.1
"""A run that leaves one file behind for good makes it 1."""

DISK_RUNS_MIN = 10_000
"""A tenth of these covers the longest interval between two sealings or removals."""


@dataclass(frozen=True, slots=True)
class ServiceSample:
    """The service at one moment.

    Attributes:
        runs: Number of runs committed before.
        seconds: Median of the runs since the sample before, upload to commit.
        disk_bytes: Bytes of tables, drop folders and database.
        disk_files: Number of their files.
        memory_bytes: Resident memory of this process, without what is free (`held_memory`).
        handles: Open file descriptors of this process.
    """

    runs: int
    seconds: float
    disk_bytes: int
    disk_files: int
    memory_bytes: int
    handles: int


@dataclass(frozen=True, slots=True)
class ServiceSoak:
    """The result of a soak.

    Attributes:
        growth: Figure to the median of its last tenth over that of its tenth in the middle.
        disk_bytes_per_run: Growth on disk per run between these two, in bytes.
        disk_files_per_run: The same in files.
        sizes: Bytes on disk at the end, by the kind of file.
    """

    runs: int
    growth: dict[str, float]
    disk_bytes_per_run: float
    disk_files_per_run: float
    samples: tuple[ServiceSample, ...]
    sizes: dict[str, int]

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)


def service_soak(
    folder: Path,
    runs: int,
    *,
    seed: int = 0,
    on_run: Callable[[int], None] = lambda run: None,
    on_sample: Callable[[ServiceSample], None] = lambda sample: None,
    run_seconds_max: float = 60.0,
) -> ServiceSoak:
    """Run many small increments through a service; return the measurements.

    Args:
        folder: The service's folder; empty.
        runs: Number of increments; at least `RUNS_MIN`.
        seed: Seed of the records.
        on_run: Called with the number of each committed run.
        on_sample: Called with each sample, so that an interrupted soak has its figures.
        run_seconds_max: Seconds after which a run that has not ended fails the soak.

    Raises:
        BenchRefusedError: If `runs` is below `RUNS_MIN`.
        BenchFailedError: If a run does not end in time.
    """
    if runs < RUNS_MIN:
        raise BenchRefusedError("runs", f"expected at least {RUNS_MIN}")
    # Each sample collects all garbage; what this process holds already is none, and is passed over.
    gc.collect()
    gc.freeze()
    service = Service(_settings(folder))
    draw = random.Random(seed)
    samples: list[ServiceSample] = []
    every = max(runs // SAMPLES, 1)
    try:
        service.lead()
        service.controller.register(_document())
        seconds: list[float] = []
        for run in range(runs):
            seconds.append(_one(service, run, draw, run_seconds_max))
            on_run(run)
            if (run + 1) % every == 0:
                samples.append(_sample(folder, run + 1, statistics.median(seconds)))
                seconds.clear()
                on_sample(samples[-1])
    finally:
        service.stop()
    return ServiceSoak(
        runs,
        growth_of(samples),
        per_run(samples, "disk_bytes"),
        per_run(samples, "disk_files"),
        tuple(samples),
        _sizes(folder),
    )


def growth_of(samples: Sequence[ServiceSample]) -> dict[str, float]:
    """Return each figure's median of the last tenth over that of the tenth in the middle."""
    middle, last = _tenths(samples)
    return {figure: _median(last, figure) / _median(middle, figure) for figure in FIGURES}


def per_run(samples: Sequence[ServiceSample], figure: str) -> float:
    """Return the growth of a figure per run, between the same two tenths."""
    middle, last = _tenths(samples)
    more = _median(last, figure) - _median(middle, figure)
    return more / (_median(last, "runs") - _median(middle, "runs"))


def grown(soak: ServiceSoak, growth_max: float) -> dict[str, float]:
    """Return the limited figures that grew by more than this factor, by their description."""
    too_much = [name for name in LIMITED if soak.growth[name] > growth_max]
    return {FIGURES[name]: soak.growth[name] for name in too_much}


def left_behind(soak: ServiceSoak, bytes_max: float) -> dict[str, float]:
    """Return what runs leave on disk beyond the limits, per run and by description.

    Empty for fewer runs than `DISK_RUNS_MIN`: files that wait for a periodic removal would count.
    """
    if soak.runs < DISK_RUNS_MIN:
        return {}
    limits = {
        "bytes on disk per run": (soak.disk_bytes_per_run, bytes_max),
        "files on disk per run": (soak.disk_files_per_run, FILES_PER_RUN_MAX),
    }
    return {words: figure for words, (figure, most) in limits.items() if figure > most}


def _tenths(
    samples: Sequence[ServiceSample],
) -> tuple[Sequence[ServiceSample], Sequence[ServiceSample]]:
    tenth = max(len(samples) // 10, 1)
    start = (len(samples) - tenth) // 2
    return samples[start : start + tenth], samples[-tenth:]


def _median(part: Sequence[ServiceSample], figure: str) -> float:
    return float(statistics.median(getattr(one, figure) for one in part))


def draw_service_soak(soak: ServiceSoak, path: Path) -> None:
    """Draw the four figures over the runs; the format follows the file's ending."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 7), layout="constrained")
    FigureCanvasAgg(figure)
    at = [one.runs for one in soak.samples]
    for place, (name, words) in enumerate(FIGURES.items(), 1):
        axes = figure.add_subplot(2, 2, place)
        axes.plot(at, [getattr(one, name) for one in soak.samples], linewidth=1)
        axes.set_ylim(bottom=0)
        axes.set_title(f"{words}: x {soak.growth[name]:.2f}")
        axes.set_xlabel("runs")
    figure.savefig(path)


def _settings(folder: Path) -> Settings:
    return Settings(
        root=folder,
        engine="local",
        settle_seconds=0,
        keep_hours=0,
        keep_versions_min=20,
        keep_versions_max=20,
        attempt_hours=0,
        keep_inputs_hours=0,
        keep_finished_hours=0,
        keep_runs=200,
        log_level="ERROR",
    )


def _document() -> dict[str, Any]:
    stage = {
        "translator": "url_count",
        "inputs": {"urls": SOURCE},
        "buckets": 2,
        "keep": {"totals": {"hours": 0}},
    }
    source = {"schema": "url STRING"}
    return {"name": NAME, "sources": {SOURCE: source}, "stages": {STAGE: stage}}


def _one(service: Service, run: int, draw: random.Random, seconds_max: float) -> float:
    """Upload one file and wait for its run; return the seconds from upload to commit."""
    urls = [f"https://example.org/{draw.randrange(_KEYS)}" for _ in range(_RECORDS)]
    data = "".join(f"{json.dumps({'url': url})}\n" for url in urls).encode()
    record, folder = service.store.dataflow(NAME), service.drop_folder
    place = folder.place(record, service.controller.dataflow(NAME), SOURCE)
    started = time.perf_counter()
    folder.upload(place, f"{run}.jsonl", io.BytesIO(data))
    service.scan()
    while service.store.epochs()[NAME] <= run:
        service.controller.tick()
        if time.perf_counter() - started > seconds_max:
            why = f"run {run} had not ended after {seconds_max:g} s"
            raise BenchFailedError("soak", f"{why}; the log is below {service.settings.root}")
        service.controller.wait(0.5)
    took = time.perf_counter() - started
    service.controller.tick()  # idle: time for housekeeping
    if run % _CLEAN_EVERY == 0:
        service.clean()
    return took


def _sample(folder: Path, runs: int, seconds: float) -> ServiceSample:
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return ServiceSample(
        runs=runs,
        seconds=seconds,
        disk_bytes=sum(sizes),
        disk_files=len(sizes),
        memory_bytes=held_memory_bytes(),
        handles=len(os.listdir("/proc/self/fd")),
    )


def _sizes(folder: Path) -> dict[str, int]:
    """Return the bytes of each folder: two levels deep below the tables, one level elsewhere."""
    sizes: dict[str, int] = {}
    for path in folder.rglob("*"):
        if path.is_file():
            parts = path.relative_to(folder).parts[:-1]
            kind = "/".join(parts[:4]) or path.name
            sizes[kind] = sizes.get(kind, 0) + path.stat().st_size
    return dict(sorted(sizes.items(), key=lambda pair: -pair[1]))
