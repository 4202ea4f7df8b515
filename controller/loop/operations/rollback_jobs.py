"""Roll-back jobs: a roll-back goes on in a thread of its own, and shows how far it is.

    start -> reads the past -> waits for runs -> changes tables -> fills the queues -> done
                    '-------------- failed: nothing has changed, or recovery finishes it

Nobody has to keep a connection open meanwhile. A job is forgotten with the process; its roll-back
is not: the record of the generation has the job's request, so a job that was done is found again.

Guaranteed: one job at a time per dataflow, and one per request, however often it is asked for
(tests/controller/loop/operations/test_rollback_jobs.py).
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

import structlog

from cbp.clock import MACHINE
from cbp.errors import CbpError, DataflowBusyError, InvariantError, NotFoundError
from cbp.model.flow.generation import Generation
from cbp.model.version.rollback_point import parse_point
from controller.loop.operations.amendments import Amendments

__all__ = ["RollbackJob", "RollbackJobs"]

KEPT_MAX = 20
"""Jobs that this process remembers."""

Status = Literal["running", "done", "failed"]

_ID = re.compile(r"b[0-9a-f]{12}\Z")

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackJob:
    """One roll-back, under way or ended.

    Attributes:
        id: Names the job.
        step: What it does now, in words.
        done, total: How much of the step is done, and of how much; 0 if it is not known.
        unit: What `done` and `total` count.
        seconds: How long it has taken.
        generation: The generation that it began, once it is done.
        error: Why it failed.
    """

    id: str
    dataflow: str
    began_at: datetime
    status: Status = "running"
    step: str = "waits to begin"
    done: int = 0
    total: int = 0
    unit: str = ""
    seconds: float = 0.0
    generation: Generation | None = None
    error: CbpError | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing more happens."""
        return self.status != "running"


class RollbackJobs:
    """Starts roll-backs and reports their progress; safe to use from several threads.

    Args:
        executor: Carries them out.
        random_hex: Returns the given number of random bytes, in hexadecimal.
        clock: Returns the time, aware and in UTC.
        monotonic: Returns seconds that never go back.
    """

    def __init__(
        self,
        *,
        amendments: Amendments,
        executor: Executor,
        random_hex: Callable[[int], str],
        clock: Callable[[], datetime],
        monotonic: Callable[[], float] = MACHINE.seconds,
    ) -> None:
        self._amendments, self._executor = amendments, executor
        self._random_hex, self._clock, self._monotonic = random_hex, clock, monotonic
        self._jobs: OrderedDict[str, RollbackJob] = OrderedDict()
        self._began: dict[str, float] = {}
        self._lock = threading.Lock()

    def start(
        self,
        name: str,
        to: str,
        *,
        who: str,
        why: str,
        drop_later: bool = False,
        without: Sequence[str] = (),
        pause: bool = False,
        request: str = "",
    ) -> RollbackJob:
        """Begin to roll a dataflow back; returns at once. Arguments: see `Amendments.roll_back`.

        Whatever needs the past to be read is found by the job, which then fails.

        Raises:
            NotFoundError: If there is no such dataflow.
            DefinitionError: Rule `rollback_target_invalid`, if `to` is no name of a point.
            DataflowBusyError: If it is held, or is rolled back already.
        """
        parse_point(to)
        request = request or f"b{self._random_hex(6)}"
        id_ = _id_of(request)
        known = self._find(name, id_)
        if known is not None and known.error is None:
            return known
        self._amendments.require_free(name)
        with self._lock:
            for job in self._jobs.values():
                if job.dataflow == name and not job.ended:
                    raise DataflowBusyError(name, f"it is being rolled back (job {job.id})")
            job = RollbackJob(id=id_, dataflow=name, began_at=self._clock())
            self._jobs.pop(id_, None)  # it failed, and is asked for again
            self._jobs[id_], self._began[id_] = job, self._monotonic()
            while len(self._jobs) > KEPT_MAX:
                forgotten, _ = self._jobs.popitem(last=False)
                del self._began[forgotten]

        def carry_out() -> Generation:
            return self._amendments.roll_back(
                name,
                to,
                who=who,
                why=why,
                drop_later=drop_later,
                without=without,
                pause=pause,
                request=request,
                tell=lambda step, done, total, unit: self._show(
                    id_, step=step, done=done, total=total, unit=unit
                ),
            )

        self._executor.submit(self._guarded, id_, carry_out)
        return job

    def show(self, name: str, id_: str) -> RollbackJob:
        """Return one job.

        Raises:
            NotFoundError: If there is no such dataflow, or job; also for a job that did not end
                before this process began and whose roll-back was not done.
        """
        if (known := self._find(name, id_)) is not None:
            return known
        raise NotFoundError(kind="roll-back", name=id_)

    def _find(self, name: str, id_: str) -> RollbackJob | None:
        with self._lock:
            job = self._jobs.get(id_)
            if job is not None and job.dataflow == name:
                seconds = self._monotonic() - self._began[id_]
                return job if job.ended else replace(job, seconds=seconds)
        for one in self._amendments.rollbacks(name):
            if one.request and _id_of(one.request) == id_:
                return RollbackJob(
                    id=id_,
                    dataflow=name,
                    began_at=datetime.fromtimestamp(one.prepared_ms / 1000, UTC),
                    status="done",
                    step="is done",
                    generation=one,
                )
        return None

    def _guarded(self, id_: str, carry_out: Callable[[], Generation]) -> None:
        try:
            generation = carry_out()
        except CbpError as error:
            self._show(id_, status="failed", error=error)
            _log.warning("rollback.failed", job=id_, error=error.as_dict())
        except Exception as cause:  # author's FrameBy, or a store, may raise anything
            message = f"the roll-back stopped with an unexpected error: {cause!r:.500}"
            self._show(id_, status="failed", error=InvariantError(message))
            _log.warning("rollback.failed", job=id_, exc_info=cause)
        else:
            self._show(id_, status="done", step="is done", generation=generation)

    def _show(self, id_: str, **changed: object) -> None:
        with self._lock:
            if id_ in self._jobs:  # else it was forgotten
                seconds = self._monotonic() - self._began[id_]
                self._jobs[id_] = replace(
                    self._jobs[id_],
                    seconds=seconds,
                    **changed,  # type: ignore[arg-type]
                )


def _id_of(request: str) -> str:
    """Return the id of the job of a request, which is not in order for a path."""
    if _ID.match(request):
        return request
    return f"b{hashlib.sha256(request.encode()).hexdigest()[:12]}"
