"""Back-off: the pause before a failed operation is retried.

    the pauses in `delays` first (at least one), then twice the last one, and so on, up to `most`

A part of each doubled pause is random, so that many operations that failed together are not all
retried together. The caller draws the random number; this module is pure.
`controller.loop.runs.retry_policy` applies it to failed stages.

A `Rest` is one pause, from its begin to its end. At any other time, even before its begin, the
pause is over. So if a clock is set back, even across a restart, nothing is delayed for longer than
its pause.

Source: "Exponential Backoff And Jitter", AWS Architecture Blog (2015), "equal jitter".
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from cbp.errors.counts import format_times

_DOUBLINGS_MAX = 64


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that grow up to a limit, in seconds; see the module header."""

    delays: tuple[float, ...] = (1.0,)
    most: float = 300.0

    def seconds(self, failures: int, drawn: float = 1.0) -> float:
        """Return how many seconds to wait after failures in a row (>= 1).

        Half of a doubled pause is multiplied by `drawn`, a random number from 0 to 1.
        """
        if failures <= len(self.delays):
            return self.delays[max(failures, 1) - 1]
        doublings = min(failures - len(self.delays), _DOUBLINGS_MAX)
        pause = min(max(self.delays[-1], 0.001) * 2.0**doublings, max(self.most, self.delays[-1]))
        return pause * (0.5 + 0.5 * drawn)

    def rest(self, failures: int, now: datetime, drawn: float = 1.0) -> Rest:
        """Return the pause that begins now; for the other arguments see `seconds`."""
        return Rest(now, now + timedelta(seconds=self.seconds(failures, drawn)))

    def rest_until(self, failures: int, end: datetime) -> Rest:
        """Return the longest pause with this end that can follow at most these failures."""
        most = max((self.seconds(failures), *self.delays[:failures]))
        return Rest(end - timedelta(seconds=most), end)


@dataclass(frozen=True, slots=True)
class Rest:
    """A pause from `begin` to `end`."""

    begin: datetime
    end: datetime

    def words(self, tries: int) -> str:
        """Return how often an operation failed in a row, and when it is retried."""
        count = format_times(tries, "in a row")
        return f"{count}, next attempt at {self.end:%Y-%m-%d %H:%M:%S} UTC"

    def lasts(self, now: datetime) -> bool:
        """Return whether the pause is still going on."""
        return self.begin <= now < self.end
