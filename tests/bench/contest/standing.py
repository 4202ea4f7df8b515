"""The state of an entrant in a contest: its runs of the current size, and what it sat out.

An entrant that has spent its seconds on a size sits out the other rounds of that size. Before its
next run, and before it is compared, it reads the missed increments as one, unmeasured.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.bench.contest.entrant import Entrant
from tests.bench.contest.expected_results import Truth
from tests.bench.measurements.result import Sample
from tests.bench.workloads.workload import Arrival, write_arrival

__all__ = ["Standing"]


@dataclass
class Standing:
    """An entrant in a contest.

    Attributes:
        truth: The right answer for the keys that it began with.
        samples: The measured runs of the current size, or its warm-up so far.
        spent: Seconds of all its runs of the current size.
        missed: Increments that it has sat out and not read yet.
        merged: Whether it has read several increments as one.
        cold: Its very first run.
        error, stale: As `Truth.errors` gives them, at the latest comparison.
    """

    entrant: Entrant
    truth: Truth
    samples: list[Sample] = field(default_factory=list)
    spent: float = 0.0
    missed: list[Arrival] = field(default_factory=list)
    merged: bool = False
    cold: float | None = None
    error: float | None = None
    stale: float | None = None

    @property
    def label(self) -> str:
        """One of `BenchOptions.entrants`."""
        return self.entrant.label

    def run(self, arrival: Arrival) -> None:
        """Read one increment."""
        sample = self.entrant.run(arrival)
        self.samples.append(sample)
        self.spent += sample.seconds
        self.cold = sample.seconds if self.cold is None else self.cold

    def catch_up(self, folder: Path) -> None:
        """Read the missed increments as one.

        Args:
            folder: Where that increment is written.
        """
        if not self.missed:
            return
        # A name of its own: a service treats a file of the same name as the same file.
        path = folder / f"missed-{self.missed[0].path.stem}-{len(self.missed)}.parquet"
        records = pa.concat_tables([pq.read_table(one.path) for one in self.missed])
        self.entrant.run(write_arrival(records, path))
        self.merged |= len(self.missed) > 1
        self.missed.clear()
