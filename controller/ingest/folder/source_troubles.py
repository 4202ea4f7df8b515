"""Failures of sources: what stopped the pass of one source, while the others continue.

    works --failed--> resting until `retry_at` --tried again--> works, or failed once more

After each of the first two failures the next try follows at once. Every further failure is followed
by a pause, which doubles up to `MOST_SECONDS`. A device that is full or away is shown and tried
again in the same way as an unexpected error of ours. The source's files stay where they are
meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import structlog

from cbp.errors import CbpError, OperatingError
from cbp.model.schedule.backoff import Backoff, Rest
from controller.ingest.errors import SourceFailedError
from controller.ingest.rejection import place_of

__all__ = ["MOST_SECONDS", "SourceTrouble", "SourceTroubles"]

MOST_SECONDS = 30.0
_BACKOFF = Backoff((0.0, 0.0, 1.0), MOST_SECONDS)

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SourceTrouble:
    """Why nothing of a source is taken in for now.

    Attributes:
        error: The newest failure.
        since: Time of the first failure in a row.
        tries: Number of failures in a row.
        rest: The pause from the newest failure to the next try.
    """

    error: OperatingError
    since: datetime
    tries: int
    rest: Rest

    @property
    def retry_at(self) -> datetime:
        """Earliest time of the next try."""
        return self.rest.end

    @property
    def words(self) -> str:
        """Description for an operator."""
        failed = self.rest.words(self.tries)
        return f"nothing is taken in (failed {failed}): {self.error.message}"


class SourceTroubles:
    """Remembers the troubles of sources; safe to use from several threads.

    Args:
        clock: Returns an aware time in UTC.
    """

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._troubles: dict[Path, SourceTrouble] = {}

    def of(self, root: Path) -> SourceTrouble | None:
        """Return the trouble of a source, by the source's folder."""
        with self._lock:
            return self._troubles.get(root)

    def below(self, folder: Path) -> dict[str, SourceTrouble]:
        """Return source to trouble, for the sources whose folders are below this one."""
        with self._lock:
            troubles = {r.name: t for r, t in self._troubles.items() if r.parent == folder}
        return dict(sorted(troubles.items()))

    def resting(self, root: Path) -> SourceTrouble | None:
        """Return the trouble whose pause is not over; `None` if the source may be tried."""
        trouble = self.of(root)
        return trouble if trouble is not None and trouble.rest.lasts(self._clock()) else None

    def failed(self, root: Path, source: str, error: Exception) -> OperatingError:
        """Record a failure of a source; return the error to report."""
        wrapped = _as_operating_error(source, error)
        now = self._clock()
        with self._lock:
            known = self._troubles.get(root)
            tries = 1 if known is None else known.tries + 1
            since = now if known is None else known.since
            self._troubles[root] = SourceTrouble(wrapped, since, tries, _BACKOFF.rest(tries, now))
        if known is None or known.error.code != wrapped.code:
            # The stack is added only for errors that are not the library's own.
            cause = None if isinstance(error, CbpError) else error
            _log.error("source.failed", folder=str(root), error=wrapped.as_dict(), exc_info=cause)
        return wrapped

    def works(self, root: Path) -> None:
        """Record that a source works; its trouble is over."""
        with self._lock:
            over = self._troubles.pop(root, None)
        if over is not None:
            _log.info("source.works_again", folder=str(root), tries=over.tries)


def _as_operating_error(source: str, error: Exception) -> OperatingError:
    if isinstance(error, OperatingError):
        return error
    said = error.message if isinstance(error, CbpError) else str(error)
    cause = f"{type(error).__name__}: {said}" if said else type(error).__name__
    return SourceFailedError(source, cause=cause, place=place_of(error))
