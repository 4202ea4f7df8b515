"""A contest: loads every candidate at one state size, then runs them in turn, round by round.

    load all -> per increment size: warm-up rounds, measured rounds -> compare what they hold

A round gives each candidate the same increment, one after the other. Each round begins with
another candidate, so that no candidate always profits or suffers from the one before it. The floor
is measured in every round.

Answers are compared as early as possible:
- In every round: the changes that each candidate emitted, with those that the increment makes
  (`tests.bench.contest.expected_results`).
- In the first and the last rounds of each size: the values of a graph, and the states of a crawl.
- At the end: everything that candidates hold, with the truth and with ours (`cbp`).
The contest ends at the first difference.

A slow peer sits out rounds (`BenchOptions.candidate_seconds`); `cbp` never does. A contest that
has passed its deadline begins no further round: what was measured until then counts, and is
compared.

Guaranteed: all candidates have read the same increments when they are compared; a stale, an empty
and a constant answer are found (tests/bench/contest/test_contest.py).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.bench.comparison.result_comparison import Held, Totals, Values
from tests.bench.contest.entrant import MakeEntrant
from tests.bench.contest.expected_results import Truth, truth_of
from tests.bench.contest.standing import Standing
from tests.bench.measurements.result import Measured, Sample, median
from tests.bench.options import OURS, VIEW, BenchOptions, groups_all, runs_dataflow
from tests.bench.workloads.workload import (
    Arrival,
    UrlCount,
    Workload,
    workload_of,
    write_arrival,
)

__all__ = ["Contest", "differences", "steps_of", "unequal"]

SAME = 1e-6
"""Largest difference between values of one dataflow run in two ways: the order of sums differs."""


@dataclass
class Contest:
    """All candidates on one state size.

    Attributes:
        make: Makes the entrant of a label.
        on_step: Called with a description of the next step; at most `steps_of(options)` times.
        on_round: Called after every measured round, when `results` contains it.
        until: Deadline as of `time.monotonic`; no round begins after it. One round of the first
            size is always measured.
        results: One per candidate and increment size, in the order of measuring.
        ours: Increment size to the measured runs of `cbp`, to show where the time goes.
        held: Candidate to what its state holds at the end.
    """

    options: BenchOptions
    state_keys: int
    folder: Path
    make: MakeEntrant
    on_step: Callable[[str], None]
    on_round: Callable[[], None] = field(default=lambda: None)
    until: float = math.inf
    results: list[Measured] = field(default_factory=list)
    ours: dict[int, list[Sample]] = field(default_factory=dict)
    held: dict[str, Held] = field(default_factory=dict)
    _truths: dict[int, Truth] = field(default_factory=dict)
    _arrivals: list[Arrival] = field(default_factory=list)

    def run(self) -> list[str]:
        """Measure; return the faults in what candidates hold or emitted."""
        workload = workload_of(self.options, self.state_keys)
        places: list[Standing] = []
        try:
            for label in self.options.entrants:
                self.on_step(f"{label}: loading {self.state_keys:,} keys")
                places.append(self._loaded(label, workload))
            for number in range(self.options.age):
                self.on_step(f"increment {number:,} of age")
                if wrong := self._grow_older(places, workload):
                    return wrong
            if self.options.age and (wrong := self._held_wrong(places, workload)):
                return wrong
            for at, size in enumerate(self.options.sizes(self.state_keys)):
                if self.results and self._late():
                    break
                if wrong := self._measure(places, workload, at, size):
                    return wrong
            self.on_step("comparing what they hold")
            for place in places:
                place.catch_up(self._increments)
            self.held = {place.label: self._held(place) for place in places}
            self._take_errors(places)
            loaded = {place.label: place.entrant.state_keys for place in places}
            return differences(self.held, loaded, {place.label: place.truth for place in places})
        finally:
            for place in places:
                place.entrant.close()

    def _take_errors(self, places: Sequence[Standing]) -> None:
        """Put the errors of the final comparison into the results of the last size."""
        last = self.results[-len(places) :]
        for at, (one, place) in enumerate(zip(last, places, strict=False)):
            error, stale = place.truth.errors(self.held[place.label])
            last[at] = replace(one, error=error, error_stale=stale)
        self.results[-len(places) :] = last

    def _held(self, place: Standing) -> Held:
        held = place.entrant.held()
        # With outer state every group emits in every epoch, changed or not; no peer does that.
        # The changes of a view are no last values; they are compared after every round.
        other = groups_all(place.label, self.options) or place.entrant.form == VIEW
        return replace(held, emitted=None) if other and isinstance(held, Totals) else held

    def _loaded(self, label: str, workload: Workload) -> Standing:
        entrant = self.make(label, workload, self.folder / label.replace("/", "-"))
        try:
            entrant.load(self.state_keys)
        except BaseException:
            entrant.close()
            raise
        keys = entrant.state_keys
        if keys not in self._truths:
            self._truths[keys] = truth_of(workload, keys)
        return Standing(entrant, self._truths[keys])

    def _grow_older(self, places: Sequence[Standing], workload: Workload) -> list[str]:
        """Give every candidate one increment that is not measured."""
        arrival = self._arrival(workload, min(self.options.sizes(self.state_keys)))
        for place in places:
            place.run(arrival)
        return self._emitted_wrong(places)

    def _measure(
        self, places: Sequence[Standing], workload: Workload, at: int, size: int
    ) -> list[str]:
        warmup = self.options.warmup_of(at)
        every = warmup + self.options.rounds_of(at)
        looks = {0, every - 2, every - 1}
        floors: list[float | None] = []
        before = len(self.results)
        for place in places:
            place.samples, place.spent = [], 0.0
        for number in range(every):
            if number == warmup:
                floors = []
                for place in places:
                    place.samples = []
            elif number > warmup and self._late():
                break
            arrival = self._arrival(workload, size)
            floors.append(self._round(places, number, arrival, warm=number >= warmup))
            wrong = self._emitted_wrong(places)
            if number in looks and not wrong:
                wrong = self._held_wrong(places, workload)
            if wrong:
                return wrong
            if number >= warmup:
                floor, records = median(floors), workload.state_records
                summaries = [self._summary(place, size, floor, records) for place in places]
                self.results[before:] = summaries
                self.ours[size] = places[0].samples
                self.on_round()
        return []

    def _late(self) -> bool:
        return time.monotonic() > self.until

    def _round(
        self, places: Sequence[Standing], number: int, arrival: Arrival, *, warm: bool
    ) -> float | None:
        """Run every candidate once; return the seconds of the floor.

        Args:
            warm: Whether the round is measured.
        """
        first = number % len(places)
        floor = None
        for place in (*places[first:], *places[:first]):
            if self._sits_out(place, warm):
                place.missed.append(arrival)
                continue
            self.on_step(f"{place.label}: {arrival.records:,} records")
            place.catch_up(self._increments)
            place.run(arrival)
            if place.label == OURS:
                floor = place.entrant.floor()
        return floor

    def _sits_out(self, place: Standing, warm: bool) -> bool:
        limit = self.options.candidate_seconds
        due = bool(place.samples) or not warm  # one run of each size is measured
        return place.label != OURS and 0 < limit < place.spent and due

    def _emitted_wrong(self, places: Sequence[Standing]) -> list[str]:
        """Return which candidates emitted other changes than the latest increment makes."""
        right = {keys: truth.emitted() for keys, truth in self._truths.items()}
        wrong = []
        for place in places:
            expected = right[place.entrant.state_keys]
            if expected is None or place.missed or groups_all(place.label, self.options):
                continue
            came = place.entrant.emitted()
            if came is not None and came != expected:
                what = (
                    f"{came.rows:,} keys and {came.n:,}, not {expected.rows:,} and {expected.n:,}"
                )
                wrong.append(f"{place.label} emitted other changes in {self._latest}: {what}")
        return wrong

    def _held_wrong(self, places: Sequence[Standing], workload: Workload) -> list[str]:
        """Return which candidates hold a wrong answer after the latest increment."""
        wrong: list[str] = []
        ours: Held | None = None  # `cbp` is the first candidate
        if isinstance(workload, UrlCount):  # its emitted changes are exact
            return wrong
        for place in places:
            if place.missed:
                continue
            held = self._held(place)
            place.error, place.stale = place.truth.errors(held)
            ours = held if ours is None else ours
            what = place.truth.unlike(place.label, held)
            if not what and runs_dataflow(place.label) and not place.merged:
                what = unequal(held, ours)
            if what:
                wrong.append(f"{place.label} {what}, after {self._latest}")
        return wrong

    @property
    def _increments(self) -> Path:
        return self.folder / "increments"

    @property
    def _latest(self) -> str:
        return f"increment {len(self._arrivals):,}"

    def _arrival(self, workload: Workload, size: int) -> Arrival:
        number = len(self._arrivals)
        path = self._increments / f"{number:06d}.parquet"
        before = sum(arrival.records for arrival in self._arrivals)
        arrival = write_arrival(workload.records(number, size, before=before), path)
        for truth in self._truths.values():
            truth.take(number, size, before=before)
        self._arrivals.append(arrival)
        return arrival

    def _summary(
        self, place: Standing, size: int, floor: float | None, records: int | None
    ) -> Measured:
        entrant = place.entrant
        return Measured.of(
            place.samples,
            workload=self.options.label,
            candidate=entrant.name,
            form=entrant.form,
            state_keys=entrant.state_keys,
            increment_records=size,
            floor_seconds=floor,
            state_records=records,
            cold_seconds=place.cold,
            index_bytes=entrant.kept_bytes(),
            error=place.error,
            error_stale=place.stale,
        )


def steps_of(options: BenchOptions) -> int:
    """Return an upper bound of the steps that the contests of all state sizes announce."""
    steps = 0
    for keys in options.state_keys:
        sizes = range(len(options.sizes(keys)))
        rounds = (options.warmup_of(at) + options.rounds_of(at) for at in sizes)
        steps += len(options.entrants) * (1 + sum(rounds)) + 1 + options.age
    return steps


def unequal(held: Held, ours: Held) -> str:
    """Return how far a candidate's values are from those of `cbp`, beyond rounding; or "".

    For candidates that run the same dataflow.
    """
    if not (isinstance(held, Values) and isinstance(ours, Values)):
        return ""
    apart = max((abs(held.of[page] - value) for page, value in ours.of.items()), default=0.0)
    return "" if apart <= SAME else f"is {apart:.3g} from cbp, whose dataflow it runs"


def differences(
    held: Mapping[str, Held], loaded: Mapping[str, int], truths: Mapping[str, Truth]
) -> list[str]:
    """Return which candidates differ from the truth, or from `cbp`; pure.

    Args:
        held: Candidate to what it holds.
        loaded: Candidate to the keys that it began with.
        truths: Candidate to the right answer for those.
    """
    differences_ = []
    ours = held[OURS]
    for name, one in held.items():
        if (what := truths[name].unlike(name, one)) or (
            isinstance(one, Totals) and loaded[name] == loaded[OURS] and (what := one.unlike(ours))
        ):
            differences_.append(f"{name} {what}")
    return differences_
