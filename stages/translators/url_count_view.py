"""Count how often each URL was seen, as a table of the current counts.

Source: CBP (SoCC'10), section 2.1, the example URLCount; the view is ours.
"""

from __future__ import annotations

from typing import Any

from cbp import Input, Translate, View

__all__ = ["UrlCountView"]


class UrlCountView(Translate):
    """Count how often each URL was seen.

    Shape:
        urls: `(url STRING)`.
        counts: a view `(url STRING, n BIGINT)` with the key `url`: how often each URL was seen.
    """

    urls = Input("url STRING", route_by="url")
    counts = View("url STRING, n BIGINT", key="url")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Add the new sightings of one URL to its count."""
        n = sum(1 for _ in group.urls) + sum(row.n for row in group.counts)
        out.counts(url=key.url, n=n)
