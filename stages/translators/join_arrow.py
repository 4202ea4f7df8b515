"""Join two views by equal columns, on columns: many groups at a time."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cbp import TranslateArrow
from stages.bag_tables import COPIES, GROUP, changes_of, current, ids_of, null_keys
from stages.translators.join import Join

__all__ = ["JoinArrow"]


class JoinArrow(TranslateArrow, Join):
    """Join two views by equal columns; the results are those of `Join`.

    A call reads and joins all records of its groups, while `Join` reads only partners of
    changed records.
    """

    keep: ClassVar[bool] = False

    # The other form has the declarations; here a call gets many groups.
    def translate(self, groups: Any, out: Any) -> None:  # type: ignore[override]
        """Join the present records of both sides, for many groups."""
        rights = changes_of(groups, "right")
        rights = rights.filter(pa.array(~null_keys(groups)[ids_of(rights)]))
        lefts = changes_of(groups, "left")
        one, other = self._left, self._right
        left = current(groups, "left_rows", lefts, one.second, counted=one.counted)
        right = current(groups, "right_rows", rights, other.second, counted=other.counted)
        out.left_rows(left.drop_columns([GROUP]))
        out.right_rows(right.drop_columns([GROUP]))
        sizes = np.bincount(ids_of(right), minlength=len(groups))
        partners = sizes[ids_of(left)]
        if self._pairs:
            first = (np.cumsum(sizes) - sizes)[ids_of(left)]
            out.joined(self._paired(left, right, first, partners))
            return
        rows = left.filter(pa.array((partners > 0) == self._partnered))
        out.joined(rows.select(self._names))

    def _paired(self, left: pa.Table, right: pa.Table, first: Any, partners: Any) -> pa.Table:
        """Return each record of the left with each of its partners, which are adjacent.

        Args:
            first: The place of the first partner of each record of the left.
            partners: The number of its partners.
        """
        times = np.maximum(partners, 1) if self._single else partners
        lefts = np.repeat(np.arange(len(times)), times)
        nth = np.arange(len(lefts)) - np.repeat(np.cumsum(times) - times, times)
        rights = pa.array(first[lefts] + nth, mask=partners[lefts] == 0)
        rows, others = left.take(pa.array(lefts)), right.take(rights)
        if self._counted:
            copies = pc.multiply_checked(rows[COPIES], others[COPIES].fill_null(1))
            rows = rows.set_column(rows.column_names.index(COPIES), COPIES, copies)
        for at in self._added:
            rows = rows.append_column(right.field(at), others.column(at))
        return rows.select(self._names)
