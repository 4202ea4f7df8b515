"""The interface that every candidate of a benchmark implements.

    load(state_keys) once -> run(arrival) many times -> held() -> close()

`run` returns when the result of one increment is durable; no work of that increment may continue
in the background. All that is timed happens inside `run`; `load` is free to work in any way. All
candidates read the same files, and each keeps its tables below its own folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from tests.bench.comparison.result_comparison import Held
from tests.bench.workloads.workload import Arrival

__all__ = ["Candidate", "Figures", "Place"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a candidate works.

    Attributes:
        folder: Its own folder; bytes that are written there are counted.
        scratch: Its own folder for files that are not counted: caches, first data.
        spark: The session, if there is one; a candidate makes its own session from it.
        slots: Tasks that run at the same time.
        shared: A folder for first data that several candidates begin with. Each gets hard links to
            it, and none changes a file. None: each candidate makes its own.
    """

    folder: Path
    scratch: Path
    spark: Any
    slots: int
    shared: Path | None = None

    def session(self, settings: Mapping[str, str]) -> Any:
        """Return a new Spark session for the candidate, with its best settings."""
        session = self.spark.newSession()
        for key, value in settings.items():
            session.conf.set(key, value)
        return session


@dataclass(frozen=True, slots=True)
class Figures:
    """A candidate's own figures for one run.

    Attributes:
        tasks: Python tasks of each of its Spark jobs, in order.
        steps: Step to seconds, where the candidate knows them.
        seconds: Duration of the run, if some of the elapsed time belongs to bringing the increment.
        bytes_read: Read from files, if it knows.
        bytes_written: Set if the candidate knows better than the watch over its folder.
        bytes_broadcast: Sent once to every task, if it knows.
        epochs: Runs of stages.
        updated: Mean number of state records written per epoch of the workload's last phase.
        counts: Other figures by name.
    """

    tasks: tuple[int, ...] = ()
    steps: Mapping[str, float] = field(default_factory=dict)
    bytes_read: int | None = None
    bytes_written: int | None = None
    bytes_broadcast: int | None = None
    epochs: int | None = None
    updated: float | None = None
    counts: Mapping[str, float] = field(default_factory=dict)
    seconds: float | None = None


class Candidate(Protocol):
    """Interface of a candidate; see the module header.

    Attributes:
        name: As in `--against`.
        form: How its code per key is written: `groupwise`, `arrow`, `sql`, `kept`.
        state_keys: Keys in state after `load`; fewer than requested if it cannot hold them.
    """

    name: str
    form: str
    state_keys: int

    def load(self, state_keys: int) -> None:
        """Make the state before the first increment; called once."""
        ...

    def run(self, arrival: Arrival) -> Figures:
        """Apply one increment; returns once the result is durable."""
        ...

    def emitted(self) -> Iterable[pa.RecordBatch] | None:
        """Return `(url, n)`: what the latest run emitted; None if that is not compared."""
        ...

    def held(self) -> Held:
        """Read the contents of the state, and what was emitted; may be called between runs."""
        ...

    def close(self) -> None:
        """Release all resources; the session of `Place` stays."""
        ...
