"""One state size: load every candidate, then run them in turn, round by round.

    load all -> per increment size: warm-up rounds, measured rounds -> compare what they hold

A round gives each candidate the same increment, one after the other, and begins with
another candidate each time, so that none always profits or suffers from the one before.
Before each run, what others wrote is flushed. The floor is measured in every round.

Guaranteed: all candidates have read the same increments when they are compared
(tests/controller/bench/test_contest.py).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from controller.bench.candidate import Candidate, Figures, Place
from controller.bench.floor import floor_seconds
from controller.bench.held import Held, Totals
from controller.bench.options import OURS, BenchOptions, runs_dataflow
from controller.bench.result import Measured, Sample, median
from controller.bench.roster import candidate_of
from controller.bench.traffic import FolderWatch, StageWatch
from controller.bench.workload import Arrival, UrlCount, Workload, workload_of, write_arrival

__all__ = ["Contest", "Entrant", "differences", "steps_of"]


@dataclass
class Entrant:
    """A candidate, what watches it, and its measured runs of the current increment size.

    Attributes:
        label: One of `BenchOptions.entrants`.
    """

    label: str
    candidate: Candidate
    watch: FolderWatch
    samples: list[Sample] = field(default_factory=list)


@dataclass
class Contest:
    """All candidates on one state size.

    Attributes:
        on_step: Told in words what comes next; called `steps_of(options)` times.
        results: One per candidate and increment size, in the order of measuring.
        ours: Increment size to our measured runs, for where the time goes.
        held: Candidate to what its state holds in the end.
    """

    options: BenchOptions
    state_keys: int
    folder: Path
    spark: Any
    slots: int
    on_step: Callable[[str], None]
    results: list[Measured] = field(default_factory=list)
    ours: dict[int, list[Sample]] = field(default_factory=dict)
    held: dict[str, Held] = field(default_factory=dict)
    _stages: StageWatch | None = None
    _arrivals: list[Arrival] = field(default_factory=list)

    def run(self) -> list[str]:
        """Measure; return what the candidates do not agree on."""
        workload = workload_of(self.options, self.state_keys)
        self._stages = None if self.spark is None else StageWatch(self.spark)
        entrants: list[Entrant] = []
        try:
            for label in self.options.entrants:
                self.on_step(f"{label}: loading {self.state_keys:,} keys")
                entrants.append(self._loaded(label, workload))
            for number in range(self.options.age):
                self.on_step(f"increment {number:,} of age")
                self._grow_older(entrants, workload)
            for size in self.options.sizes(self.state_keys):
                self._measure(entrants, workload, size)
            self.on_step("comparing what they hold")
            self.held = {e.label: self._held(e) for e in entrants}
            loaded = {e.label: e.candidate.state_keys for e in entrants}
            records = sum(arrival.records for arrival in self._arrivals)
            counted = records if isinstance(workload, UrlCount) else None
            arrived = len(self._arrivals)
            within = {label: workload.within(label, arrived) for label in self.held}
            return differences(self.held, loaded, counted=counted, within=within)
        finally:
            for entrant in entrants:
                entrant.candidate.close()

    def _held(self, entrant: Entrant) -> Held:
        held = entrant.candidate.held()
        # With outer state every group emits in every epoch, changed or not, as no peer does.
        outer = self.options.grouping == "outer" and not runs_dataflow(entrant.label)
        return replace(held, emitted=None) if outer and isinstance(held, Totals) else held

    def _loaded(self, label: str, workload: Workload) -> Entrant:
        own = self.folder / label.replace("/", "-")
        place = Place(own / "tables", own / "scratch", self.spark, self.slots)
        place.folder.mkdir(parents=True)
        place.scratch.mkdir()
        candidate = candidate_of(label, place, workload, self.options)
        try:
            candidate.load(self.state_keys)
        except BaseException:
            candidate.close()
            raise
        return Entrant(label, candidate, FolderWatch(place.folder))

    def _grow_older(self, entrants: Sequence[Entrant], workload: Workload) -> None:
        """Let every candidate read one increment that nobody measures."""
        size = min(self.options.sizes(self.state_keys))
        arrival = self._arrival(workload, size)
        for entrant in entrants:
            entrant.candidate.run(arrival)
            entrant.watch.take()

    def _measure(self, entrants: Sequence[Entrant], workload: Workload, size: int) -> None:
        floors: list[float | None] = []
        for number in range(self.options.warmup + self.options.rounds):
            if number == self.options.warmup:
                floors = []
                for entrant in entrants:
                    entrant.samples = []
            floors.append(self._round(entrants, number, self._arrival(workload, size)))
        floor = median(floors)
        records = workload.state_records
        self.results.extend(self._summary(e, size, floor, records) for e in entrants)
        self.ours[size] = entrants[0].samples

    def _round(self, entrants: Sequence[Entrant], number: int, arrival: Arrival) -> float | None:
        """Run every candidate once; return the seconds of the floor."""
        first = number % len(entrants)
        floor = None
        for entrant in (*entrants[first:], *entrants[:first]):
            self.on_step(f"{entrant.label}: {arrival.records:,} records")
            figures, sample = self._sample(entrant, arrival)
            entrant.samples.append(sample)
            if entrant.label == OURS and self.spark is not None:
                floor = floor_seconds(self.spark, figures.tasks)
        return floor

    def _sample(self, entrant: Entrant, arrival: Arrival) -> tuple[Figures, Sample]:
        os.sync()
        if self._stages is not None:
            self._stages.take()
        started = time.perf_counter()
        figures = entrant.candidate.run(arrival)
        seconds = time.perf_counter() - started
        shuffled = None if self._stages is None else self._stages.take()
        written = entrant.watch.take()
        if figures.bytes_written is not None:
            written = figures.bytes_written
        return figures, Sample(
            seconds,
            figures.bytes_read,
            shuffled,
            written,
            figures.steps,
            bytes_broadcast=figures.bytes_broadcast,
            epochs=figures.epochs,
            updated=figures.updated,
        )

    def _arrival(self, workload: Workload, size: int) -> Arrival:
        number = len(self._arrivals)
        path = self.folder / "increments" / f"{number:06d}.parquet"
        before = sum(arrival.records for arrival in self._arrivals)
        arrival = write_arrival(workload.records(number, size, before=before), path)
        self._arrivals.append(arrival)
        return arrival

    def _summary(
        self, entrant: Entrant, size: int, floor: float | None, records: int | None
    ) -> Measured:
        return Measured.of(
            entrant.samples,
            workload=self.options.label,
            candidate=entrant.candidate.name,
            form=entrant.candidate.form,
            state_keys=entrant.candidate.state_keys,
            increment_records=size,
            floor_seconds=floor,
            state_records=records,
        )


def steps_of(options: BenchOptions) -> int:
    """Return how many steps the contests of all state sizes announce."""
    rounds = options.rounds + options.warmup
    contests = [len(options.sizes(keys)) * rounds for keys in options.state_keys]
    steps = sum(len(options.entrants) * (1 + measured) + 1 for measured in contests)
    return steps + options.age * len(contests)


def differences(
    held: Mapping[str, Held],
    loaded: Mapping[str, int],
    *,
    counted: int | None,
    within: Mapping[str, float],
) -> list[str]:
    """Say which candidates hold something else than they must; pure.

    Args:
        held: Candidate to what it holds.
        loaded: Candidate to the keys that it began with, each counted once.
        counted: Records that every candidate read, if each adds one to a count.
        within: Candidate to how far from ours it may be.
    """
    found = []
    ours = held[OURS]
    for name, one in held.items():
        if counted is not None and isinstance(one, Totals) and one.n != loaded[name] + counted:
            found.append(f"{name} counts {one.n:,} records, not {loaded[name] + counted:,}")
        if loaded[name] == loaded[OURS] and (what := one.unlike(ours, within=within[name])):
            found.append(f"{name} {what}")
    return found
