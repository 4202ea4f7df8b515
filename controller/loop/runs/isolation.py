"""Isolation: a failure in one dataflow does not affect the others.

    attempt(dataflow, doing, work) --> succeeds            its trouble, if it had one, is over
                                  '--> raises anything     noted, logged with its stack, rests
                                  '--> rests               not tried before its time

An error that the loop expects stops a stage, or is retried by the code that expects it. This
module is the last resort for every other error: a bug of this service, a damaged file or record,
a document that an earlier version accepted. The dataflow rests for a time that grows up to
`MOST_SECONDS`; the other dataflows continue. Troubles are shown at the dataflow's stages, by
`ready`, in the metrics and in the log.

Guaranteed: no `Exception` leaves `attempt`; a `LogConflictError` is passed to `on_conflict`
(tests/controller/loop/runs/test_isolation.py).
Not caught: a `BaseException` that is not an `Exception`; it ends the process.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

import structlog

from cbp.errors import CbpError, DataflowFailedError, LogConflictError, NotFoundError
from cbp.model.schedule.backoff import Backoff, Rest

MOST_SECONDS = 300.0

RECOVERED = "recovered"
"""The step that comes before any other; while it fails, nothing else is done to the dataflow."""

UNRECOVERED = "the dataflow could not be recovered"

_T = TypeVar("_T")
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Trouble:
    """A lasting failure of one step of a dataflow.

    Attributes:
        doing: The step that failed, as a participle: `recovered`, `published`...
        error: The newest failure; an error that is not a `CbpError` is wrapped.
    """

    dataflow: str
    doing: str
    error: CbpError
    since: datetime
    tries: int
    rest: Rest

    @property
    def retry_at(self) -> datetime:
        """The earliest time of the next attempt."""
        return self.rest.end

    @property
    def words(self) -> str:
        """The trouble in words, for an operator."""
        return f"could not be {self.doing} ({self.rest.words(self.tries)}): {self.error.message}"


class Isolation:
    """Keeps the troubles of each dataflow; safe to use from several threads."""

    def __init__(
        self,
        *,
        clock: Callable[[], datetime],
        on_conflict: Callable[[str], None],
        draw: Callable[[], float] = lambda: 1.0,
    ) -> None:
        self._clock, self._on_conflict, self._draw = clock, on_conflict, draw
        self._backoff = Backoff((1.0,), MOST_SECONDS)
        self._lock = threading.Lock()
        self._troubles: dict[tuple[str, str], Trouble] = {}

    def attempt(self, dataflow: str, doing: str, work: Callable[[], _T]) -> _T | None:
        """Do a step of a dataflow; return `None` if it fails, or if it rests after a failure."""
        if self.resting(dataflow, doing) is not None:
            return None
        try:
            done = work()
        except LogConflictError as error:
            self._on_conflict(error.message)
            return None
        except Exception as error:  # the last resort; see the header
            self._note(dataflow, doing, error)
            return None
        self.settle(dataflow, doing)
        return done

    def together(
        self, dataflows: Iterable[str], doing: str, work: Callable[[Collection[str]], _T]
    ) -> _T:
        """Do a step for several dataflows in one call; after a failure, leave the failing ones out.

        Args:
            work: Does the step for the given names; called with single names to find failing
                dataflows.
        """
        awake = [name for name in dict.fromkeys(dataflows) if not self.resting(name, doing)]
        try:
            done = work(awake)
        except Exception:  # which dataflow failed is found and noted below
            return work([name for name in awake if self._alone(name, doing, work)])
        for name in awake:
            self.settle(name, doing)
        return done

    def _alone(self, name: str, doing: str, work: Callable[[Collection[str]], object]) -> bool:
        return bool(self.attempt(name, doing, lambda: (work([name]),)))

    def resting(self, dataflow: str, doing: str) -> Trouble | None:
        """Return the trouble with this step whose pause is not over, if any."""
        with self._lock:
            trouble = self._troubles.get((dataflow, doing))
        return trouble if trouble is not None and trouble.rest.lasts(self._clock()) else None

    def troubles(self, dataflow: str | None = None) -> list[Trouble]:
        """Return the troubles of one dataflow or all, the oldest first."""
        with self._lock:
            troubles = [t for t in self._troubles.values() if dataflow in (None, t.dataflow)]
        return sorted(
            troubles, key=lambda trouble: (trouble.since, trouble.dataflow, trouble.doing)
        )

    def settle(self, dataflow: str, doing: str) -> None:
        """Note that a step succeeded; a trouble with it is over."""
        with self._lock:
            over = self._troubles.pop((dataflow, doing), None)
        if over is not None:
            _log.info("dataflow.works_again", dataflow=dataflow, doing=doing, tries=over.tries)

    def forget(self, dataflow: str) -> None:
        """Forget the troubles of a dataflow, because it was deleted, or to retry it at once."""
        with self._lock:
            for key in [key for key in self._troubles if key[0] == dataflow]:
                del self._troubles[key]

    def begin(self) -> None:
        """Forget all troubles, since another term begins."""
        with self._lock:
            self._troubles.clear()

    def _note(self, dataflow: str, doing: str, error: Exception) -> None:
        if isinstance(error, NotFoundError) and error.details.get("kind") == "dataflow":
            self.forget(dataflow)  # deleted meanwhile
            return
        now = self._clock()
        with self._lock:
            known = self._troubles.get((dataflow, doing))
            tries = 1 if known is None else known.tries + 1
            rest = self._backoff.rest(tries, now, self._draw())
            since = now if known is None else known.since
            wrapped = _as_cbp_error(dataflow, doing, error)
            trouble = Trouble(dataflow, doing, wrapped, since, tries, rest)
            self._troubles[dataflow, doing] = trouble
        _log.error(
            "dataflow.failed",
            dataflow=dataflow,
            doing=doing,
            tries=tries,
            retry_at=trouble.retry_at.isoformat(),
            error=wrapped.as_dict(),
            exc_info=error,
        )


def _as_cbp_error(dataflow: str, doing: str, error: Exception) -> CbpError:
    if isinstance(error, CbpError):
        return error
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    cause = f"{type(error).__name__}: {error}"
    return DataflowFailedError(dataflow, doing=doing, cause=cause, place=place)
