"""Decide whether the ranks of a round of PageRank have converged; second stage of the cycle.

Source: CBP (SoCC'10), section 3.1.2, figure 8.
"""

from __future__ import annotations

from math import fsum
from typing import Any

from cbp import Input, Output, State, Translate, by

__all__ = ["PageRankVerdict"]


def _one_group(_: Any) -> bool:
    return True


class PageRankVerdict(Translate):
    """Emit once per round that the sum of all changes in an epoch is within the tolerance.

    Shape:
        moved: `(round, change)`, one record per page that was computed in an epoch.
        converged: `(round)`.

    Args:
        tolerance: Largest sum of the changes of an epoch (the mean rank is 1). The ranks are then
            within tolerance * a / (1-a) of the fixed point, summed over pages.
    """

    key = "one BOOLEAN"
    moved = Input("round BIGINT, change DOUBLE", route_by=by(_one_group, "BOOLEAN"))
    last = State("one BOOLEAN, round BIGINT", not_compared="round")
    converged = Output("round BIGINT")

    def __init__(self, tolerance: float = 1e-10) -> None:
        self._tolerance = tolerance

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Decide on an epoch; later epochs of a round that has converged are ignored."""
        last = max((row.round for row in group.last), default=0)
        rows = list(group.moved)
        newest = max(row.round for row in rows)
        if newest > last and fsum(r.change for r in rows if r.round == newest) <= self._tolerance:
            out.converged(newest)
            last = newest
        out.last(True, last)
