"""A candidate that takes part in a contest, with the measurements around it.

    load -> run, run, ... -> held -> close

`Entrant` is the interface; `LocalEntrant` works in this process. The command gives each candidate
a separate process (`tests.bench.contest.own_process`), in which a `LocalEntrant` works.

Measured around a run: seconds, processor seconds of the process and all its children, bytes
shuffled, and bytes written. Before each run, pending writes of others are flushed to the disk.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from tests.bench.candidates.candidate import Candidate, Figures, Place
from tests.bench.candidates.roster import candidate_of
from tests.bench.comparison.changed_counts_files import SCHEMA
from tests.bench.comparison.digests import digest_of
from tests.bench.comparison.result_comparison import Digest, Held
from tests.bench.measurements.cpu_time import cpu_seconds
from tests.bench.measurements.result import Sample
from tests.bench.measurements.spark_floor import floor_seconds
from tests.bench.measurements.traffic import FolderWatch, StageWatch
from tests.bench.options import BenchOptions
from tests.bench.workloads.workload import Arrival, Workload

__all__ = ["Entrant", "LocalEntrant", "MakeEntrant"]


class Entrant(Protocol):
    """A candidate that takes part in a contest; see the module header.

    Attributes:
        label: One of `BenchOptions.entrants`.
        name: Name of the candidate.
        form: Form of the candidate.
    """

    label: str
    name: str
    form: str

    @property
    def state_keys(self) -> int:
        """Number of keys that the candidate holds after `load`."""
        ...

    def load(self, state_keys: int) -> None:
        """Make the state before the first increment."""
        ...

    def run(self, arrival: Arrival) -> Sample:
        """Apply one increment, and measure it."""
        ...

    def floor(self) -> float | None:
        """Return the seconds that an empty Spark job takes; None without Spark.

        It has as many tasks as the latest run had.
        """
        ...

    def emitted(self) -> Digest | None:
        """Return the digest of the latest run's output; None if it is not compared."""
        ...

    def held(self) -> Held:
        """Return the contents that are compared."""
        ...

    def kept_bytes(self) -> int:
        """Return the bytes of copies on disk that can be rebuilt, such as index copies."""
        ...

    def close(self) -> None:
        """Release everything."""
        ...


MakeEntrant = Callable[[str, Workload, Path], Entrant]
"""Makes the entrant from label, workload and folder."""


class LocalEntrant:
    """A candidate in this process; see `Entrant`."""

    def __init__(
        self,
        label: str,
        workload: Workload,
        folder: Path,
        *,
        options: BenchOptions,
        spark: Any,
        slots: int,
    ) -> None:
        self.label, self._spark = label, spark
        shared = options.prepared or folder.parent / "prepared"
        place = Place(folder / "tables", folder / "scratch", spark, slots, shared)
        place.folder.mkdir(parents=True)
        place.scratch.mkdir()
        self._place = place
        self.candidate: Candidate = candidate_of(label, place, workload, options)
        self.name, self.form = self.candidate.name, self.candidate.form
        self._watch = FolderWatch(place.folder)
        self._stages = None if spark is None else StageWatch(spark)
        self._figures = Figures()

    @property
    def state_keys(self) -> int:
        """Number of keys that the candidate holds after `load`."""
        return self.candidate.state_keys

    def load(self, state_keys: int) -> None:
        """Make the state before the first increment."""
        self.candidate.load(state_keys)
        self._watch.take()

    def run(self, arrival: Arrival) -> Sample:
        """Apply one increment, and measure it."""
        os.sync()
        if self._stages is not None:
            self._stages.take()
        busy, started = cpu_seconds(), time.perf_counter()
        figures = self.candidate.run(arrival)
        seconds, busy_after = time.perf_counter() - started, cpu_seconds()
        seconds = seconds if figures.seconds is None else figures.seconds
        shuffled = None if self._stages is None else self._stages.take()
        written = self._watch.take()
        self._figures = figures
        return Sample(
            seconds,
            figures.bytes_read,
            shuffled,
            written if figures.bytes_written is None else figures.bytes_written,
            figures.steps,
            bytes_broadcast=figures.bytes_broadcast,
            epochs=figures.epochs,
            updated=figures.updated,
            cpu_seconds=None if busy is None or busy_after is None else busy_after - busy,
        )

    def floor(self) -> float | None:
        """Return the seconds that an empty Spark job takes; None without Spark.

        It has as many tasks as the latest run had.
        """
        return None if self._spark is None else floor_seconds(self._spark, self._figures.tasks)

    def emitted(self) -> Digest | None:
        """Return the digest of the latest run's output; None if it is not compared."""
        emission = self.candidate.emitted()
        return None if emission is None else digest_of(emission, SCHEMA.fields)

    def held(self) -> Held:
        """Return the contents that are compared."""
        return self.candidate.held()

    def kept_bytes(self) -> int:
        """Return the bytes of copies on disk that can be rebuilt, such as index copies."""
        files = (self._place.scratch / "cache").rglob("*")
        return sum(file.stat().st_size for file in files if file.is_file())

    def close(self) -> None:
        """Release everything."""
        self.candidate.close()
