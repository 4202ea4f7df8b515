"""Remove duplicates by columns within a time, on columns: many groups at a time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cbp import TranslateArrow
from stages.bag_tables import GROUP, changes_of, current, first_from, ids_of, micros, order_by
from stages.translators.first_within import FirstWithin

__all__ = ["FirstWithinArrow"]

Int64s = npt.NDArray[np.int64]

_LONG = 1 << 61
"""More microseconds than two times can differ by; a larger sum could overflow 64 bits."""


class FirstWithinArrow(TranslateArrow, FirstWithin):
    """Drop records that follow too soon; the results are those of `FirstWithin`."""

    # The other form has the declarations; here a call gets many groups.
    def translate(self, groups: Any, out: Any) -> None:  # type: ignore[override]
        """Go from each record that counts to the next, in many groups at a time."""
        names = self._names
        at = names[self._at]
        known = current(groups, "known", changes_of(groups, "rows"), names, counted=True)
        out.known(known.drop_columns([GROUP]))
        rows = order_by(known.filter(pc.field(at).is_valid()), [at, *names])
        ids, times = ids_of(rows), micros(rows.column(at))
        patience = min(self._patience // timedelta(microseconds=1), _LONG)
        following = first_from(ids, times, ids, times + patience)
        out.firsts(rows.take(pa.array(_reached(ids, following))).select(names))


def _reached(ids: Int64s, following: Int64s) -> Int64s:
    """Return the first record of each group, the one that follows it, and so on.

    Each step doubles the distance of a jump, so a long group takes few steps.

    Args:
        ids: The group of each record; ascending.
        following: The record that follows each; -1 if none does.
    """
    end = len(ids)
    jump = np.append(np.where(following < 0, end, following), end)
    reached = np.zeros(end + 1, np.bool_)
    reached[:end] = np.diff(ids, prepend=-1) != 0
    while np.any((next_ := jump[reached]) < end):
        reached[next_] = True
        jump = jump[jump]
    return np.flatnonzero(reached[:end])
