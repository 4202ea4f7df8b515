"""Jobs: an amendment runs in a thread of its own, and shows its progress.

    begin -> running, step by step -> done
                  '-----------------> failed: nothing has changed, or recovery finishes it

    roll-back   reads the past, waits for runs, changes tables, fills the queues
    give-back   waits for runs, publishes what is finished, calls the code, records the run; a
                trial calls the code, reports what fails again, and changes nothing

Guaranteed: one job of a kind at a time per dataflow, and one per request, however often the request
is sent (tests/controller/loop/operations/test_rollback_jobs.py, test_give_back_jobs.py).
"""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Generic, Literal, TypeVar

import structlog

from cbp.clock import MACHINE
from cbp.errors import CbpError, DataflowBusyError, InvariantError, NotFoundError
from cbp.model.flow.generation import Generation
from cbp.model.version.rollback_point import parse_point
from controller.loop.operations.amendments import Amendments
from controller.loop.records.job_table import JobTable
from controller.loop.recovery.corrections import GivenBack
from controller.loop.recovery.past_position import Tell

Status = Literal["running", "done", "failed"]

R = TypeVar("R")

_ID = re.compile(r"b[0-9a-f]{12}\Z")

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Job(Generic[R]):
    """One job, under way or ended.

    Attributes:
        stage: The stage that it concerns; `""` if it concerns the whole dataflow.
        done, total: Progress of the step, and its size; 0 if unknown.
    """

    id: str
    dataflow: str
    began_at: datetime
    stage: str = ""
    status: Status = "running"
    step: str = "waits to begin"
    done: int = 0
    total: int = 0
    unit: str = ""
    seconds: float = 0.0
    result: R | None = None
    error: CbpError | None = None

    @property
    def ended(self) -> bool:
        """Whether the job has ended."""
        return self.status != "running"


class Jobs(ABC, Generic[R]):
    """Starts jobs of one kind and reports their progress; safe to use from several threads."""

    kind: str
    """Name of this kind of job, as in "there is no roll-back X"."""
    busy: str
    """State of its dataflow during the job, as in "is being rolled back"."""

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
        self._random_hex, self._clock = random_hex, clock
        self._table: JobTable[Job[R]] = JobTable(monotonic)

    @abstractmethod
    def recorded(self, name: str, id_: str) -> Job[R] | None:
        """Return an earlier job from its records; raises `NotFoundError`."""

    def show(self, name: str, id_: str) -> Job[R]:
        """Return one job; raises `NotFoundError`."""
        if (known := self._find(name, id_)) is not None:
            return known
        raise NotFoundError(kind=self.kind, name=id_)

    def forget(self, name: str) -> None:
        """Forget the jobs of a dataflow that was deleted."""
        self._table.forget_all(name)

    def _begin(
        self, name: str, request: str, carry_out: Callable[..., R], stage: str = ""
    ) -> Job[R]:
        """Begin the job of a request, or return the job that the request has begun before.

        Args:
            request: Name of the request; `""` if it has none.
            carry_out: Does the work; gets `tell` and `request` by name.
        """
        request = request or f"b{self._random_hex(6)}"
        id_ = id_of(request)
        known = self._find(name, id_)
        if known is not None and known.error is None:
            return known
        self._amendments.require_free(name)

        def refuse(other: str, known: Job[R]) -> None:
            if known.dataflow == name:
                raise DataflowBusyError(name, f"it {self.busy} (job {other})")

        # The request of a job that failed may be sent again.
        job: Job[R] = Job(id_, name, self._clock(), stage)
        begun = self._table.begin(id_, job, refuse)
        if begun is not job:  # a request with this id has just begun
            if begun.dataflow != name:
                why = f"job {id_} of {begun.dataflow!r}, which has the same id, is under way"
                raise DataflowBusyError(name, why)
            return begun

        def tell(step: str, done: int, total: int, unit: str) -> None:
            self._table.show(id_, step=step, done=done, total=total, unit=unit)

        try:
            self._executor.submit(self._guarded, id_, lambda: carry_out(tell=tell, request=request))
        except RuntimeError:  # no thread can be started, or the service stops
            self._table.forget(id_)
            raise
        return job

    def _find(self, name: str, id_: str) -> Job[R] | None:
        job = self._table.get(id_)
        return job if job is not None and job.dataflow == name else self.recorded(name, id_)

    def _done(self, name: str, id_: str, at_ms: int, result: R, stage: str = "") -> Job[R]:
        began_at = datetime.fromtimestamp(at_ms / 1000, UTC)
        return Job(id_, name, began_at, stage, "done", "is done", result=result)

    def _guarded(self, id_: str, carry_out: Callable[[], R]) -> None:
        try:
            result = carry_out()
        except CbpError as error:
            self._table.show(id_, status="failed", error=error)
            _log.warning("job.failed", kind=self.kind, job=id_, error=error.as_dict())
        except Exception as cause:  # an author's code, or a store, may raise anything
            message = f"the {self.kind} stopped because of an unexpected error: {cause!r:.500}"
            self._table.show(id_, status="failed", error=InvariantError(message))
            _log.warning("job.failed", kind=self.kind, job=id_, exc_info=cause)
        else:
            self._table.show(id_, status="done", step="is done", result=result)


def id_of(request: str) -> str:
    """Return the id of a request's job: the request itself if it is an id, otherwise a hash."""
    if _ID.match(request):
        return request
    return f"b{hashlib.sha256(request.encode()).hexdigest()[:12]}"


RollbackJob = Job[Generation]


class RollbackJobs(Jobs[Generation]):
    """Starts roll-backs and reports their progress; safe to use from several threads."""

    kind, busy = "roll-back", "is being rolled back"

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

        Errors that only appear in old records make the job fail.
        Raises `NotFoundError`, `DefinitionError` or `DataflowBusyError`.
        """
        parse_point(to)
        how: dict[str, Any] = {"drop_later": drop_later, "without": without, "pause": pause}
        roll_back = partial(self._amendments.roll_back, name, to, who=who, why=why, **how)
        return self._begin(name, request, roll_back)

    def recorded(self, name: str, id_: str) -> RollbackJob | None:
        """Return an earlier roll-back, from the record of its generation."""
        for one in self._amendments.rollbacks(name):
            if one.request and id_of(one.request) == id_:
                return self._done(name, id_, one.prepared_ms, one)
        return None


GiveBackJob = Job[GivenBack]


class GiveBackJobs(Jobs[GivenBack]):
    """Starts give-backs and reports their progress; safe to use from several threads."""

    kind, busy = "give-back", "is getting back records that were set aside"

    def start(self, name: str, stage: str, *, who: str, why: str, request: str = "") -> GiveBackJob:
        """Begin to give back the records that a stage set aside; returns at once.

        Arguments: see `Amendments.give_back`.
        Raises `NotFoundError`, `CodeDriftedError` or `DataflowBusyError`.
        """
        if not request or self._find(name, id_of(request)) is None:
            self._amendments.check_give_back(name, stage)
        give_back = partial(self._amendments.give_back, name, stage, who=who, why=why)
        return self._begin(name, request, give_back, stage)

    def start_trial(self, name: str, stage: str) -> GiveBackJob:
        """Begin to try a stage's code on set-aside records; changes nothing, same errors."""
        self._amendments.check_give_back(name, stage)

        def carry_out(*, tell: Tell, request: str) -> GivenBack:
            return self._amendments.try_to_give_back(name, stage, tell=tell)

        return self._begin(name, "", carry_out, stage)

    def recorded(self, name: str, id_: str) -> GiveBackJob | None:
        """Return an earlier job, from the record of its run."""
        for one in self._amendments.corrections(name):
            if one.note.gives_back and one.note.request and id_of(one.note.request) == id_:
                given = GivenBack.recorded(one)
                return self._done(name, id_, one.at_ms, given, one.note.stage)
        return None
