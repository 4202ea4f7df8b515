"""Merge link counts with crawled pages into the URLs to crawl, on columns: many sites at a time.

The known records of a URL and the records that arrived are rows of one table, in this order. The
last count of a URL, and whether any row is a crawl, are its new known record. The record of the
site itself has a null URL.

For crawl queues that were registered before the queue was a view: a crawled URL is passed on as a
record without a count or score. New ones use `merge_counts_arrow`.

Source: CBP (SoCC'10), section 1.1, figure 1, "merge".
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cbp import Input, Output, State, TranslateArrow

__all__ = ["MergeArrow"]

_ROWS = pa.schema(
    [
        ("site", pa.int64()),
        ("url", pa.large_string()),
        ("n", pa.int64()),
        ("crawled", pa.bool_()),
        ("n_before", pa.int64()),
        ("crawled_before", pa.bool_()),
    ]
)


class MergeArrow(TranslateArrow):
    """Report which URLs are new, have a new count, or are crawled; same results as `Merge`.

    Unlike `Merge`, it holds all records of a site in memory at the same time.

    Shape:
        url_counts: `(site, url, n)`; site_counts: `(site, n)`; crawled: `(url, site)`. Only
            `site` may be null.
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

    def translate(self, groups: Any, out: Any) -> None:
        """Update many sites."""
        for flow in ("url_counts", "crawled"):
            if getattr(groups, flow).column("url").null_count:
                message = f"a record of {flow} has no URL"
                raise ValueError(message)
        now = _folded(groups)
        sites, urls = now.column("site"), now.column("url")
        names = groups.keys.column("site").take(sites)
        n, crawled = now.column("n_last"), now.column("crawled_max")
        out.known({"site": names, "url": urls, "n": n, "crawled": crawled})
        of_site = urls.is_null()
        site_n = np.empty(len(groups), np.int64)
        site_n[sites.filter(of_site).to_numpy()] = n.filter(of_site).to_numpy()
        done = pc.and_not(crawled, now.column("crawled_before_max"))
        moved = pc.and_not(pc.not_equal(n, now.column("n_before_max")), crawled)
        emitted = pc.and_not(pc.or_(done, moved), of_site)
        rows = pa.table({"group": sites, "site": names, "url": urls, "n": n, "crawled": crawled})
        rows = rows.filter(emitted).sort_by([("group", "ascending"), ("url", "ascending")])
        nothing = pa.scalar(None, pa.int64())
        waits = pc.invert(rows.column("crawled"))
        of_sites = pa.array(site_n[rows.column("group").to_numpy()])
        out.candidates(
            {
                "site": rows.column("site"),
                "url": rows.column("url"),
                "n": pc.if_else(waits, rows.column("n"), nothing),
                "site_n": pc.if_else(waits, of_sites, nothing),
                "crawled": rows.column("crawled"),
            }
        )


def _folded(groups: Any) -> pa.Table:
    """Return what is known about each URL and each site before and after this epoch.

    Shape:
        `(site, url, n_last, crawled_max, n_before_max, crawled_before_max)`, where `site` is
        the number of the group; known URLs come first, in their order.
    """
    known = groups.known
    parts = [
        _rows(
            groups.ids("known"),
            known.column("url"),
            n=known.column("n"),
            crawled=known.column("crawled"),
            n_before=known.column("n"),
            crawled_before=known.column("crawled"),
        ),
        _rows(
            groups.ids("url_counts"),
            groups.url_counts.column("url"),
            n=groups.url_counts.column("n"),
        ),
        _rows(groups.ids("site_counts"), None, n=groups.site_counts.column("n")),
        _rows(groups.ids("crawled"), groups.crawled.column("url"), crawled=True),
        _rows(np.arange(len(groups)), None),  # every site that is called has a record
    ]
    # On one thread, so that "last" is really the last count.
    folded = pa.concat_tables(parts).group_by(["site", "url"], use_threads=False)
    return _filled(
        folded.aggregate(
            [("n", "last"), ("crawled", "max"), ("n_before", "max"), ("crawled_before", "max")]
        )
    )


def _rows(sites: npt.NDArray[np.int64], urls: pa.ChunkedArray | None, **columns: Any) -> pa.Table:
    """Return rows of `_ROWS`; a missing column is null, a single value is for all rows."""
    given: dict[str, Any] = {"site": sites, **({} if urls is None else {"url": urls})} | columns
    arrays = []
    for field in _ROWS:
        value = given.get(field.name)
        if value is None or isinstance(value, bool):
            value = pa.repeat(pa.scalar(value, field.type), len(sites))
        arrays.append(value)
    return pa.table(arrays, schema=_ROWS)


def _filled(folded: pa.Table) -> pa.Table:
    """Return the table with 0 and false instead of nulls, except in `site` and `url`."""
    columns = {
        name: pc.fill_null(column, 0 if pa.types.is_integer(column.type) else False)
        if name not in ("site", "url")
        else column
        for name, column in zip(folded.column_names, folded.columns, strict=True)
    }
    return pa.table(columns)
