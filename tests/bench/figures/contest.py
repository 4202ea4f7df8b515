"""Rounds of a contest: candidates take turns, and each answer is compared with the right one.

The first candidate changes from round to round. A wrong answer ends the contest: a table that is
empty, constant, or one round old has another digest than the right one.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.bench.errors import BenchDisagreesError
from tests.bench.figures.entrant import Entrant, Sample
from tests.bench.figures.records import Digest

__all__ = ["Expected", "Samples", "compare", "contest", "loaded"]

Expected = Callable[[int], Mapping[str, Digest]]
"""Round -> kind of an entrant -> the right answer; called once for each round, in order."""


@dataclass
class Samples:
    """The measured rounds of one entrant."""

    all: list[Sample] = field(default_factory=list)
    cold: float = 0.0

    @property
    def seconds(self) -> float:
        """Median of the seconds."""
        return statistics.median(sample.seconds for sample in self.all)

    @property
    def span(self) -> tuple[float, float]:
        """Least and greatest seconds."""
        every = [sample.seconds for sample in self.all]
        return min(every), max(every)

    @property
    def cpu_seconds(self) -> float:
        """Median of the processor's seconds."""
        return statistics.median(sample.cpu_seconds for sample in self.all)

    @property
    def peak_bytes(self) -> int:
        """Greatest memory."""
        return max(sample.peak_bytes for sample in self.all)


@contextmanager
def loaded(entrants: Sequence[Entrant], tell: Callable[[str], None]) -> Iterator[None]:
    """Load all entrants, close them in the end.

    The first one is alone, since others can begin with what it wrote; then two load at a time if
    each has a process of its own.
    """

    def load(entrant: Entrant) -> None:
        entrant.load()
        tell(f"{entrant.label} has loaded")

    try:
        first, *others = entrants
        load(first)
        with ThreadPoolExecutor(2 if first.own_process else 1) as pool:
            list(pool.map(load, others))
        yield
    finally:
        for entrant in entrants:
            entrant.close()


def contest(
    entrants: Sequence[Entrant],
    expected: Expected,
    *,
    rounds: int,
    warmup: int,
    tell: Callable[[str], None] = lambda text: None,
) -> dict[str, Samples]:
    """Let loaded entrants run some rounds in turn; return the samples by label.

    Raises:
        BenchDisagreesError: An answer is wrong.
    """
    samples = {entrant.label: Samples() for entrant in entrants}
    for round_ in range(warmup + rounds):
        right = expected(round_)
        first = round_ % len(entrants)
        for entrant in (*entrants[first:], *entrants[:first]):
            sample, answer = entrant.run(round_)
            compare(entrant.label, round_, answer, right[entrant.kind])
            mine = samples[entrant.label]
            if round_ == 0:
                mine.cold = sample.seconds
            if round_ >= warmup:
                mine.all.append(sample)
            tell(f"round {round_}: {entrant.label} {sample.seconds:.3f} s")
    return samples


def compare(label: str, round_: int, answer: Digest, right: Digest) -> None:
    """Raise BenchDisagreesError if an answer is wrong."""
    if answer != right:
        why = f"{label} gave {answer.rows:,} records in round {round_}, {right.rows:,} are right"
        if answer.rows == right.rows:
            why = f"{label} gave other records in round {round_} than the right {right.rows:,}"
        raise BenchDisagreesError([why])
