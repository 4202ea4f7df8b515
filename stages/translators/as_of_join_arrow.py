"""Join each record with the newest one that was valid at its time, on columns: many at a time."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from cbp import TranslateArrow
from stages.bag_tables import (
    GROUP,
    changes_of,
    current,
    first_from,
    ids_of,
    micros,
    null_keys,
    order_by,
)
from stages.translators.as_of_join import AsOfJoin

__all__ = ["AsOfJoinArrow"]


class AsOfJoinArrow(TranslateArrow, AsOfJoin):
    """Join each record with the newest one up to its time, with the results of `AsOfJoin`.

    A call reads and joins all records of its groups, where `AsOfJoin` looks partners up.
    """

    keep: ClassVar[bool] = False

    # The other form has the declarations; here a call gets many groups.
    def translate(self, groups: Any, out: Any) -> None:  # type: ignore[override]
        """Join the present records of both sides, for many groups."""
        one, other = self._left, self._right
        lefts = changes_of(groups, "left")
        left = current(groups, "left_rows", lefts, one.second, counted=one.counted)
        rights = self._placed(groups)
        right = current(groups, "right_rows", rights, other.second, counted=other.counted)
        right = order_by(right, other.second)
        out.left_rows(left.drop_columns([GROUP]))
        out.right_rows(right.drop_columns([GROUP]))
        at = left.column(self._at)
        timed = np.flatnonzero(at.is_valid().to_numpy())
        partners = np.full(len(left), -1)
        partners[timed] = first_from(
            ids_of(right),
            right.column("place").to_numpy(),
            ids_of(left)[timed],
            -micros(at.drop_null()),
        )
        others = right.take(pa.array(partners, mask=partners < 0))
        for at_ in self._added:
            left = left.append_column(right.field(at_), others.column(at_))
        out.joined(left.select(self._names))

    def _placed(self, groups: Any) -> pa.Table:
        """Return the changes on the right that can be partners, each with its place."""
        rows = changes_of(groups, "right")
        rows = rows.filter(pa.array(~null_keys(groups)[ids_of(rows)]))
        rows = rows.filter(rows.column(self._since).is_valid())
        return rows.append_column("place", pa.array(-micros(rows.column(self._since))))
