"""Keep the URLs that score high enough in a view; last stage of the crawl queue.

Source: CBP (SoCC'10), section 1.1, figure 1, "threshold"; the view is ours.
"""

from __future__ import annotations

from collections import deque
from itertools import chain
from typing import Any

from cbp import Input, Translate, View

__all__ = ["ThresholdView"]


class ThresholdView(Translate):
    """Hold the crawl queue: URLs with their last score, until they are crawled.

    Shape:
        scored: `(site, url, score DOUBLE)`, in the order in which they count.
        done: `(site, url)`, the crawled URLs. A URL never comes before its scores.
        queue: a view `(site, url, score)` with the key `site, url`: the URLs that are not done
            and have a score of at least `minimum`. Comparisons leave out the score, which dates
            from the epoch in which the URL's own links last changed.

    Args:
        minimum: The smallest score in the queue. Every linked URL has a score of at least 1. With
            a larger minimum, the contents of the queue also depend on the split into epochs.
    """

    scored = Input("site STRING, url STRING, score DOUBLE", route_by="site, url")
    done = Input("site STRING, url STRING", route_by="site, url")
    queue = View("site STRING, url STRING, score DOUBLE", key="site, url", not_compared="score")

    def __init__(self, minimum: float = 1.0) -> None:
        self._minimum = minimum

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Emit the last score of one URL; without that, the URL leaves the queue."""
        if any(True for _ in group.done):
            return
        for last in deque(chain(group.queue, group.scored), maxlen=1):
            if last.score >= self._minimum:
                out.queue(*last)
