"""Places for work: who gets the next one, so that what hangs never stalls other dataflows.

So many runs go on at a time, over all dataflows. Three rules keep what is slow, or will never
end, from holding all places:

- *The last place is somebody else's.* A dataflow that holds all places but one gets the last
  one only while no other dataflow waits.
- *Who is slow holds no place.* What goes on for longer than `slow_seconds` counts no more,
  `slow_most` at a time; so the surplus is bounded.
- *A dataflow has as many runs as there are places*, the slow ones included: what hangs
  uses up its own dataflow's share, not the surplus of all.

So a dataflow that can run waits for a place for `slow_seconds` at most per dataflow that
hangs; once `slow_most` runs hang, for their time limit.

Why nobody starves: the rules only choose among those that wait, oldest first. Let X be the
oldest that waits, of dataflow D. X is passed over while D holds all places but one, and then one
of D's runs ends, or becomes slow: D holds fewer, and X is the next. Only a dataflow whose own
runs all hang waits for their time limit (tests/cbp/model/test_places.py, test_simulation.py).

Source: ours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

__all__ = ["Places", "Taken"]


@dataclass(frozen=True, slots=True)
class Taken:
    """Work of a stage that goes on.

    Attributes:
        since: When it began, aware and in UTC; `None`: just now.
    """

    dataflow: str
    stage: str
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Places:
    """How much goes on at a time.

    Attributes:
        most: Places, over all dataflows (>= 1), and runs of one dataflow.
        slow_seconds: What goes on for longer holds no place; 0: it always does.
        slow_most: Of those, at a time; more of them hold places.
    """

    most: int
    slow_seconds: float = 120.0
    slow_most: int = 8

    def next(self, taken: Collection[Taken], waiting: Sequence[str], now: datetime) -> int | None:
        """Choose who gets a place now.

        Args:
            taken: All work that goes on.
            waiting: Dataflows of those that could begin, whoever waited longest first.
            now: Aware, in UTC.

        Returns:
            A position in `waiting`; `None`: nobody gets one.
        """
        slow = self.slow(taken, now)
        holding = Counter(work.dataflow for work in taken if work not in slow)
        if holding.total() >= self.most:
            return None
        found = [n for n, name in enumerate(waiting) if not self.used_up(name, taken)]
        modest = [n for n in found if holding[waiting[n]] < self.most - 1]
        return next(iter(modest or found), None)

    def slow(self, taken: Collection[Taken], now: datetime) -> Collection[Taken]:
        """Return the work that holds no place any more, those first that began first."""
        if not self.slow_seconds:
            return ()
        begun = now - timedelta(seconds=self.slow_seconds)
        late = [work for work in taken if work.since is not None and work.since <= begun]
        return sorted(late, key=lambda work: (work.since or now, work.dataflow, work.stage))[
            : self.slow_most
        ]

    def used_up(self, dataflow: str, taken: Collection[Taken]) -> bool:
        """Tell whether a dataflow has all the runs that it may have, the slow ones included."""
        return sum(work.dataflow == dataflow for work in taken) >= self.most
