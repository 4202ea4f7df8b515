"""What every candidate of a benchmark is asked to do.

    load(state_keys) once -> run(arrival) many times -> held() -> close()

`run` returns when the result of one increment is durable, and nothing is done in the
background that belongs to it. Whatever is timed is inside `run`; a candidate may do as
it likes in `load`. Each reads the same files and keeps its tables below its own folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from controller.bench.held import Held
from controller.bench.workload import Arrival

__all__ = ["Candidate", "Figures", "Place"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a candidate works.

    Attributes:
        folder: Its own folder; what is written there is counted.
        scratch: Its own folder for what is not counted: caches, first data.
        spark: The session, if there is one; a candidate makes a session of its own from it.
        slots: Tasks that run at the same time.
    """

    folder: Path
    scratch: Path
    spark: Any
    slots: int

    def session(self, settings: Mapping[str, str]) -> Any:
        """Return a Spark session of the candidate's own, with its best settings."""
        session = self.spark.newSession()
        for key, value in settings.items():
            session.conf.set(key, value)
        return session


@dataclass(frozen=True, slots=True)
class Figures:
    """What a candidate itself knows of one run.

    Attributes:
        tasks: Python tasks of each of its Spark jobs, in order.
        steps: Step to seconds, where the candidate knows them.
        bytes_read: From files, if it knows.
        bytes_written: If it knows better than whoever watches its folder.
        bytes_broadcast: Sent once to every task, if it knows.
        epochs: Runs of stages.
        updated: State records written per epoch of the workload's last phase, in the mean.
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


class Candidate(Protocol):
    """See the module header.

    Attributes:
        name: As in `--against`.
        form: How its code per key is written: `groupwise`, `arrow`, `sql`.
        state_keys: Keys in state after `load`; fewer than asked for where it cannot hold them.
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

    def held(self) -> Held:
        """Read what the state holds, and what was emitted; called once all is measured."""
        ...

    def close(self) -> None:
        """Release what is held; the session of the place stays."""
        ...
