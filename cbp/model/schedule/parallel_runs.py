"""Parallel runs: which dataflow gets a place for its next run, and which run gives way; pure.

    place        the permission to run; there are as many as runs at a time (`parallel_runs_max`)
    engine slot  room for one task of a run in the engine, such as a core of Spark
    slow         a run that has taken longer than `slow_seconds`; it no longer holds its place
    late         a run that has used up its turn, and gives way if another dataflow is starved

A run that hangs looks like a run that has much to do. Five rules keep long and slow runs from
holding all places and slots; the package's README has their reasons:

- *One place is left for another dataflow.* A dataflow that holds all places but one gets the last
  place only if no other dataflow waits.
- *A slow run holds no place.* A run that takes longer than `slow_seconds` no longer counts, for at
  most `slow_most` runs at a time. So the surplus of runs is bounded.
- *A dataflow has at most as many runs as there are places*, slow runs included. So runs that hang
  use up the share of their own dataflow, not the surplus.
- *A small run has an express place.* A run that reads little starts although all places are held,
  if its dataflow has no other run under way, or if one of these other runs is long: it reads much,
  or has taken longer than `express_after_seconds`. At most one run is beyond the places; a second
  one may be if its dataflow has no other run.
- *A late run gives way to a starved run.* A run is late once it has taken longer than
  `slow_seconds`. It gives way if a run of another dataflow has work but no engine slot, or if a run
  waits because more than `slow_most` runs are late. It is cancelled, and its epoch runs again in
  the one *narrow place*, with at most half of the engine slots. There it is late after twice the
  time, then four times, and so on, and gives way to a run that waits for the narrow place.

So for each epoch of others that hangs, a dataflow that can run waits at most `slow_seconds` (plus
`STARVED_SECONDS`), and only once. A run that needs t seconds in the narrow place ends after turns
of less than 3 t of its own, even if the others never end. An engine with a single slot has no half
to spare: there the runs take turns, and the turns of slow runs get longer.

Why no run starves: the rules only choose among the runs that wait, oldest first. Let X be the
oldest waiting run, of dataflow D. X is passed over only while D holds all places but one. Then one
of D's runs ends or becomes slow, D holds fewer places, and X is next. A dataflow waits for a time
limit only if all of its own runs hang (tests/cbp/model/schedule/test_parallel_runs.py,
tests/cbp/model/test_simulation.py).

Source: ours; the fifth rule: Corbato et al., "An Experimental Time-Sharing System" (1962).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

STARVED_SECONDS = 5.0
"""How long a run must have work but no engine slot before another run gives way; a shorter wait is
normal, since slots change hands."""

_LONG_SHARE = 8
"""A run that reads more than `express_bytes` / `_LONG_SHARE` is long: small runs may pass it."""

_TURNS_MAX = 20
"""Number of turns after which they stop doubling; by then a turn exceeds any time limit."""


@dataclass(frozen=True, slots=True)
class ActiveRun:
    """A run that is under way.

    Attributes:
        since: When it began; `None` means just now.
        gave_way: How often runs of its epoch gave way; if at least once, it is in the narrow place.
        starved: Whether it has had work but no slot of the engine for `STARVED_SECONDS`.
        starved_at: When it was last seen with work but no slot; `None` if never. Its turn
            counts from then, since a run without slots cannot give up any.
        ending: Whether it was asked to end.
        recorded: Whether its record is put. Such a run never gives way.
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
    read_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Places:
    """The limits on runs at a time, and the choices between runs by these limits.

    A choice is a position in `waiting`, the dataflows of the runs that could start, longest waiting
    first; it is `None` if no run gets the place. `active` are all runs under way.

    Attributes:
        most: Number of places over all dataflows (>= 1), and maximum number of runs of one
            dataflow.
        slow_seconds: Seconds after which a run holds no place; 0 means that runs always hold their
            place and never give way.
        slow_most: Maximum number of slow runs without a place; further slow runs hold places.
        express_bytes: A run that reads at most this many bytes may take an express place; 0
            means that there is none.
        express_after_seconds: Time after which even a run that reads little counts as long for
            small runs of its own dataflow. Small runs end sooner, so they take turns.
    """

    most: int
    slow_seconds: float = 120.0
    slow_most: int = 8
    express_bytes: int = 0
    express_after_seconds: float = 0.25

    def next(
        self, active: Collection[ActiveRun], waiting: Sequence[str], now: datetime
    ) -> int | None:
        """Choose which run gets a place now."""
        slow = self.slow(active, now)
        holding = Counter(w.dataflow for w in active if not w.gave_way and w not in slow)
        if holding.total() >= self.most:
            return None
        free = [n for n, name in enumerate(waiting) if not self.used_up(name, active)]
        modest = [n for n in free if holding[waiting[n]] < self.most - 1]
        return next(iter(modest or free), None)

    def next_express(
        self, active: Collection[ActiveRun], waiting: Sequence[str], now: datetime
    ) -> int | None:
        """Choose which small run gets an express place now, once `next` returns `None`.

        `waiting` are the runs that read at most `express_bytes`.
        """
        slow = self.slow(active, now)
        beyond = sum(not work.gave_way and work not in slow for work in active) - self.most
        by_dataflow: dict[str, list[ActiveRun]] = {}
        for work in active:
            by_dataflow.setdefault(work.dataflow, []).append(work)
        for position, name in enumerate(waiting):
            others = by_dataflow.get(name, [])
            may_pass = beyond < 1 and self._has_long(others, now) if others else beyond < 2
            if may_pass:
                return position
        return None

    def _has_long(self, own: Sequence[ActiveRun], now: datetime) -> bool:
        """Return whether a small run may pass these runs of its dataflow, since one is long."""
        begun = now - timedelta(seconds=self.express_after_seconds)
        return len(own) <= self.most and any(
            work.read_bytes > self.express_bytes // _LONG_SHARE
            or (work.since is not None and work.since <= begun)
            for work in own
        )

    def next_narrow(self, active: Collection[ActiveRun], waiting: Sequence[str]) -> int | None:
        """Choose which of the runs that gave way, in this order, gets the narrow place now."""
        if any(work.gave_way for work in active):
            return None
        return next((n for n, name in enumerate(waiting) if not self.used_up(name, active)), None)

    def share(self, slots: int) -> int:
        """Return the maximum number of engine slots for a run in the narrow place (>= 1)."""
        return max(1, slots // 2)

    def gives_way(
        self,
        active: Collection[ActiveRun],
        waiting: Sequence[str],
        narrow: Sequence[str],
        now: datetime,
    ) -> tuple[ActiveRun, str] | None:
        """Choose the run that gives way now, and to which dataflow; one at a time.

        Ordinary runs come first, oldest first; then the run in the narrow place.

        Args:
            waiting: Dataflows of the runs that could start and got no place.
            narrow: Dataflows of the runs that could start and did not get the narrow place.
        """
        if any(work.ending for work in active):
            return None  # the slots that it frees may be enough
        late = [work for work in self._late(active, now) if not work.starved]
        ordinary = [work for work in late if not work.gave_way]
        in_narrow = [work for work in late if work.gave_way]
        surplus = ordinary if len(ordinary) > self.slow_most else []
        could = [name for name in waiting if not self.used_up(name, active)]
        starved = [work.dataflow for work in active if work.starved]
        pairs = ((starved, ordinary + in_narrow), (could, surplus), (narrow, in_narrow))
        return next((found for wanting, late in pairs for found in _others(wanting, late)), None)

    def matters(self, active: Collection[ActiveRun], now: datetime) -> bool:
        """Return whether some run is late, so that starved runs of other dataflows matter."""
        late = {work.dataflow for work in self._late(active, now)}
        return any(late - {work.dataflow} for work in active if not work.recorded)

    def slow(self, active: Collection[ActiveRun], now: datetime) -> Collection[ActiveRun]:
        """Return the slow runs without a place, oldest first; never the run in the narrow place."""
        if not self.slow_seconds:
            return ()
        begun = now - timedelta(seconds=self.slow_seconds)
        late = [w for w in active if w.since is not None and w.since <= begun and not w.gave_way]
        return sorted(late, key=lambda work: _age(work, now))[: self.slow_most]

    def used_up(self, dataflow: str, active: Collection[ActiveRun]) -> bool:
        """Return whether a dataflow has its maximum number of runs, slow ones included."""
        return sum(work.dataflow == dataflow for work in active) >= self.most

    def _late(self, active: Collection[ActiveRun], now: datetime) -> list[ActiveRun]:
        """Return the runs that have used up their turn, oldest first."""

        def is_late(work: ActiveRun) -> bool:
            if work.since is None or work.recorded or not self.slow_seconds:
                return False
            turn_seconds = self.slow_seconds * 2.0 ** min(work.gave_way, _TURNS_MAX)
            return (now - (work.starved_at or work.since)).total_seconds() >= turn_seconds

        return sorted(filter(is_late, active), key=lambda work: _age(work, now))


def _age(work: ActiveRun, now: datetime) -> tuple[datetime, str, str]:
    return work.since or now, work.dataflow, work.stage


def _others(wanting: Sequence[str], late: Sequence[ActiveRun]) -> Iterator[tuple[ActiveRun, str]]:
    """Yield pairs of a late run and another dataflow to which it can give way, in order."""
    return ((work, name) for name in wanting for work in late if work.dataflow != name)
