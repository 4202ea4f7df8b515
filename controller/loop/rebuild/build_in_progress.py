"""A build in progress: its public view, the control of its thread, and its pace.

    start -> building -> ready -> swapping -> swapped          cancel: nothing has changed
              |   ^- waits, after a full disk
              '- failed: nothing has changed

`rebuild_jobs.py` carries it out. A job that waits is shown as `building`, with the error and
`again_at`.

`Pace` lets a build work a share of the time, and give way to the runs of its dataflow:

    works for t seconds -> rests for r = t * (1 - share) / share, and then until no run of its
                           dataflow was under way for a moment, but at most for another 4 r

A build works in small units (a run, a batch that is compared), and rests between two of them. So
an update waits at most until the present unit ends. A build beside a dataflow that is never idle
still continues: at a share of one half it works at least a sixth of the time.

Guaranteed: the shares and the limit above, and that a rest ends as soon as `check` raises
(tests/controller/loop/rebuild/test_pace.py).
Not guaranteed: how long a unit takes, such as a run of a large increment; it has only its share of
the engine's slots.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any, Literal, Self

from cbp.clock import MACHINE, Clock
from cbp.errors import CbpError, DataflowBusyError, InvariantError, RunCancelledError
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.schedule.backoff import Rest
from cbp.model.version.version_change import Choice
from controller.loop.rebuild.build_beside import Build, TableDifference
from controller.loop.rebuild.build_order import BuildOrder, Outcome
from controller.loop.runs.retry_policy import lasts, operating
from controller.loop.verification.recomputation import Watched

GIVES_WAY_MAX = 4
"""The longest time for which a build gives way, as a multiple of its rest."""

QUIET_SECONDS = 0.1
"""A build gives way in pauses between runs, too, if they are shorter than this."""

UNIT_SECONDS_MIN = 0.02
"""A shorter unit is counted with the next one, since such short rests would not be exact."""

LOOK_SECONDS, LEAST_SECONDS = 0.02, 0.001
"""The longest and the shortest pause between two checks during a rest."""


@dataclass
class Pace:
    """The pace of one build; used by one thread at a time.

    Attributes:
        share: The share of time in which it works, above 0; 1 means that it never pauses.
    """

    share: float = 1.0
    busy: Callable[[], bool] = lambda: False
    clock: Clock = MACHINE
    rested: float = field(init=False, default=0.0)
    _since: float = field(init=False, default=0.0)
    _hurries: bool = field(init=False, default=False)
    _seen_busy: float = field(init=False, default=-math.inf)

    def begin(self) -> None:
        """Begin to measure work; time before this call does not count."""
        self._since = self.clock.seconds()

    def slots_of(self, slots: int) -> int | None:
        """Return the largest number of engine slots for its runs; `None` means all."""
        return None if self.share >= 1 else max(1, int(slots * self.share))

    @contextmanager
    def hurrying(self) -> Iterator[None]:
        """Work without pauses in the block, since the dataflow runs nothing meanwhile."""
        self._hurries = True
        try:
            yield
        finally:
            self._hurries = False
            self.begin()

    def rest(self, check: Callable[[], object]) -> None:
        """Pause after a unit; `check` is called meanwhile, and may raise."""
        began = self.clock.seconds()
        worked = began - self._since
        if self._hurries or self.share >= 1 or worked < UNIT_SECONDS_MIN:
            return
        least = began + worked * (1 - self.share) / self.share
        most = least + GIVES_WAY_MAX * (least - began)
        while (now := self.clock.seconds()) < most:
            if self.busy():
                self._seen_busy = now
            elif now >= max(least, self._seen_busy + QUIET_SECONDS):
                break
            check()
            left = (least if now < least else most) - now
            self.clock.wait(min(LOOK_SECONDS, max(left, LEAST_SECONDS)))
        self.rested += now - began
        self._since = now


Status = Literal["building", "ready", "swapping", "swapped", "cancelled", "failed"]
Ended = Literal["swapped", "cancelled", "failed"]

STEPS: Mapping[Ended, str] = MappingProxyType(
    {"swapped": "is swapped in", "cancelled": "was cancelled", "failed": "failed"}
)
"""How a job ended, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildJob:
    """One rebuild, under way or ended.

    Attributes:
        done, total, unit: Progress of the step, its size, and what is counted.
        behind: Number of arrived increments that are not in the new tables; a swap applies them
            first.
        exact: Whether the old and the new tables were compared after the same input. Otherwise the
            dataflow did not become idle, and some differences come from increments that only one
            side has applied.
        share: The share of time in which it works, and of the engine's slots that it takes.
        again_at: Time of the next attempt, after a fault of the environment.
        ended_by: The person who asked for the swap, or cancelled the rebuild.
        anew: Why it started over after a restart or a fault; `""` if it did not.
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
    share: float = 1.0
    rested: float = 0.0
    error: CbpError | None = None
    by: str = ""
    ended_by: str = ""
    ended_at: datetime | None = None
    anew: str = ""
    again_at: datetime | None = None

    @classmethod
    def recorded(cls, dataflow: str, order: BuildOrder, outcome: Outcome) -> Self:
        """Return the view of a job that ended in another process, from its order."""
        return cls(
            id=order.id,
            dataflow=dataflow,
            version=order.version,
            began_at=order.began_at,
            status=outcome.status,
            step=STEPS[outcome.status],
            seconds=outcome.seconds,
            tables=tuple(TableDifference(**one) for one in outcome.tables),
            exact=outcome.exact,
            error=outcome.error,
            by=order.by,
            ended_by=outcome.by,
            ended_at=outcome.ended_at,
        )

    def outcome(self, status: Ended, at: datetime, by: str) -> Outcome:
        """Return the outcome to keep when it ends."""
        return Outcome(
            status=status,
            ended_at=at,
            seconds=(at - self.began_at).total_seconds(),
            by=by,
            tables=tuple(map(asdict, self.tables)),
            exact=self.exact,
            error=self.error if status == "failed" else None,
        )

    @property
    def ended(self) -> bool:
        """Whether the job has ended."""
        return self.status in ("swapped", "cancelled", "failed")


@dataclass(frozen=True, slots=True)
class Planned:
    """A version that can be built: compiled, with the choice of how its stages begin."""

    dataflow: Dataflow
    choice: Choice
    leaders: tuple[str, ...]


@dataclass(eq=False)
class Job(Watched):
    """One job; its public view is replaced as a whole.

    Attributes:
        kept: Whether its order stays, because the service stops and the next leader continues.
        busy: Held by the thread that builds or swaps.
        scratch: The folder of its tables and its other files before a swap; an earlier process may
            have made it.
    """

    waits = "waits until the dataflow has applied its new input"
    shown: RebuildJob
    order: BuildOrder
    folder: str
    clock: Callable[[], datetime]
    pace: Pace
    planned: Planned | None = None
    kept: bool = False
    busy: threading.Lock = field(default_factory=threading.Lock)
    build: Build | None = None
    scratch: str = ""
    tries: int = 1
    failures: int = 0
    rest: Rest | None = None

    def tell(self, step: str, done: int = 0, total: int = 0, unit: str = "") -> None:
        """Show the progress, and pause."""
        super().tell(step, done, total, unit)
        self.pace.rest(self.check)

    def began(self, run: str) -> None:
        """Pause, and note the run that starts next."""
        self.pace.rest(self.check)
        super().began(run)

    def wait_after(self, error: CbpError, rest: Rest) -> None:
        """Note a fault of the environment and the pause after it; built tables stay on disk."""
        self.failures, self.rest = self.failures + 1, rest
        if self.build is not None:
            self.build.close()
            self.build = None
        self.show(status="building", step=f"waits after an error: {error.message}", error=error)
        self.show(again_at=rest.end, done=0, total=0, unit="")

    def count_as_cancelled(self, order: BuildOrder, by: str) -> None:
        """Show a failed job as cancelled, since a person has dealt with it."""
        step = STEPS["cancelled"]
        self.order = order
        self.shown = replace(self.shown, status="cancelled", step=step, ended_by=by)

    def is_due(self, now: datetime) -> bool:
        """Return whether its pause is over, or whether it was asked to end."""
        return self.rest is None or not self.rest.lasts(now) or self.stop.is_set()

    def wait(self, busy: Mapping[str, str]) -> None:
        """Wait a moment for the dataflow to become idle."""
        super().wait(busy)
        self.pace.begin()

    def show(self, **changed: Any) -> None:
        """Change the public view, unless the job has ended."""
        if not self.shown.ended:
            seconds = (self.clock() - self.shown.began_at).total_seconds()
            rested = self.pace.rested
            self.shown = replace(self.shown, seconds=seconds, rested=rested, **changed)


def error_of(cause: Exception) -> CbpError:
    """Return the error to show for an exception that a job raised."""
    known = operating(cause)
    if isinstance(known, CbpError):
        return known
    return InvariantError(f"the rebuild stopped with an unexpected error: {cause!r:.500}")


def passes(error: CbpError) -> bool:
    """Return whether an error is a fault of the environment, after which a job is retried."""
    return lasts(error) and not isinstance(error, RunCancelledError | DataflowBusyError)
