"""Keep the k highest records of each group in a view, on columns: many groups at a time."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cbp import TranslateArrow
from stages.bag_tables import COPIES, GROUP, changes_of, current, ids_of, order_by
from stages.translators.top_k import TopK

__all__ = ["TopKArrow"]


class TopKArrow(TranslateArrow, TopK):
    """The k records of each group with the highest values; the results are those of `TopK`.

    A call reads all records of its groups, where `TopK` reads the k highest of one.
    """

    keep: ClassVar[bool] = False

    # The other form has the declarations; here a call gets many groups.
    def translate(self, groups: Any, out: Any) -> None:  # type: ignore[override]
        """Order the records of many groups, and emit the first k of each."""
        rows = changes_of(groups, "rows")
        values = rows.column(self._by)
        ranks = values.is_valid()
        if pa.types.is_floating(values.type):
            ranks = pc.and_not(ranks, pc.is_nan(values).fill_null(fill_value=True))
        rows = rows.filter(ranks)
        rows = rows.append_column("place", pc.negate_checked(rows.column(self._by)))
        names = ["place", *self._rest]
        ranked = order_by(current(groups, "ranked", rows, names, counted=False), names)
        ids = ids_of(ranked)
        ranked = ranked.drop_columns([GROUP, COPIES])
        out.ranked(ranked)
        sizes = np.bincount(ids, minlength=len(groups))
        ranks = np.arange(1, len(ids) + 1) - (np.cumsum(sizes) - sizes)[ids]
        top = ranked.drop_columns(["place"]).append_column("rank", pa.array(ranks))
        out.top(top.filter(pc.field("rank") <= self._k))
