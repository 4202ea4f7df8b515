"""Retries: how long a failed run waits, and when it is not tried again.

    operating failure    a full disk, an unreachable database, a file system, a lost Spark:
                         tried again for as long as it lasts, after growing pauses
    author's error,      tried `failures_max` times; then the stage stops until an operator
    a worker that died,  resumes it, since it would fail again
    any unexpected error
    hopeless             stops at once

A run during which the whole service died is tried again at once; after several such deaths it is
tried after pauses. After `DEATHS_MAX` deaths in a row the run itself is taken for the cause, and
its stage stops. An orderly stop of the service and a cancelled run are not failures and are not
counted.

Guaranteed: the error's class alone decides whether a failure is operating, so a restart counts
the same tries (tests/controller/loop/runs/test_failures.py).
Absent on purpose: clocks and randomness; they are passed in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import takewhile

from cbp.errors import (
    CbpError,
    DiskFullError,
    OperatingError,
    RunCancelledError,
    RunGaveWayError,
)
from cbp.model.schedule.backoff import Backoff, Rest
from controller.store.base import RunRecord

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
    """How failed tries are repeated.

    Attributes:
        failures_max: Tries of one run before its stage stops; operating failures do not count.
        delays_seconds: Pause after the first, second... failed try; the last one repeats.
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
        """Return the pause after this many operating failures in a row (>= 1).

        Args:
            tries: The failures in a row.
            now: Aware, in UTC.
            drawn: Random number from 0 to 1; it determines a part of long pauses.
        """
        return self._backoff.rest(tries, now, drawn)

    def not_before(self, end: datetime | None, failures: int, now: datetime) -> datetime | None:
        """Return the end of a stored pause; `None` (try at once) if the clock was set back.

        Args:
            end: The stored end, if there is a pause.
            failures: All failed tries in a row, whether they count or not.
            now: Aware, in UTC.
        """
        if end is not None and now < self._backoff.rest_until(failures, end).begin:
            return None
        return end


def operating(error: Exception) -> Exception:
    """Convert an error of the operating system to the library's error; return others unchanged."""
    if not isinstance(error, OSError) or isinstance(error, _NOT_PASSING):
        return error
    wrapped: OperatingError = DiskFullError(str(error.filename or "a file"))
    if not DiskFullError.is_disk_full(error):
        wrapped = OperatingError(f"{type(error).__name__}: {error}", errno=error.errno)
    wrapped.__cause__ = error
    return wrapped


def lasts(error: Exception) -> bool:
    """Return whether an error is an operating failure, which is retried for as long as it lasts."""
    return isinstance(error, OperatingError) and error.retryable and not error.bounded


def counted(tries: Sequence[RunRecord]) -> int:
    """Return how many failed tries in a row were the run's own fault."""
    free = _NO_FAULT | set(_lasting_codes())
    return sum(code_of(run) not in free for run in tries)


def lasted(tries: Sequence[RunRecord]) -> int:
    """Return how many of the newest failed tries, newest first, were operating failures."""
    codes = set(_lasting_codes()) - _NO_FAULT
    return sum(1 for _ in takewhile(lambda run: code_of(run) in codes, tries))


def deaths(tries: Sequence[RunRecord]) -> int:
    """Return during how many of the newest failed tries, newest first, the service died."""
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
