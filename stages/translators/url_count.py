"""Count how often each URL was seen; the smallest stage with state.

Source: CBP (SoCC'10), section 2.1, the example URLCount.
"""

from __future__ import annotations

from typing import Any

from cbp import Input, Output, State, Translate

__all__ = ["UrlCount"]


class UrlCount(Translate):
    """Count how often each URL was seen.

    Shape:
        urls: `(url STRING)`.
        totals: `(url STRING, n BIGINT)`, one record per URL seen in the epoch; the last
            one per URL is the same however the input is split.
    """

    urls = Input("url STRING", route_by="url")
    counts = State("url STRING, n BIGINT", grouping="inner")
    totals = Output("url STRING, n BIGINT", key="url")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Add the new sightings of one URL to its count."""
        n = sum(1 for _ in group.urls) + sum(row.n for row in group.counts)
        out.counts(url=key.url, n=n)
        out.totals(url=key.url, n=n)
