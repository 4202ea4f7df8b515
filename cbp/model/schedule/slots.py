"""Run slots ("places"): which dataflow gets the next one, and which run gives way to another.

The number of runs at a time is limited, over all dataflows: each run holds a *place*. Nobody can
tell whether a run hangs or only has much to do. Three rules keep slow runs from holding all places:

- *One place is left for another dataflow.* A dataflow that holds all places but one gets the last
  place only if no other dataflow waits.
- *A slow run holds no place.* A run that takes longer than `slow_seconds` no longer counts, for at
  most `slow_most` runs at a time. So the surplus of runs is bounded.
- *A dataflow has at most as many runs as there are places*, slow runs included. So runs that hang
  use up the share of their own dataflow, not the surplus.

Runs share more than places: their tasks occupy the slots of the engine, which cannot take a slot
back from a task that hangs. So there is a fourth rule, the feedback queue of time-sharing systems:

- *A late run gives way to a starved run.* A run is late once it has taken longer than
  `slow_seconds`. It gives way if a run of another dataflow has work but no slot, or if a run waits
  because more than `slow_most` runs are late. The late run is cancelled, which loses only its
  time, and its epoch runs again in the *narrow place*. There is one narrow place; a run in it takes
  at most half of the slots, and holds no other place. There it is late after twice the time, then
  four times, and so on. It then gives way to a run that gave way before and waits for the narrow
  place.

So for each epoch of others that hangs, a dataflow that can run waits at most `slow_seconds` (plus
`STARVED_SECONDS`), and only once, since the narrow place leaves slots to others. The turns of each
run that gave way double. So a run that needs t seconds there ends after turns of less than 3 t of
its own, even if the other runs never end. An engine with a single slot has no half to leave: there
the runs take turns, and the turns of slow runs get longer.

Why no run starves: the rules only choose among the runs that wait, oldest first. Let X be the
oldest waiting run, of dataflow D. X is passed over only while D holds all places but one. Then one
of D's runs ends or becomes slow, D holds fewer places, and X is next. A dataflow waits for a time
limit only if all of its own runs hang (tests/cbp/model/schedule/test_slots.py,
tests/cbp/model/test_simulation.py).

Source: ours; the fourth rule: Corbato et al., "An Experimental Time-Sharing System" (1962).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

__all__ = ["STARVED_SECONDS", "ActiveRun", "Places"]

STARVED_SECONDS = 5.0
"""How long a run must have work but no slot before another run gives way.

A shorter wait is normal, since slots change hands.
"""

_TURNS_MAX = 20
"""Number of turns after which they stop doubling; by then a turn exceeds any time limit."""


@dataclass(frozen=True, slots=True)
class ActiveRun:
    """A run that is under way.

    Attributes:
        since: When it began, aware and in UTC; `None`: just now.
        run: Its id.
        gave_way: How often runs of its epoch gave way; from 1 on it is in the narrow place.
        starved: Whether it has had work but no slot of the engine for `STARVED_SECONDS`.
        starved_at: When it was last seen with work but no slot; `None`: never. Its turn counts
            from then, since a run without slots has none to give up.
        ending: Whether it was asked to end.
        recorded: Whether its record is put and only tables and store must follow. Such a run
            never gives way.
    """

    dataflow: str
    stage: str
    since: datetime | None = None
    run: str = ""
    gave_way: int = 0
    starved: bool = False
    starved_at: datetime | None = None
    ending: bool = False
    recorded: bool = False


@dataclass(frozen=True, slots=True)
class Places:
    """The limits on runs at a time.

    Attributes:
        most: Number of places over all dataflows (>= 1), and maximum number of runs of one
            dataflow.
        slow_seconds: Seconds after which a run holds no place; 0: runs always hold their place
            and never give way.
        slow_most: Maximum number of slow runs without a place; further slow runs hold places.
    """

    most: int
    slow_seconds: float = 120.0
    slow_most: int = 8

    def next(
        self, taken: Collection[ActiveRun], waiting: Sequence[str], now: datetime
    ) -> int | None:
        """Choose which run gets a place now.

        Args:
            taken: All runs under way.
            waiting: Dataflows of the runs that could start, longest waiting first.
            now: Aware, in UTC.

        Returns:
            A position in `waiting`; `None` if no run gets a place.
        """
        slow = self.slow(taken, now)
        holding = Counter(w.dataflow for w in taken if not w.gave_way and w not in slow)
        if holding.total() >= self.most:
            return None
        free = [n for n, name in enumerate(waiting) if not self.used_up(name, taken)]
        modest = [n for n in free if holding[waiting[n]] < self.most - 1]
        return next(iter(modest or free), None)

    def next_narrow(self, taken: Collection[ActiveRun], waiting: Sequence[str]) -> int | None:
        """Choose which run gets the narrow place now.

        Args:
            taken: All runs under way.
            waiting: Dataflows of the runs that gave way and could start, first to give way first.

        Returns:
            A position in `waiting`; `None` if no run gets it.
        """
        if any(work.gave_way for work in taken):
            return None
        return next((n for n, name in enumerate(waiting) if not self.used_up(name, taken)), None)

    def share(self, slots: int) -> int:
        """Return the maximum number of slots for a run in the narrow place (>= 1)."""
        return max(1, slots // 2)

    def gives_way(
        self,
        taken: Collection[ActiveRun],
        waiting: Sequence[str],
        narrow: Sequence[str],
        now: datetime,
    ) -> tuple[ActiveRun, str] | None:
        """Choose the run that gives way now: one at a time, the longest running first.

        Args:
            taken: All runs under way.
            waiting: Dataflows of the runs that could start and got no place.
            narrow: Dataflows of the runs that could start and did not get the narrow place.
            now: Aware, in UTC.

        Returns:
            The run, and the dataflow to which it gives way; `None` if no run has to.
        """
        if any(work.ending for work in taken):
            return None  # the slots that it frees may be enough
        late = [work for work in self._late(taken, now) if not work.starved]
        ordinary = [work for work in late if not work.gave_way]
        in_narrow = [work for work in late if work.gave_way]
        surplus = ordinary if len(ordinary) > self.slow_most else []
        could = [name for name in waiting if not self.used_up(name, taken)]
        starved = [work.dataflow for work in taken if work.starved]
        candidates = [
            *_others(starved, ordinary + in_narrow),
            *_others(could, surplus),
            *_others(narrow, in_narrow),
        ]
        return next(iter(candidates), None)

    def matters(self, taken: Collection[ActiveRun], now: datetime) -> bool:
        """Tell whether some run is late, so that runs of other dataflows without slots matter."""
        late = {work.dataflow for work in self._late(taken, now)}
        return any(late - {work.dataflow} for work in taken if not work.recorded)

    def slow(self, taken: Collection[ActiveRun], now: datetime) -> Collection[ActiveRun]:
        """Return the slow runs that no longer hold a place, oldest first.

        The run in the narrow place is left out, since it never held one.
        """
        if not self.slow_seconds:
            return ()
        begun = now - timedelta(seconds=self.slow_seconds)
        late = [w for w in taken if w.since is not None and w.since <= begun and not w.gave_way]
        return sorted(late, key=lambda work: _age(work, now))[: self.slow_most]

    def used_up(self, dataflow: str, taken: Collection[ActiveRun]) -> bool:
        """Tell whether a dataflow has its maximum number of runs, slow ones included."""
        return sum(work.dataflow == dataflow for work in taken) >= self.most

    def _late(self, taken: Collection[ActiveRun], now: datetime) -> list[ActiveRun]:
        """Return the runs that have used up their turn, oldest first."""
        if not self.slow_seconds:
            return []
        late = [
            work
            for work in taken
            if work.since is not None
            and not work.recorded
            and (now - (work.starved_at or work.since)).total_seconds()
            >= self._turn_seconds(work.gave_way)
        ]
        return sorted(late, key=lambda work: _age(work, now))

    def _turn_seconds(self, gave_way: int) -> float:
        return self.slow_seconds * 2.0 ** min(gave_way, _TURNS_MAX)


def _age(work: ActiveRun, now: datetime) -> tuple[datetime, str, str]:
    return work.since or now, work.dataflow, work.stage


def _others(wanting: Sequence[str], late: Sequence[ActiveRun]) -> Iterator[tuple[ActiveRun, str]]:
    """Yield pairs of a late run and another dataflow to which it can give way, in order."""
    return ((work, name) for name in wanting for work in late if work.dataflow != name)
