"""Pass on URLs that score high enough; last stage of the crawl queue.

For crawl queues that were registered before the queue was a view: a crawled URL is passed on as a
record without a count or score. New ones use `threshold_view`.

Source: CBP (SoCC'10), section 1.1, figure 1, "threshold".
"""

from __future__ import annotations

from typing import Any

from cbp import Input, Output, TranslateRecords

__all__ = ["Threshold"]


class Threshold(TranslateRecords):
    """Put URLs into the crawl queue, and report when they leave it.

    A record with a score is a URL to crawl, or its new score. A URL without a score was crawled,
    and leaves the queue. So the last record of each URL, if it has a score, is in the queue.

    Shape:
        scored: `(site, url, score DOUBLE)`.
        queue: the records that score at least `minimum`, and those that have no score.

    Args:
        minimum: The least score that passes.
    """

    scored = Input("site STRING, url STRING, score DOUBLE")
    queue = Output("site STRING, url STRING, score DOUBLE", key="site, url", history=True)

    def __init__(self, minimum: float = 1.0) -> None:
        self._minimum = minimum

    def translate(self, record: Any, out: Any) -> None:
        """Emit one record if it scores high enough, or has no score."""
        if record.score is None or record.score >= self._minimum:
            out.queue(*record)
