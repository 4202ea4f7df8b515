"""Failed runs: counts a stage's failed tries, and decides when it runs again or stops.

`retry` holds the rules; this module applies them to runs and records the outcome in the store. An
operator's cancel stops the stage, a time limit fails the run, a run that gives way to another
dataflow is tried again, and a run that the service ends is interrupted.

Invariants: tests/controller/loop/runs/test_failures.py, test_time_limit.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import structlog

from cbp.errors import (
    AuthorCodeError,
    CbpError,
    CodeNotLoadedError,
    ForeignWriterError,
    InvariantError,
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
from controller.loop.counts.run_counts import RunCounts
from controller.loop.runs.dropped_files import DroppedFiles
from controller.loop.runs.in_flight import RunPhases, Work
from controller.loop.runs.retry import (
    DEATHS_AT_ONCE,
    DEATHS_MAX,
    DIED,
    INTERRUPTED_CODE,
    RetryPolicy,
    code_of,
    counted,
    deaths,
    lasted,
    lasts,
    operating,
)
from controller.store.base import RunRecord, StageRecord, Store

INTERRUPTED: Mapping[str, Any] = {
    "error_code": INTERRUPTED_CODE,
    "message": "the service stopped while this run was under way; it runs again",
    "details": {},
}

_REASON_CHARACTERS = 300
_TRIES_SEEN = 100
"""How many failed tries in a row are read: more would change neither a pause nor a decision."""

_log = structlog.get_logger(__name__)


class Failures:
    """Settles runs that ended without a result; safe to use from several threads.

    Args:
        draw: Returns a random number from 0 to 1 that shortens pauses.
        newer_files: Returns the files of a run's code that have changed on disk since they were
            loaded.
    """

    def __init__(
        self,
        *,
        store: Store,
        clock: Callable[[], datetime],
        retry: RetryPolicy,
        draw: Callable[[], float],
        run_phases: RunPhases,
        run_counts: RunCounts,
        newer_files: Callable[[RunRecord], Sequence[str]] = lambda _: (),
        dropped_files: DroppedFiles,
    ) -> None:
        self._store, self._clock, self._retry, self._draw = store, clock, retry, draw
        self._run_phases, self._counts = run_phases, run_counts
        self._newer_files, self._dropped_files = newer_files, dropped_files
        self._stopping = False

    def begin(self) -> None:
        """Begin a term: from now on an operator has cancelled what is cancelled."""
        self._stopping = False

    def stop(self) -> None:
        """From now on count cancelled runs as interrupted, since no operator cancelled them."""
        self._stopping = True

    def settle(self, run: RunRecord, stage: StageRecord, work: Work, error: Exception) -> None:
        """Record a run that failed or was cancelled; pause its stage if another try is hopeless."""
        now = self._clock()
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
        error, failed = operating(error), self._failed_tries(stage)
        described = self._with_origin(run, error, describe_error(error))
        described = _with_newer_files(described, self._newer_files(run))
        if lasts(error) and not isinstance(error, RunCancelledError):
            tries, pause = 1 + lasted(failed), ""
            retry_at: datetime | None = self._retry.lasting(tries, now, self._draw()).end
        else:
            tries = 1 + counted(failed)
            pause = self._pause_reason(run, error, described["message"], tries)
            retry_at = None if pause else self._retry.retry_at(tries, now)
        _log.warning("run.failed", tries=tries, paused=bool(pause), error=described, exc_info=error)
        phases = self._run_phases.figures(run.id)
        self._store.fail(
            run.id, described, finished_at=now, retry_at=retry_at, pause=pause, figures=phases
        )
        self._counts.fail(run.dataflow, described["error_code"])

    def _with_origin(
        self, run: RunRecord, error: Exception, described: dict[str, Any]
    ) -> dict[str, Any]:
        """Say in which dropped file the record is on which author's code failed."""
        if not isinstance(error, AuthorCodeError):
            return described
        try:
            words = self._dropped_files.words(run, error.details)
        except CbpError:  # the dataflow is being deleted, or changed
            words = ""
        message = f"{described['message']} ({words})" if words else described["message"]
        return {**described, "message": message}

    def interrupt(self, run: RunRecord) -> None:
        """Settle a run that ended without a result because of a request, such as a stop."""
        self._store.fail(run.id, INTERRUPTED, finished_at=self._clock(), retry_at=None)
        self._counts.fail(run.dataflow, INTERRUPTED_CODE)
        _log.info("run.interrupted", **_fields(run))

    def bury(self, run: RunRecord) -> None:
        """Settle a run during which the service died; after repeated deaths its stage stops."""
        stages = self._store.stages(run.dataflow)
        stage = next((stage for stage in stages if stage.stage == run.stage), None)
        died = 1 + (deaths(self._failed_tries(stage)) if stage is not None else 0)
        now, pause = self._clock(), ""
        if died >= DEATHS_MAX:
            pause = f"the service died {format_times(died, 'in a row')} under epoch {run.epoch}"
        retry_at = None
        if died > DEATHS_AT_ONCE and not pause:
            retry_at = self._retry.lasting(died - DEATHS_AT_ONCE, now, self._draw()).end
        reason = {**INTERRUPTED, "details": {DIED: True}}
        self._store.fail(run.id, reason, finished_at=now, retry_at=retry_at, pause=pause)
        self._counts.fail(run.dataflow, INTERRUPTED_CODE)
        _log.info("run.interrupted", **_fields(run), died=died)

    def not_before(self, stage: StageRecord) -> datetime | None:
        """Return when a stage may run again after a failure; `None` means at once."""
        return self._retry.not_before(stage.retry_at, stage.failures, self._clock())

    def because(self, stage: StageRecord) -> str:
        """Return why the last try of a stage's next run failed; `""` if none did."""
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
        """Settle a run that gave way; its epoch may run again at once, in the narrow place."""
        seconds = (now - work.since).total_seconds()
        error = RunGaveWayError(
            work.run, stage=run.stage, seconds=seconds, to=work.gives_way_to
        ).as_dict()
        _log.warning("run.gave_way", error=error)
        phases = self._run_phases.figures(run.id)
        self._store.fail(run.id, error, finished_at=now, retry_at=now, figures=phases)
        self._counts.fail(run.dataflow, RunGaveWayError.code)

    def _pause_reason(self, run: RunRecord, error: Exception, message: str, tries: int) -> str:
        if isinstance(error, RunCancelledError):
            return f"run {run.id} was cancelled; resume to run epoch {run.epoch} again"
        # A run that hangs would hang again; a broken invariant would be broken again.
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
        if tries >= self._retry.failures_max:
            return f"epoch {run.epoch} failed {format_times(tries)}: {message}"
        return ""

    def _failed_tries(self, stage: StageRecord) -> Sequence[RunRecord]:
        """Return the failed tries in a row of a stage, newest first."""
        if stage.failures == 0:
            return ()
        page = self._store.runs(
            stage.dataflow,
            stage=stage.stage,
            status=RunStatus.FAILED,
            limit=min(stage.failures, _TRIES_SEEN),
        )
        return page.items


def _fields(run: RunRecord) -> dict[str, Any]:
    """Return what every log entry about a run has."""
    return {"dataflow": run.dataflow, "stage": run.stage, "epoch": run.epoch, "run": run.id}


def _with_newer_files(described: dict[str, Any], files: Sequence[str]) -> dict[str, Any]:
    """Say that the code which failed is not what is on disk: a retry would run it again."""
    if not files:
        return described
    verb = "has" if len(files) == 1 else "have"
    message = (
        f"{described['message']} ({', '.join(files)} {verb} changed since the code was loaded; a "
        "retry runs the loaded code: register the document again to run what is on disk)"
    )
    details = {**described["details"], "newer_files": list(files)}
    return {**described, "message": message, "details": details}


def describe_error(error: Exception) -> dict[str, Any]:
    """Return an error in the form that a run stores."""
    if isinstance(error, CbpError):
        return error.as_dict()
    message = hide_secrets(f"{type(error).__name__}: {error}")
    return {"error_code": "unexpected", "message": message, "details": {}}
