"""Score the candidates of a crawl; fourth stage of the crawl queue.

For crawl queues that were registered before the queue was a view: a crawled URL is passed on as a
record without a count or score. New ones use `score_candidates`.

Source: CBP (SoCC'10), section 1.1, figure 1, "score"; the formula is ours.
"""

from __future__ import annotations

from math import log2
from typing import Any

from cbp import Input, Output, TranslateRecords

__all__ = ["Score"]


class Score(TranslateRecords):
    """Score a URL by the links to it and to its site: `log2(1+n) + w * log2(1+site_n)`.

    A score never falls while counts grow, so a URL that passed a threshold once passes
    it again. It is rounded to 6 places, since the last bits of `log2` differ between machines.

    Shape:
        candidates: `(site, url, n, site_n, crawled)`.
        scored: `(site, url, score DOUBLE)`, one record per candidate; the score of a crawled
            URL is null.

    Args:
        site_weight: Weight `w` of the site's links, compared to the URL's own; not negative.

    Raises:
        ValueError: If the weight is negative.
    """

    candidates = Input("site STRING, url STRING, n BIGINT, site_n BIGINT, crawled BOOLEAN")
    scored = Output("site STRING, url STRING, score DOUBLE", key="site, url", history=True)

    def __init__(self, site_weight: float = 0.5) -> None:
        if not site_weight >= 0:
            message = f"site_weight is {site_weight}; give a number from 0 on"
            raise ValueError(message)
        self._site_weight = site_weight

    def translate(self, record: Any, out: Any) -> None:
        """Score one candidate."""
        score = None
        if not record.crawled:
            score = round(log2(1 + record.n) + self._site_weight * log2(1 + record.site_n), 6)
        out.scored(site=record.site, url=record.url, score=score)
