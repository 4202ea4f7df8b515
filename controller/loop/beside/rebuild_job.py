"""A rebuild job: what is shown of one build beside, and how the thread that builds is steered.

    start -> building -> ready -> swapping -> swapped          cancel: nothing has changed
                 '- failed: nothing has changed

`rebuild_jobs.py` carries it out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

from cbp.errors import CbpError
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.version.version_change import Choice
from controller.loop.beside.build_beside import Build, TableDifference
from controller.loop.beside.build_order import BuildOrder

Status = Literal["building", "ready", "swapping", "swapped", "cancelled", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildJob:
    """One rebuild, under way or ended.

    Attributes:
        version: The version that it is to become.
        step: What it does now, in words.
        done, total, unit: How much of the step is done, of how much, and what is counted.
        behind: Increments that have come and are not in the new tables; a swap applies them first.
        tables: How the new tables differ from the present ones; empty until it is ready.
        exact: Whether both were compared after the same input. Otherwise the dataflow did not come
            to rest, and some differences are increments that only one side has applied.
        error: Why it failed, or why its last swap did.
    """

    id: str
    dataflow: str
    version: int
    began_at: datetime
    status: Status = "building"
    step: str = "waits to begin"
    done: int = 0
    total: int = 0
    unit: str = ""
    seconds: float = 0.0
    behind: int = 0
    tables: tuple[TableDifference, ...] = ()
    exact: bool = True
    error: CbpError | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing more happens."""
        return self.status in ("swapped", "cancelled", "failed")


@dataclass(frozen=True, slots=True)
class Planned:
    """A version that can be built: compiled, with the choice that begins it."""

    dataflow: Dataflow
    choice: Choice
    leaders: tuple[str, ...]


class JobCancelledError(Exception):
    """The job was cancelled."""


@dataclass
class Job:
    """One job; what is shown of it is replaced as a whole.

    Attributes:
        order: What was asked for; kept in the dataflow's folder until the job has ended.
        settle_seconds: How long it waits before it looks again whether the dataflow is at rest.
        planned: What is built, once it was checked.
        stop: Set when the job is to end.
        kept: Whether its order outlives it: the service stops, and the next leader goes on.
        busy: Held by the thread that builds or swaps.
        scratch: The folder of its tables, and what else it writes before a swap.
        run: The run under way.
    """

    shown: RebuildJob
    order: BuildOrder
    folder: str
    clock: Callable[[], datetime]
    settle_seconds: float
    planned: Planned | None = None
    kept: bool = False
    stop: threading.Event = field(default_factory=threading.Event)
    busy: threading.Lock = field(default_factory=threading.Lock)
    build: Build | None = None
    scratch: str = ""
    run: str = ""

    def tell(self, step: str, done: int = 0, total: int = 0, unit: str = "") -> None:
        """Show the progress; see `Watched`."""
        self.show(step=step, done=done, total=total, unit=unit)
        self.check()

    def began(self, run: str) -> None:
        """Note the run that starts next; see `Watched`."""
        self.run = run  # first: whatever cancels the job either sees the run, or is seen below
        self.check()

    def check(self) -> None:
        """Raise `JobCancelledError` if the job is to end."""
        if self.stop.is_set():
            raise JobCancelledError

    def wait(self, busy: Mapping[str, str]) -> None:
        """Wait a moment for the dataflow to come to rest."""
        self.show(step="waits until the dataflow has applied what came", done=0, total=0, unit="")
        if self.stop.wait(self.settle_seconds):
            raise JobCancelledError

    def show(self, **changed: Any) -> None:
        """Change what is shown, unless the job has ended."""
        if not self.shown.ended:
            seconds = (self.clock() - self.shown.began_at).total_seconds()
            self.shown = replace(self.shown, seconds=seconds, **changed)
