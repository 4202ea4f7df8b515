"""Keep the URLs that score high enough in a view, on columns: many URLs at a time.

Source: CBP (SoCC'10), section 1.1, figure 1, "threshold"; the view is ours.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cbp import TranslateArrow
from stages.translators.threshold_view import ThresholdView

__all__ = ["ThresholdViewArrow"]


class ThresholdViewArrow(TranslateArrow):
    """Hold the crawl queue; the results are those of `ThresholdView`, as are the parameters."""

    scored, done, queue = ThresholdView.scored, ThresholdView.done, ThresholdView.queue

    def __init__(self, minimum: float = 1.0) -> None:
        self._minimum = minimum

    def translate(self, groups: Any, out: Any) -> None:
        """Emit the last score of each URL that is not done, whether it is new or not."""
        waits, is_new = groups.sizes("done") == 0, groups.sizes("scored") > 0
        last = groups.offsets("scored")[1:][waits & is_new] - 1
        out.queue(self._high_enough(groups.scored.take(pa.array(last))))
        stays = (waits & ~is_new)[groups.ids("queue")]
        out.queue(self._high_enough(groups.queue.filter(pa.array(stays))))

    def _high_enough(self, rows: Any) -> Any:
        return rows.filter(pc.greater_equal(rows.column("score"), self._minimum))
