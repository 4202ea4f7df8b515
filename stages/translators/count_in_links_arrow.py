"""Count the links to each URL and to each site, on columns: many sites at a time.

A link counts twice: for its URL, and for its site, whose record has no URL. So one sum gives all
counts: it adds the earlier counts, 1 for each link's URL, and 1 for each link's site.

Source: CBP (SoCC'10), section 1.1, figure 1, "count in-links".
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cbp import Input, Output, State, TranslateArrow

__all__ = ["CountInLinksArrow"]


class CountInLinksArrow(TranslateArrow):
    """Count links per URL and per site; the results are those of `CountInLinks`.

    Unlike `CountInLinks`, it holds all records of a site in memory at the same time.

    Shape:
        links: `(url STRING, site STRING)`; a link has a URL, or the run fails.
        counts (state): `(site, url, n)`; `url` null: all links to the site.
        url_counts: `(site, url, n)`, one record per URL linked to in the epoch.
        site_counts: `(site, n)`, one record per site linked to in the epoch.

    Args:
        grouping: `"inner"`: only sites that the epoch links to are called; `"outer"`: all sites,
            which gives the same result and shows what a scan of the state costs.
    """

    links = Input("url STRING, site STRING", route_by="site", order_by="url")
    url_counts = Output("site STRING, url STRING NOT NULL, n BIGINT", key="site, url")
    site_counts = Output("site STRING, n BIGINT", key="site")

    def __init__(self, grouping: Literal["inner", "outer"] = "inner") -> None:
        self.counts = State("site STRING, url STRING, n BIGINT", grouping=grouping)

    def translate(self, groups: Any, out: Any) -> None:
        """Add the new links of many sites to their counts."""
        urls = groups.links.column("url")
        if urls.null_count:
            message = "a link has no URL"
            raise ValueError(message)
        known, new = groups.counts.num_rows, len(urls)
        of_links = groups.ids("links")
        rows = pa.table(
            {
                "site": np.concatenate([groups.ids("counts"), of_links, of_links]),
                "url": pa.chunked_array(
                    [*groups.counts.column("url").chunks, *urls.chunks, pa.nulls(new, urls.type)],
                    urls.type,
                ),
                "n": np.concatenate([groups.counts.column("n").to_numpy(), np.ones(2 * new, int)]),
                "added": np.repeat([0, 1], [known, 2 * new]),
            }
        )
        # On one thread, so that the earlier counts come first, in their order.
        sums = rows.group_by(["site", "url"], use_threads=False)
        counts = sums.aggregate([("n", "sum"), ("added", "sum")])
        out.counts(_named(groups, counts))
        changed = counts.filter(pc.greater(counts.column("added_sum"), 0))
        changed = changed.sort_by([("site", "ascending"), ("url", "ascending")])
        of_site = changed.column("url").is_null()
        out.url_counts(_named(groups, changed.filter(pc.invert(of_site))))
        out.site_counts(_named(groups, changed.filter(of_site)).drop_columns(["url"]))


def _named(groups: Any, counts: pa.Table) -> pa.Table:
    """Return counts with the sites' names instead of their numbers."""
    names = groups.keys.column("site").take(counts.column("site"))
    return pa.table({"site": names, "url": counts.column("url"), "n": counts.column("n_sum")})
