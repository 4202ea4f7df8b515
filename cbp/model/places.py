"""Places for work: who gets the next one, and who gives way, so that what hangs stalls nobody else.

So many runs go on at a time, over all dataflows. Nobody knows whether a run hangs or has much to
do. Three rules keep what is slow from holding all places:

- *The last place is somebody else's.* A dataflow that holds all places but one gets the last
  one only while no other dataflow waits.
- *Who is slow holds no place.* What goes on for longer than `slow_seconds` counts no more,
  `slow_most` at a time; so the surplus is bounded.
- *A dataflow has as many runs as there are places*, the slow ones included: what hangs
  uses up its own dataflow's share, not the surplus of all.

Places are not all that runs share: their tasks stand in the slots of the engine, which takes none
back from a task that hangs. So a fourth rule, the feedback queue of time-sharing systems:

- *Who is late gives way to who starves.* A run is late once it went on for longer than
  `slow_seconds`. It gives way while a run of another dataflow has work and no slot, or one waits
  because more than `slow_most` are late. It is cancelled, nothing of it is lost but its time, and
  its epoch runs again in the *narrow place*: there is one, who runs there takes at most half of
  the slots, and holds no other place. There it is late after twice the time, then four times...,
  and gives way to whoever gave way before it and waits for the narrow place.

So a dataflow that can run waits for `slow_seconds` (and `STARVED_SECONDS`) at most per epoch of
others that hangs, and once only: in the narrow place it leaves slots to others. Of those that
gave way each gets turns that double, so one that needs t seconds there ends after turns of less
than 3 t of its own, however many of the others never end. An engine with a single slot has no half
to leave: there turns go round, and those of the slow ones get longer.

Why nobody starves: the rules only choose among those that wait, oldest first. Let X be the
oldest that waits, of dataflow D. X is passed over while D holds all places but one, and then one
of D's runs ends, or becomes slow: D holds fewer, and X is the next. Only a dataflow whose own
runs all hang waits for their time limit (tests/cbp/model/test_places.py, test_simulation.py).

Source: ours; the fourth rule: Corbato et al., "An Experimental Time-Sharing System" (1962).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

__all__ = ["STARVED_SECONDS", "Places", "Taken"]

STARVED_SECONDS = 5.0
"""How long a run must have work and no slot before another gives way: slots change hands."""

_TURNS_MAX = 20
"""Turns after which they get no longer; the last one is longer than any time limit."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Work of a stage that goes on.

    Attributes:
        since: When it began, aware and in UTC; `None`: just now.
        run: Its id.
        gave_way: How often runs of its epoch gave way; from 1 on it is in the narrow place.
        starved: Whether it has had work and no slot of the engine for `STARVED_SECONDS`.
        starved_at: When it was last seen to have work and no slot; `None`: it never was. Its turn
            counts from then: who had nothing has nothing to give.
        ending: Whether it was asked to end.
        recorded: Whether it is done, and only told to tables and store; then it never gives way.
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
    """How much goes on at a time.

    Attributes:
        most: Places, over all dataflows (>= 1), and runs of one dataflow.
        slow_seconds: What goes on for longer holds no place; 0: it always does, and never
            gives way.
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
        holding = Counter(w.dataflow for w in taken if not w.gave_way and w not in slow)
        if holding.total() >= self.most:
            return None
        found = [n for n, name in enumerate(waiting) if not self.used_up(name, taken)]
        modest = [n for n in found if holding[waiting[n]] < self.most - 1]
        return next(iter(modest or found), None)

    def next_narrow(self, taken: Collection[Taken], waiting: Sequence[str]) -> int | None:
        """Choose who gets the narrow place now.

        Args:
            taken: All work that goes on.
            waiting: Dataflows of those that gave way and could begin, the first to do so first.

        Returns:
            A position in `waiting`; `None`: nobody gets it.
        """
        if any(work.gave_way for work in taken):
            return None
        return next((n for n, name in enumerate(waiting) if not self.used_up(name, taken)), None)

    def share(self, slots: int) -> int:
        """Return the most slots of the engine that a run in the narrow place takes (>= 1)."""
        return max(1, slots // 2)

    def gives_way(
        self,
        taken: Collection[Taken],
        waiting: Sequence[str],
        narrow: Sequence[str],
        now: datetime,
    ) -> tuple[Taken, str] | None:
        """Choose who gives way now: one at a time, the one that went on for longest.

        Args:
            taken: All work that goes on.
            waiting: Dataflows of those that could begin and got no place.
            narrow: Of those that could begin and did not get the narrow place.
            now: Aware, in UTC.

        Returns:
            The work, and the dataflow that it gives way to; `None`: nobody has to.
        """
        if any(work.ending for work in taken):
            return None  # what it leaves may do
        late = [work for work in self._late(taken, now) if not work.starved]
        ordinary = [work for work in late if not work.gave_way]
        in_narrow = [work for work in late if work.gave_way]
        surplus = ordinary if len(ordinary) > self.slow_most else []
        could = [name for name in waiting if not self.used_up(name, taken)]
        starved = [work.dataflow for work in taken if work.starved]
        found = [
            *_others(starved, ordinary + in_narrow),
            *_others(could, surplus),
            *_others(narrow, in_narrow),
        ]
        return next(iter(found), None)

    def matters(self, taken: Collection[Taken], now: datetime) -> bool:
        """Tell whether it matters who of them has no slot: one is late, of another dataflow."""
        late = {work.dataflow for work in self._late(taken, now)}
        return any(late - {work.dataflow} for work in taken if not work.recorded)

    def slow(self, taken: Collection[Taken], now: datetime) -> Collection[Taken]:
        """Return the work that holds no place any more, those first that began first.

        What is in the narrow place never held one, and is left out.
        """
        if not self.slow_seconds:
            return ()
        begun = now - timedelta(seconds=self.slow_seconds)
        late = [w for w in taken if w.since is not None and w.since <= begun and not w.gave_way]
        return sorted(late, key=lambda work: _age(work, now))[: self.slow_most]

    def used_up(self, dataflow: str, taken: Collection[Taken]) -> bool:
        """Tell whether a dataflow has all the runs that it may have, the slow ones included."""
        return sum(work.dataflow == dataflow for work in taken) >= self.most

    def _late(self, taken: Collection[Taken], now: datetime) -> list[Taken]:
        """Return the work that had its turn, those first that began first."""
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


def _age(work: Taken, now: datetime) -> tuple[datetime, str, str]:
    return work.since or now, work.dataflow, work.stage


def _others(wanting: Sequence[str], late: Sequence[Taken]) -> Iterator[tuple[Taken, str]]:
    """Yield who can give way to whom: late work of another dataflow, in this order."""
    return ((work, name) for name in wanting for work in late if work.dataflow != name)
