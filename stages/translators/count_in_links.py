"""Count the links to each URL and to each site; second stage of the crawl queue.

The paper routes by site and by URL. Here one group per site counts both, with one state record
per URL and one for the site itself, whose `url` is null. It needs constant memory, however large
a site is: links and state are both ordered by URL (nulls first), and are merged.

Source: CBP (SoCC'10), section 1.1, figure 1, "count in-links".
"""

from __future__ import annotations

from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import Any, Literal

from cbp import Input, Output, State, Translate

__all__ = ["CountInLinks"]

_url = itemgetter(0)


class CountInLinks(Translate):
    """Count links per URL and per site.

    Shape:
        links: `(url STRING, site STRING)`; a link has a URL, or the run fails.
        counts (state): `(site, url, n)`; `url` null: all links to the site.
        url_counts: `(site, url, n)`, one record per URL linked to in the epoch.
        site_counts: `(site, n)`, one record per site linked to in the epoch.

    The last record per URL and per site is the same however the input is split.

    Args:
        grouping: `"inner"`: only sites that the epoch links to are called; `"outer"`: all sites,
            which gives the same result and shows what a scan of the state costs.
    """

    links = Input("url STRING, site STRING", route_by="site", order_by="url")
    url_counts = Output("site STRING, url STRING NOT NULL, n BIGINT", key="site, url")
    site_counts = Output("site STRING, n BIGINT", key="site")

    def __init__(self, grouping: Literal["inner", "outer"] = "inner") -> None:
        self.counts = State("site STRING, url STRING, n BIGINT", grouping=grouping)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Add the new links of one site to its counts."""
        counts = iter(group.counts)
        site = next(counts, None)  # nulls come first: the record of the site itself
        total = site.n if site else 0
        known = ((row.url, row.n, 0) for row in counts)
        links = ((link.url, 0, 1) for link in group.links)
        added = 0
        for url, rows in groupby(merge(known, links, key=_url), _url):
            n = new = 0
            for _, before, one in rows:
                n, new = n + before + one, new + one
            out.counts(site=key.site, url=url, n=n)
            if new:
                out.url_counts(site=key.site, url=url, n=n)
                added += new
        out.counts(site=key.site, url=None, n=total + added)
        if added:
            out.site_counts(site=key.site, n=total + added)
