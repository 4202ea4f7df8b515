"""Merge link counts with crawled pages into the URLs to crawl; third stage of the crawl queue.

Source: CBP (SoCC'10), section 1.1, figure 1, "merge".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import Any, Literal, NamedTuple

from cbp import Input, Output, State, Translate

__all__ = ["MergeCounts"]

_Event = tuple[str, str, Any]
"""A URL, what the record says of it, and the record."""

_url = itemgetter(0)


class _Known(NamedTuple):
    """What is known about a URL: the number of links to it, and whether it was crawled."""

    n: int = 0
    crawled: bool = False


class MergeCounts(Translate):
    """Report which URLs are to be crawled, with their counts, and which no longer are.

    Counts are running totals: the last one is valid. An epoch emits for a URL:

    - In `candidates`, if it was never crawled, and its count is new or has changed: `(n, site_n)`.
      `site_n` is the site's count in this epoch. If it changes, it is not emitted again for the
      other URLs of the site.
    - In `done`, if it was a candidate in an earlier epoch, and is crawled for the first time.
    - If it was crawled before: nothing, even if its count changes.

    Invariant: state, and the URLs that are candidates and not done, are the same however the three
    inputs are split into epochs, and in whichever epochs they arrive. Both outputs depend on the
    epochs, so they are histories.

    Shape:
        url_counts: `(site, url, n)`; site_counts: `(site, n)`; crawled: `(url, site)`.
        known (state): `(site, url, n, crawled)`, a record per URL, and one with a null
            `url` that holds the site's count.
        candidates: `(site, url, n, site_n)`, ordered by URL within a site.
        done: `(site, url)`, ordered like `candidates`.

    Args:
        grouping: `"inner"`: only sites that some input names are called; `"outer"`: all sites,
            with the same result.
        keep: Whether the state is kept: the cost of a call then depends on the URLs that its
            inputs name, not on the size of the site, and these URLs are in memory. The tables
            are the same. Only with `"inner"`.
    """

    url_counts = Input("site STRING, url STRING, n BIGINT", route_by="site", order_by="url")
    site_counts = Input("site STRING, n BIGINT", route_by="site")
    crawled = Input("url STRING, site STRING", route_by="site", order_by="url")
    candidates = Output(
        "site STRING, url STRING NOT NULL, n BIGINT, site_n BIGINT", key="site, url", history=True
    )
    done = Output("site STRING, url STRING NOT NULL", history=True)

    def __init__(
        self, grouping: Literal["inner", "outer"] = "inner", *, keep: bool = False
    ) -> None:
        self._keep = keep
        self.known = State(
            "site STRING, url STRING, n BIGINT, crawled BOOLEAN",
            grouping=grouping,
            keep=keep,
            key="site, url" if keep else None,
        )

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Update one site; all flows are ordered by URL, so memory is constant."""
        if self._keep:
            _update_named(key.site, group, out)
            return
        site, by_url = _merged(group)
        site_n = site.n if site else 0
        for row in group.site_counts:
            site_n = row.n
        out.known(site=key.site, url=None, n=site_n, crawled=False)
        for url, events in by_url:
            before, after = _update(events)
            out.known(key.site, url, *after)
            if not after.crawled and after.n != before.n:
                out.candidates(key.site, url, after.n, site_n)
            elif after.crawled and not before.crawled and before.n:
                out.done(key.site, url)


def _merged(group: Any) -> tuple[Any, Iterator[tuple[str, Iterable[_Event]]]]:
    """Return the record of a site, and the events of all its URLs, in order."""
    known = iter(group.known)
    site = next(known, None)  # nulls come first: the record of the site itself
    # `merge` is stable: for each URL, the known record comes first.
    events = merge(((row.url, "known", row) for row in known), *_arrived(group), key=_url)
    return site, groupby(events, _url)


def _update_named(site: Any, group: Any, out: Any) -> None:
    """Update the URLs of a site that some input names, in order."""
    known = group.known.get
    last = known(None)  # the record of the site itself
    site_n = last.n if last else 0
    for row in group.site_counts:
        site_n = row.n
    out.known(site, None, site_n, False)
    counts = {row.url: row.n for row in group.url_counts}  # the last one is valid
    crawled = {row.url for row in group.crawled}
    if None in counts or None in crawled:
        message = "a record has no URL"
        raise ValueError(message)
    for url in sorted(counts.keys() | crawled) if crawled else counts:
        before = known(url)
        n_before, was_crawled = (before.n, before.crawled) if before else (0, False)
        n, is_crawled = counts.get(url, n_before), was_crawled or url in crawled
        out.known(site, url, n, is_crawled)
        if not is_crawled and n != n_before:
            out.candidates(site, url, n, site_n)
        elif is_crawled and not was_crawled and n_before:
            out.done(site, url)


def _arrived(group: Any) -> tuple[Iterator[_Event], Iterator[_Event]]:
    return (
        ((row.url, "count", row) for row in group.url_counts),
        ((row.url, "crawl", row) for row in group.crawled),
    )


def _update(events: Iterable[_Event]) -> tuple[_Known, _Known]:
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
