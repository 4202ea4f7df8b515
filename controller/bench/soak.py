"""Many epochs in a row: whether a run stays as fast, and what it leaves, as it grows old.

Compared are medians of the first and the last `share` epochs, after one warm-up. Of the
bytes written, `bytes_changed` are the state records that changed, as Parquet, once;
everything else is what it costs to keep them: outputs, vectors, compaction, logs.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cbp.engine.delta.tables import open_table
from cbp.engine.files import LocalFiles
from controller.bench.candidate import Place
from controller.bench.candidates.direct import DirectCandidate
from controller.bench.drive import StageRun
from controller.bench.options import OURS, SOAK_SHARE_MAX, BenchOptions
from controller.bench.traffic import FolderWatch
from controller.bench.workload import workload_of, write_arrival

__all__ = ["Soak", "soak"]

_LOOK_EVERY = 50


@dataclass(frozen=True, slots=True)
class Soak:
    """What was found; seconds are medians, bytes are means per epoch.

    Attributes:
        share: Epochs at each end that were compared.
        ratio: Of the last to the first seconds.
        state_files: Live data files of all state tables in the end.
        log_entries: Entries and checkpoints in the logs of all tables in the end.
        files: Of all kinds below the dataflow's folder in the end.
        bytes_per_changed: `bytes_written` over `bytes_changed`.
    """

    epochs: int
    state_keys: int
    increment_records: int
    share: int
    seconds_first: float
    seconds_last: float
    ratio: float
    state_files: int
    log_entries: int
    files: int
    bytes_changed: float
    bytes_written: float
    bytes_per_changed: float

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)


def soak(
    options: BenchOptions, folder: Path, spark: Any, slots: int, on_step: Callable[[str], None]
) -> Soak:
    """Run the epochs of a soak; `on_step` is called `options.epochs + 2` times.

    One epoch more comes first, and is not measured.
    """
    (state_keys,), (size,) = options.state_keys, options.increment
    workload = workload_of(options, state_keys)
    place = Place(folder / "tables", folder / "scratch", spark, slots)
    place.folder.mkdir(parents=True)
    place.scratch.mkdir()
    ours = DirectCandidate(
        place, workload, grouping=options.grouping, form=options.forms[0], name=OURS
    )
    on_step(f"loading {state_keys:,} keys")
    ours.load(state_keys)
    seconds: list[float] = []
    changed = written = 0
    watch = FolderWatch(place.folder)
    for epoch in range(options.epochs + 1):
        on_step(f"epoch {epoch:,}")
        path = folder / "increments" / f"{epoch:06d}.parquet"
        ours.drive.offer(workload.source, write_arrival(workload.records(epoch, size), path))
        path.unlink()
        started = time.perf_counter()
        runs = ours.drive.run_until_idle()
        took = time.perf_counter() - started
        if not epoch:  # the first one makes index copies and starts workers
            watch.take()
            continue
        seconds.append(took)
        changed += sum(_changed_bytes(run) for run in runs)
        if epoch % _LOOK_EVERY == 0 or epoch == options.epochs:
            written += watch.take()
    share = min(SOAK_SHARE_MAX, options.epochs // 2)
    first, last = statistics.median(seconds[:share]), statistics.median(seconds[-share:])
    return Soak(
        epochs=options.epochs,
        state_keys=state_keys,
        increment_records=size,
        share=share,
        seconds_first=first,
        seconds_last=last,
        ratio=last / first,
        state_files=_live_files(ours.state_tables()),
        log_entries=sum(len(list(log.iterdir())) for log in place.folder.glob("*/*/_delta_log")),
        files=sum(1 for path in place.folder.rglob("*") if path.is_file()),
        bytes_changed=changed / options.epochs,
        bytes_written=written / options.epochs,
        bytes_per_changed=written / changed,
    )


def _changed_bytes(run: StageRun) -> int:
    """Return the bytes of the state records that a run wrote for the first time."""
    changes = [c for c in run.intention.changes if c.data_change and c.table.startswith("state/")]
    return sum(add["size"] for c in changes for add in c.adds)


def _live_files(tables: list[Path]) -> int:
    return sum(len(open_table(str(table), LocalFiles()).snapshot.live) for table in tables)
