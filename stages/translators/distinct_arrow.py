"""Keep each record once, however often it came, on columns: many records at a time."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from cbp import TranslateArrow
from stages.translators.distinct import Distinct

__all__ = ["DistinctArrow"]


class DistinctArrow(TranslateArrow, Distinct):
    """The different records among the changes of a view; the results are those of `Distinct`."""

    # The other form has the declarations; here a call gets many groups.
    def translate(self, groups: Any, out: Any) -> None:  # type: ignore[override]
        """Count the copies of many records; emit those that have some."""
        copies = groups.sums("rows", "sign") + groups.sums("counted", "copies")
        rows = groups.keys.append_column("copies", pa.array(copies))
        out.counted(rows.filter(pa.array(copies != 0)))
        out.distinct(groups.keys.filter(pa.array(copies > 0)))
