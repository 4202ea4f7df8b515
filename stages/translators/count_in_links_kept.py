"""Count the links to each URL and to each site, with state that is kept.

It looks up the counts of the URLs that are linked to, and reads no others. The state is that of
`CountInLinks`: a record per URL, and one for the site itself, whose `url` is null.

Source: CBP (SoCC'10), section 1.1, figure 1, "count in-links".
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from cbp import State, Translate
from stages.translators.count_in_links import CountInLinks

__all__ = ["CountInLinksKept"]


class CountInLinksKept(Translate):
    """Count links per URL and per site; the results are those of `CountInLinks`.

    The cost of a call depends on its links, not on the size of the site.

    Shape:
        links: `(url STRING, site STRING)`; a link has a URL, or the run fails.
        counts (state): `(site, url, n)`; `url` null: all links to the site.
        url_counts: `(site, url, n)`, one record per URL linked to in the epoch.
        site_counts: `(site, n)`, one record per site linked to in the epoch.
    """

    links, url_counts = CountInLinks.links, CountInLinks.url_counts
    site_counts = CountInLinks.site_counts
    counts = State("site STRING, url STRING, n BIGINT", keep=True, key="site, url")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Add the new links of one site to the counts that they name."""
        name, known = key.site, group.counts.get
        site = known(None)
        links = Counter(link.url for link in group.links)  # in the order of the URLs
        if None in links:
            message = "a link has no URL"
            raise ValueError(message)
        for url, n in links.items():
            if (before := known(url)) is not None:
                n += before.n
            out.counts(name, url, n)
            out.url_counts(name, url, n)
        added = links.total()
        total = added + (site.n if site else 0)
        out.counts(name, None, total)
        if added:
            out.site_counts(name, total)
