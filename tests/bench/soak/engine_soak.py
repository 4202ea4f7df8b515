"""Soak test of the engine: many epochs in a row; does a run stay fast, and what does it leave?

Compared are medians of the first and the last `share` epochs, after one warm-up epoch. The
processor time is shown beside the time, since a disk is faster or slower at other hours, depending
on its other users. A file system may itself become slow through removed files (`--root` chooses
another). Bytes written are divided by `bytes_changed`: the state records that changed and the
records that were emitted, in memory (Arrow, declared columns). `bytes_by_kind` says what they were
written for: records once (`state`, `outputs`), again by compaction, or to keep them.

Every 25 epochs the garbage collection runs, as in the service between runs, but with the shortest
retention, so that growth shows within one soak. Its time is reported separately.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from cbp.engine.interface.garbage_collector import Retention
from tests.bench.candidates.candidate import Place
from tests.bench.candidates.ours.direct import DirectCandidate
from tests.bench.candidates.ours.engine_driver import DataflowDrive, StageRun
from tests.bench.measurements.folder_contents import Remains, remains
from tests.bench.measurements.traffic import FolderWatch
from tests.bench.options import OURS, SOAK_SHARE_MAX, BenchOptions
from tests.bench.workloads.workload import workload_of, write_arrival

__all__ = ["Soak", "soak"]

_LOOK_EVERY = 50
_KEEP_EVERY = 25
_SHORTEST = Retention(versions_min=20, versions_max=20, seconds=0, attempt_seconds=0)


@dataclass(frozen=True, slots=True)
class Soak:
    """Result of a soak; seconds are medians, bytes are means per epoch.

    Attributes:
        share: Number of epochs at each end that were compared.
        ratio: Last seconds over first seconds.
        cpu_first, cpu_last, cpu_ratio: The same for processor seconds of this process, without
            Spark's workers.
        seconds_keeping: Time of all garbage collections, per epoch.
        state_files, output_files, log_entries, records, files: See `Remains`; at the end.
        bytes_by_kind: The parts of `bytes_written`.
        bytes_per_changed: `bytes_written` over `bytes_changed`.
        bytes_per_stored: `bytes_written` over `state` and `outputs`: the same records once,
            compressed as they are in their files.
        publish_epochs: Number of epochs that were published together.
        ages: Contents of the folder every 50 epochs, each time just after a collection.
    """

    epochs: int
    state_keys: int
    increment_records: int
    share: int
    seconds_first: float
    seconds_last: float
    ratio: float
    cpu_first: float
    cpu_last: float
    cpu_ratio: float
    seconds_keeping: float
    state_files: int
    output_files: int
    log_entries: int
    records: int
    files: int
    bytes_changed: float
    bytes_written: float
    bytes_by_kind: Mapping[str, float]
    bytes_per_changed: float
    bytes_per_stored: float
    publish_epochs: int
    ages: tuple[Remains, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)


def soak(
    options: BenchOptions, folder: Path, spark: Any, slots: int, on_step: Callable[[str], None]
) -> Soak:
    """Run the epochs of a soak; `on_step` is called `options.epochs + 2` times.

    One further epoch runs first, and is not measured.
    """
    (state_keys,), (size,) = options.state_keys, options.increment
    workload = workload_of(options, state_keys)
    place = Place(folder / "tables", folder / "scratch", spark, slots)
    place.folder.mkdir(parents=True)
    place.scratch.mkdir()
    ours = DirectCandidate(
        place, workload, grouping=options.grouping, form=options.forms[0], name=OURS
    )
    ours.drive.publish_epochs = options.publish_epochs
    on_step(f"loading {state_keys:,} keys")
    ours.load(state_keys)
    seconds: list[float] = []
    cpu: list[float] = []
    ages: list[Remains] = []
    changed, keeping = 0, 0.0
    written: Counter[str] = Counter()
    watch = FolderWatch(place.folder)
    for epoch in range(options.epochs + 1):
        on_step(f"epoch {epoch:,}")
        path = folder / "increments" / f"{epoch:06d}.parquet"
        records = workload.records(epoch, size, before=epoch * size)
        ours.drive.offer(workload.source, write_arrival(records, path))
        path.unlink()
        started, began = time.perf_counter(), time.process_time()
        runs = ours.drive.run_until_idle()
        took, worked = time.perf_counter() - started, time.process_time() - began
        if not epoch:  # the first one makes index copies and starts workers
            watch.take()
            continue
        seconds.append(took)
        cpu.append(worked)
        changed += sum(_changed_bytes(run, ours.drive) for run in runs)
        for run in runs:
            written += _data_by_kind(run)
        last_one = epoch == options.epochs
        if epoch % _KEEP_EVERY == 0 or last_one:
            # The intentions tell the kinds of data files; the watch counts the rest.
            written += Counter({k: n for k, n in watch.take_by_kind().items() if k != "data"})
            started = time.perf_counter()
            ours.drive.keep_house(_SHORTEST)
            keeping += time.perf_counter() - started
            watch.take()
        if epoch % _LOOK_EVERY == 0 or last_one:
            ages.append(remains(place.folder, epoch))
    share = min(SOAK_SHARE_MAX, options.epochs // 2)
    first, last = _ends(seconds, share)
    cpu_first, cpu_last = _ends(cpu, share)
    return Soak(
        epochs=options.epochs,
        state_keys=ours.state_keys,
        increment_records=size,
        share=share,
        seconds_first=first,
        seconds_last=last,
        ratio=last / first,
        cpu_first=cpu_first,
        cpu_last=cpu_last,
        cpu_ratio=cpu_last / cpu_first,
        seconds_keeping=keeping / options.epochs,
        state_files=ages[-1].state_files,
        output_files=ages[-1].output_files,
        log_entries=ages[-1].log_entries,
        records=ages[-1].records,
        files=ages[-1].files,
        bytes_changed=changed / options.epochs,
        bytes_written=written.total() / options.epochs,
        bytes_by_kind={kind: n / options.epochs for kind, n in sorted(written.items())},
        bytes_per_changed=written.total() / changed,
        bytes_per_stored=written.total() / (written["state"] + written["outputs"]),
        publish_epochs=options.publish_epochs,
        ages=tuple(ages),
    )


def _ends(seconds: list[float], share: int) -> tuple[float, float]:
    """Return the medians of the first and of the last `share` values."""
    return statistics.median(seconds[:share]), statistics.median(seconds[-share:])


def _changed_bytes(run: StageRun, drive: DataflowDrive) -> int:
    """Return the bytes, in memory, of the records that a run wrote for the first time."""
    total = 0
    for change in run.intention.changes:
        for add in change.adds if change.data_change else ():
            path = drive.folder / change.table / add["path"]
            table = pq.ParquetFile(path).read(use_threads=False)
            declared = [name for name in table.column_names if not name.startswith("_")]
            total += table.select(declared).nbytes
    return total


def _data_by_kind(run: StageRun) -> Counter[str]:
    """Return the bytes of a run's data files, by new records and rewritten ones."""
    written: Counter[str] = Counter()
    for change in run.intention.changes:
        kind = "state" if change.table.startswith("state/") else "outputs"
        size = sum(int(add["size"]) for add in change.adds)
        written[kind if change.data_change else f"{kind}_compacted"] += size
    return written
