"""Merge link counts with crawled pages into the URLs to crawl; third stage of the crawl queue.

For crawl queues that were registered before the queue was a view: a crawled URL is passed on as a
record without a count or score. New ones use `merge_counts`.

Source: CBP (SoCC'10), section 1.1, figure 1, "merge".
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import Any, Literal, NamedTuple

from cbp import Input, Output, State, Translate

__all__ = ["Merge"]

_url = itemgetter(0)


class _Known(NamedTuple):
    """What is known about a URL: the number of links to it, and whether it was crawled."""

    n: int = 0
    crawled: bool = False


class Merge(Translate):
    """Report which URLs are new, which have a new count, and which are crawled.

    Counts are running totals: the last one is valid. An epoch emits for a URL:

    - If it was never crawled, and its count is new or has changed: `(n, site_n, crawled=false)`.
      `site_n` is the site's count in this epoch. If it changes, it is not emitted again for the
      other URLs of the site.
    - If it was crawled for the first time: once `(null, null, crawled=true)`, whether or not
      anything links to it. It leaves the queue permanently.
    - If it was crawled before: nothing, even if its count changes.

    Invariant: state, and the last `(n, crawled)` per URL, are the same however the three inputs
    are split into epochs, and in whichever epochs they arrive. `site_n` depends on the epoch, so
    the output is a history.

    Shape:
        url_counts: `(site, url, n)`; site_counts: `(site, n)`; crawled: `(url, site)`.
        known (state): `(site, url, n, crawled)`, a record per URL, and one with a null
            `url` that holds the site's count.
        candidates: `(site, url, n, site_n, crawled)`, ordered by URL within a site.

    Args:
        grouping: `"inner"`: only sites that some input names are called; `"outer"`: all sites,
            with the same result.
    """

    url_counts = Input("site STRING, url STRING, n BIGINT", route_by="site", order_by="url")
    site_counts = Input("site STRING, n BIGINT", route_by="site")
    crawled = Input("url STRING, site STRING", route_by="site", order_by="url")
    candidates = Output(
        "site STRING, url STRING NOT NULL, n BIGINT, site_n BIGINT, crawled BOOLEAN",
        key="site, url",
        history=True,
    )

    def __init__(self, grouping: Literal["inner", "outer"] = "inner") -> None:
        self.known = State("site STRING, url STRING, n BIGINT, crawled BOOLEAN", grouping=grouping)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Update one site; all flows are ordered by URL, so memory is constant."""
        known = iter(group.known)
        site = next(known, None)  # nulls come first: the record of the site itself
        site_n = site.n if site else 0
        for row in group.site_counts:
            site_n = row.n
        out.known(site=key.site, url=None, n=site_n, crawled=False)
        # `merge` is stable: for each URL, the known record comes first.
        events = merge(
            ((row.url, "known", row) for row in known),
            ((row.url, "count", row) for row in group.url_counts),
            ((row.url, "crawl", row) for row in group.crawled),
            key=_url,
        )
        for url, of_url in groupby(events, _url):
            before, after = _update(of_url)
            out.known(key.site, url, *after)
            if after.crawled and not before.crawled:
                out.candidates(key.site, url, None, None, True)
            elif not after.crawled and after.n != before.n:
                out.candidates(key.site, url, after.n, site_n, False)


def _update(events: Iterable[tuple[str, str, Any]]) -> tuple[_Known, _Known]:
    """Return what is known about a URL before and after its events of this epoch."""
    before = after = _Known()
    for _, kind, row in events:
        if kind == "known":
            before = after = _Known(row.n, row.crawled)
        elif kind == "count":
            after = after._replace(n=row.n)
        else:
            after = after._replace(crawled=True)
    return before, after
