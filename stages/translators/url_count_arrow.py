"""Count how often each URL was seen, on columns: many URLs at a time.

Source: CBP (SoCC'10), section 2.1, the example URLCount.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from cbp import Input, Output, State, TranslateArrow

__all__ = ["UrlCountArrow"]


class UrlCountArrow(TranslateArrow):
    """Count how often each URL was seen; the results are those of `UrlCount`.

    Shape:
        urls: `(url STRING)`.
        totals: `(url STRING, n BIGINT)`, one record per URL seen in the epoch; the last
            one per URL is the same however the input is split.
    """

    urls = Input("url STRING", route_by="url")
    counts = State("url STRING, n BIGINT", grouping="inner")
    totals = Output("url STRING, n BIGINT", key="url")

    def translate(self, groups: Any, out: Any) -> None:
        """Add the new sightings of many URLs to their counts."""
        n = groups.sizes("urls") + groups.sums("counts", "n")
        rows = groups.keys.append_column("n", pa.array(n))
        out.counts(rows)
        out.totals(rows)
