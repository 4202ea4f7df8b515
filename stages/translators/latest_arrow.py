"""Keep the last record of each key in a view, on columns: many keys at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cbp import TranslateArrow
from stages.translators.latest import Latest

__all__ = ["LatestArrow"]


class LatestArrow(TranslateArrow, Latest):
    """The last record of each key; the results are those of `Latest`."""

    # The other form has the declarations; here a call gets many groups.
    def translate(self, groups: Any, out: Any) -> None:  # type: ignore[override]
        """Emit the last records of many keys, except removed ones."""
        called = np.flatnonzero(groups.sizes("rows"))
        last = groups.rows.take(pa.array(groups.offsets("rows")[called + 1] - 1))
        out.latest(last if self._gone is None else last.filter(pc.field(self._gone).is_valid()))
