"""Retry policy: counts a stage's failed attempts, and decides when it runs again or stops.

    operating failure    a full disk, an unreachable database, a file system, a lost Spark:
                         tried again for as long as it lasts, after growing pauses
    author's error,      tried `failures_max` times; then the stage stops until an operator
    a worker that died,  resumes it, since it would fail again
    any unexpected error
    a hopeless failure   stops the stage at once, such as a broken invariant
    cancelled            by an operator: the stage stops; by a time limit: the run fails;
                         for a deletion or a roll-back that is then refused: tried again
    gave way             to another dataflow: tried again
    interrupted          by an orderly stop of the service: not counted
    the service died     tried again, at once and then after pauses; after `DEATHS_MAX` deaths in a
                         row the run is assumed to be their cause, and its stage stops

Guaranteed: the error's class alone decides whether a failure is operating, so a restart counts
the same tries (tests/controller/loop/runs/test_retry_policy.py, test_time_limit.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Any

import structlog

from cbp.errors import (
    AuthorCodeError,
    CbpError,
    CodeNotLoadedError,
    DiskFullError,
    ForeignWriterError,
    InvariantError,
    OperatingError,
    ReplacementUnfollowedError,
    RunCancelledError,
    RunGaveWayError,
    TableForeignError,
    TimeLimitError,
)
from cbp.errors.counts import format_times
from cbp.errors.masks import hide_secrets
from cbp.errors.message_limits import shortened
from cbp.model.run.intention import RunStatus
from cbp.model.schedule.backoff import Backoff, Rest
from controller.loop.records.dataflow_part import DataflowPart
from controller.loop.runs.dropped_files import DroppedFiles
from controller.loop.runs.in_flight import RunPhases, Work
from controller.loop.runs.run_counts import RunCounts
from controller.store.base import RunRecord, StageRecord

DEATHS_MAX = 20
"""Deaths of the service in a row during one run after which the run's stage stops."""

DEATHS_AT_ONCE = 12
"""Deaths in a row after which a run is still tried again without a pause."""

INTERRUPTED_CODE = "run_interrupted"
DIED = "died"

_NO_FAULT = {INTERRUPTED_CODE, RunCancelledError.code, RunGaveWayError.code, "lease_lost"}
_NOT_PASSING = (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How failed attempts are repeated.

    Attributes:
        failures_max: Attempts of one run before its stage stops; operating failures do not count.
        delays_seconds: Pause after the first, second... failed attempt; the last value repeats.
        seconds_max: Limit up to which the pause doubles for operating failures.
    """

    failures_max: int = 3
    delays_seconds: tuple[float, ...] = (1.0, 5.0)
    seconds_max: float = 300.0

    @property
    def _backoff(self) -> Backoff:
        """The pauses of operating failures; no other pause is longer."""
        return Backoff(self.delays_seconds, self.seconds_max)

    def retry_at(self, tries: int, now: datetime) -> datetime:
        """Return when to try again after this many counted failures (>= 1)."""
        delay = self.delays_seconds[min(tries, len(self.delays_seconds)) - 1]
        return now + timedelta(seconds=delay)

    def lasting(self, tries: int, now: datetime, drawn: float) -> Rest:
        """Return the pause after this many operating failures in a row (>= 1)."""
        return self._backoff.rest(tries, now, drawn)

    def not_before(self, end: datetime | None, failures: int, now: datetime) -> datetime | None:
        """Return the end of a stored pause; `None` (try at once) if the clock was set back.

        Args:
            failures: Number of failed attempts in a row, including operating failures.
        """
        if end is not None and now < self._backoff.rest_until(failures, end).begin:
            return None
        return end


def operating(error: Exception) -> Exception:
    """Convert an error of the operating system to the library's error; return others unchanged."""
    if not isinstance(error, OSError) or isinstance(error, _NOT_PASSING):
        return error
    wrapped: OperatingError = DiskFullError(str(error.filename or "the files of the service"))
    if not DiskFullError.is_disk_full(error):
        wrapped = OperatingError(f"{type(error).__name__}: {error}", errno=error.errno)
    wrapped.__cause__ = error
    return wrapped


def lasts(error: Exception) -> bool:
    """Return whether an error is an operating failure, which is retried for as long as it lasts."""
    return isinstance(error, OperatingError) and error.retryable and not error.bounded


def counted(tries: Sequence[RunRecord]) -> int:
    """Return the number of failed attempts in a row that were the run's own fault."""
    free = _NO_FAULT | set(_lasting_codes())
    return sum(code_of(run) not in free for run in tries)


def lasted(tries: Sequence[RunRecord]) -> int:
    """Return the number of operating failures in a row, from the newest attempt back."""
    codes = set(_lasting_codes()) - _NO_FAULT
    return sum(1 for _ in takewhile(lambda run: code_of(run) in codes, tries))


def deaths(tries: Sequence[RunRecord]) -> int:
    """Return the number of deaths of the service in a row, from the newest attempt back."""
    return sum(1 for _ in takewhile(_died, tries))


def code_of(run: RunRecord) -> str:
    """Return the code of a failed run's error."""
    return str((run.error or {}).get("error_code", ""))


def _died(run: RunRecord) -> bool:
    return bool(((run.error or {}).get("details") or {}).get(DIED))


def _lasting_codes() -> Iterator[str]:
    classes: list[type[CbpError]] = [OperatingError]
    for kind in classes:
        if issubclass(kind, OperatingError) and kind.retryable and not kind.bounded:
            yield kind.code
        classes.extend(kind.__subclasses__())


INTERRUPTED: Mapping[str, Any] = {
    "error_code": INTERRUPTED_CODE,
    "message": "the service stopped during this run; the epoch runs again",
    "details": {},
}

_REASON_CHARACTERS = 300
_TRIES_SEEN = 100
"""How many failed tries in a row are read: more would change neither a pause nor a decision."""

_log = structlog.get_logger(__name__)


@dataclass(kw_only=True, eq=False)
class Failures(DataflowPart):
    """Settles runs that ended without a result; safe to use from several threads."""

    retry: RetryPolicy
    draw: Callable[[], float]
    run_phases: RunPhases
    run_counts: RunCounts
    dropped_files: DroppedFiles

    def __post_init__(self) -> None:
        self._stopping = False

    def begin(self) -> None:
        """Begin a term: runs cancelled from now on were cancelled by an operator."""
        self._stopping = False

    def stop(self) -> None:
        """From now on count cancelled runs as interrupted, since no operator cancelled them."""
        self._stopping = True

    def settle(self, run: RunRecord, stage: StageRecord, work: Work, error: Exception) -> None:
        """Record a run that failed or was cancelled; stop its stage if a retry is pointless."""
        now = self.clock()
        if work.late and isinstance(error, RunCancelledError):
            error = TimeLimitError(
                f"run {work.run} of {run.stage!r}", work.seconds_max, code=work.code
            )
        if isinstance(error, RunCancelledError) and self._stopping:
            self.interrupt(run)
            return
        if isinstance(error, RunCancelledError) and work.gives_way_to:
            self._settle_gave_way(run, work, now)
            return
        if isinstance(error, RunCancelledError) and work.runs_again:
            self._fail(run, error.as_dict(), now, figures=self.run_phases.figures(run.id))
            _log.info("run.cancelled", **_fields(run))
            return
        error, failed = operating(error), self._failed_tries(stage)
        described = self._with_origin(run, error, describe_error(error))
        described = _with_newer_files(
            described, self.catalog.newer_files_of_run(run.dataflow, run.stage)
        )
        if lasts(error) and not isinstance(error, RunCancelledError):
            tries, pause = 1 + lasted(failed), ""
            retry_at: datetime | None = self.retry.lasting(tries, now, self.draw()).end
        else:
            tries = 1 + counted(failed)
            pause = self._pause_reason(run, error, described["message"], tries)
            retry_at = None if pause else self.retry.retry_at(tries, now)
        _log.warning("run.failed", tries=tries, paused=bool(pause), error=described, exc_info=error)
        phases = self.run_phases.figures(run.id)
        self._fail(run, described, now, retry_at, pause=pause, figures=phases)

    def _fail(
        self,
        run: RunRecord,
        error: Mapping[str, Any],
        at: datetime,
        retry_at: datetime | None = None,
        **more: Any,
    ) -> None:
        self.store.fail(run.id, error, finished_at=at, retry_at=retry_at, **more)
        self.run_counts.fail(run.dataflow, error["error_code"])

    def _with_origin(
        self, run: RunRecord, error: Exception, described: dict[str, Any]
    ) -> dict[str, Any]:
        """Add the dropped file, and the line, of the record on which author's code failed."""
        words = ""
        if isinstance(error, AuthorCodeError):
            with suppress(CbpError):  # the dataflow is being deleted, or changed
                words = self.dropped_files.words(run, error.details)
        return _with_words(described, words, origin=words) if words else described

    def interrupt(self, run: RunRecord, why: str = "") -> None:
        """Settle a run without a result, for which neither its code nor the service is to blame.

        Args:
            why: The message of the run; `""` if the service stops.
        """
        self._fail(run, {**INTERRUPTED, "message": why or INTERRUPTED["message"]}, self.clock())
        _log.info("run.interrupted", **_fields(run))

    def bury(self, run: RunRecord) -> None:
        """Settle a run during which the service died; after repeated deaths its stage stops."""
        stages = self.store.stages(run.dataflow)
        stage = next((stage for stage in stages if stage.stage == run.stage), None)
        died = 1 + (deaths(self._failed_tries(stage)) if stage is not None else 0)
        now, pause = self.clock(), ""
        if died >= DEATHS_MAX:
            pause = f"the service died {format_times(died, 'in a row')} while epoch {run.epoch} ran"
        retry_at = None
        if died > DEATHS_AT_ONCE and not pause:
            retry_at = self.retry.lasting(died - DEATHS_AT_ONCE, now, self.draw()).end
        reason = {**INTERRUPTED, "details": {DIED: True}}
        self._fail(run, reason, now, retry_at, pause=pause)
        _log.info("run.interrupted", **_fields(run), died=died)

    def not_before(self, stage: StageRecord) -> datetime | None:
        """Return when a stage may run again after a failure; `None` means at once."""
        return self.retry.not_before(stage.retry_at, stage.failures, self.clock())

    def because(self, stage: StageRecord) -> str:
        """Return why the last attempt of a stage's next run failed; `""` if it did not."""
        failed = self._failed_tries(stage)
        error = (failed[0].error if failed else None) or {}
        return shortened(str(error.get("message", "")).partition("\n")[0], _REASON_CHARACTERS)

    def gave_way(self, stage: StageRecord) -> int:
        """Return how often a stage's next epoch gave way since the stage was last resumed."""
        return sum(
            run.epoch == stage.epoch and code_of(run) == RunGaveWayError.code
            for run in self._failed_tries(stage)
        )

    def _settle_gave_way(self, run: RunRecord, work: Work, now: datetime) -> None:
        """Settle a run that gave way; its epoch may run again at once, with fewer slots."""
        seconds = (now - work.since).total_seconds()
        error = RunGaveWayError(
            work.run, stage=run.stage, seconds=seconds, to=work.gives_way_to
        ).as_dict()
        _log.warning("run.gave_way", error=error)
        self._fail(run, error, now, now, figures=self.run_phases.figures(run.id))

    def _pause_reason(self, run: RunRecord, error: Exception, message: str, tries: int) -> str:
        if isinstance(error, RunCancelledError):
            return f"run {run.id} was cancelled; `cbp resume` runs epoch {run.epoch} again"
        # Not retried: a run that hangs would hang again, a broken invariant would stay broken.
        hopeless = (
            InvariantError
            | ForeignWriterError
            | TableForeignError
            | TimeLimitError
            | CodeNotLoadedError
            | ReplacementUnfollowedError
        )
        if isinstance(error, hopeless):
            return f"epoch {run.epoch} failed: {message}"
        if tries >= self.retry.failures_max:
            return f"epoch {run.epoch} failed {format_times(tries)}: {message}"
        return ""

    def _failed_tries(self, stage: StageRecord) -> Sequence[RunRecord]:
        if stage.failures == 0:
            return ()
        page = self.store.runs(
            stage.dataflow,
            stage=stage.stage,
            status=RunStatus.FAILED,
            limit=min(stage.failures, _TRIES_SEEN),
        )
        return page.items


def _fields(run: RunRecord) -> dict[str, Any]:
    return {"dataflow": run.dataflow, "stage": run.stage, "epoch": run.epoch, "run": run.id}


def _with_newer_files(described: dict[str, Any], files: Sequence[str]) -> dict[str, Any]:
    """Add that the code on disk has changed since it was loaded, and that a retry ignores it."""
    if not files:
        return described
    verb = "has" if len(files) == 1 else "have"
    words = (
        f"{', '.join(files)} {verb} changed since the code was loaded, but a retry still runs the "
        "loaded code: register the document again to run the new code"
    )
    return _with_words(described, words, newer_files=list(files))


def _with_words(described: dict[str, Any], words: str, **more: Any) -> dict[str, Any]:
    details = {**described["details"], **more}
    return {**described, "message": f"{described['message']} ({words})", "details": details}


def describe_error(error: Exception) -> dict[str, Any]:
    """Return an error in the form that a run stores."""
    if isinstance(error, CbpError):
        return error.as_dict()
    message = hide_secrets(f"{type(error).__name__}: {error}")
    return {"error_code": "unexpected", "message": message, "details": {}}
