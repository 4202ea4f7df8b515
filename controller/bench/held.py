"""What a candidate holds in the end, and how it is compared with what ours holds; pure.

Counts are compared key by key without being brought together: of each table a candidate's own
reader makes a `Digest` (`controller.bench.digests`), the sum of a hash of every record, which
is the same in whatever order and files the records lie. Two states are taken as equal, and so
are the last values per key of two outputs, when all their digests are.

Not guaranteed: that different records never have one digest; with 64 bits nobody meets that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import fsum

__all__ = ["Digest", "Held", "Totals", "Values"]


@dataclass(frozen=True, slots=True)
class Digest:
    """The records of one table, in no order.

    Attributes:
        rows: How many there are.
        n: Sum of the column `n`; 0 where there is none.
        hashes: Sum of a 64-bit hash of each record, all its columns.
    """

    rows: int
    n: int
    hashes: int

    def __add__(self, other: Digest) -> Digest:
        return Digest(self.rows + other.rows, self.n + other.n, self.hashes + other.hashes)


@dataclass(frozen=True, slots=True)
class Totals:
    """Counts.

    Attributes:
        states: State, as `stage.state`, to all its records.
        emitted: Output, as `stage.output`, to the last record per key of what was emitted
            after the load; None: the candidate emits no changes.
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

    def unlike(self, ours: Held, *, within: float) -> str:
        """Say what is other than ours; empty when nothing is. Counts are compared exactly."""
        assert isinstance(ours, Totals), "candidates of one workload hold the same kind of thing"
        found = []
        if others := _unlike(self.states, ours.states):
            counts = f"{self.keys:,} keys and {self.n:,}, cbp {ours.keys:,} and {ours.n:,}"
            found.append(f"holds other records in {others}: {counts}")
        both = self.emitted is not None and ours.emitted is not None
        if both and (others := _unlike(self.emitted or {}, ours.emitted or {})):
            found.append(f"emitted other last values in {others}")
        return ", and ".join(found)


@dataclass(frozen=True, slots=True)
class Values:
    """One number per page."""

    of: Mapping[int, float] = field(repr=False)

    def unlike(self, ours: Held, *, within: float) -> str:
        """Say what is other than ours; empty when the mean difference is within a bound."""
        assert isinstance(ours, Values), "candidates of one workload hold the same kind of thing"
        if self.of.keys() != ours.of.keys():
            return f"holds {len(self.of):,} pages, cbp {len(ours.of):,}, or other ones"
        if not self.of:
            return ""
        mean = fsum(abs(value - ours.of[page]) for page, value in self.of.items()) / len(self.of)
        return "" if mean <= within else f"is {mean:.3g} from cbp in the mean, above {within:.3g}"


Held = Totals | Values
"""What candidates of one workload are compared by."""


def _unlike(theirs: Mapping[str, Digest], ours: Mapping[str, Digest]) -> str:
    """Return the names of tables whose digests differ."""
    names = dict.fromkeys([*ours, *theirs])
    return ", ".join(name for name in names if theirs.get(name) != ours.get(name))
