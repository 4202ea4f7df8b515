"""Compares what a candidate holds with what `cbp` holds; pure.

Counts are compared without collecting records in one place. A candidate's own reader makes a
`Digest` of each table (`tests.bench.comparison.digests`): the sum of a hash of every record,
which does not depend on the order and the files of the records. Two states are equal if all their
digests are; so are the last values per key of two outputs.

Values of pages are compared with the truth (`tests.bench.contest.expected_results`).

Not guaranteed: that different records never have the same digest; with 64 bits that is unlikely.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Digest", "Held", "Totals", "Values"]


@dataclass(frozen=True, slots=True)
class Digest:
    """The records of one table, in no order.

    Attributes:
        rows: Number of records.
        n: Sum of the column `n`; 0 without such a column.
        hashes: Sum of a 64-bit hash of each record, over all its columns.
    """

    rows: int
    n: int
    hashes: int

    def __add__(self, other: Digest) -> Digest:
        return Digest(self.rows + other.rows, self.n + other.n, self.hashes + other.hashes)


@dataclass(frozen=True, slots=True)
class Totals:
    """Digests of counts.

    Attributes:
        states: State, as `stage.state`, to the digest of all its records.
        emitted: Output, as `stage.output`, to the digest of the last record per key that was
            emitted after the load; None: the candidate emits no changes.
    """

    states: Mapping[str, Digest]
    emitted: Mapping[str, Digest] | None = None

    @property
    def keys(self) -> int:
        """Number of records in state."""
        return sum(digest.rows for digest in self.states.values())

    @property
    def n(self) -> int:
        """Sum of the column `n` of all states."""
        return sum(digest.n for digest in self.states.values())

    def unlike(self, ours: Held, *, than: str = "cbp") -> str:
        """Return how this differs from `ours`; empty if equal. Counts are compared exactly.

        Args:
            ours: What it is compared with.
            than: The name of `ours` in the text.
        """
        assert isinstance(ours, Totals), "candidates of one workload hold the same kind of thing"
        differences_ = []
        if others := _unlike(self.states, ours.states):
            counts = f"{self.keys:,} keys and {self.n:,}, {than} {ours.keys:,} and {ours.n:,}"
            differences_.append(f"holds other records in {others}: {counts}")
        both = self.emitted is not None and ours.emitted is not None
        if both and (others := _unlike(self.emitted or {}, ours.emitted or {})):
            differences_.append(f"emitted other last values in {others}")
        return ", and ".join(differences_)


@dataclass(frozen=True, slots=True)
class Values:
    """One number per page."""

    of: Mapping[int, float] = field(repr=False)


Held = Totals | Values
"""What is compared between the candidates of one workload."""


def _unlike(theirs: Mapping[str, Digest], ours: Mapping[str, Digest]) -> str:
    """Return the names of tables whose digests differ."""
    names = dict.fromkeys([*ours, *theirs])
    return ", ".join(name for name in names if theirs.get(name) != ours.get(name))
