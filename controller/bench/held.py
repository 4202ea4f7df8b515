"""What a candidate holds in the end, and how it is compared with what ours holds; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import fsum

__all__ = ["Held", "Totals", "Values"]


@dataclass(frozen=True, slots=True)
class Totals:
    """Counts.

    Attributes:
        keys: Number of records.
        n: Sum of the column `n`.
    """

    keys: int
    n: int

    def unlike(self, ours: Held, *, within: float) -> str:
        """Say what is other than ours; empty when nothing is. Counts are compared exactly."""
        if self == ours or not isinstance(ours, Totals):
            return ""
        return f"holds {self.keys:,} keys and {self.n:,}, cbp {ours.keys:,} and {ours.n:,}"


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
