"""A crawl in plain Python: what the stages of the crawl queue must come to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import log2
from typing import Any

from hypothesis import strategies as st

Page = tuple[str, str, list[str | None] | None]

URLS = ["a", "a.x", "a.y", "b.x", "b.z", "ß.ü"]
PAGES = st.tuples(
    st.sampled_from(URLS),
    st.just("ignored"),
    st.none() | st.lists(st.sampled_from([*URLS, "", None]), max_size=4),
)
INCREMENTS = st.lists(st.lists(PAGES, max_size=3), max_size=4)


def site_of(url: str) -> str:
    return url.split(".")[0]


def links_of(pages: Iterable[Page]) -> Counter[str]:
    """Count the pages that link to each URL."""
    return Counter(target for _, _, links in pages for target in {*(links or ())} if target)


def sites_of(links: Counter[str]) -> Counter[str]:
    """Count the links to each site."""
    sites: Counter[str] = Counter()
    for url, n in links.items():
        sites[site_of(url)] += n
    return sites


def queue_of(increments: Iterable[Sequence[Page]]) -> dict[str, float]:
    """Return the URLs to crawl, with their scores as of the increment that last linked to each."""
    links: Counter[str] = Counter()
    crawled: set[str] = set()
    scores: dict[str, float] = {}
    for pages in increments:
        links.update(new := links_of(pages))
        crawled |= {url for url, _, _ in pages}
        sites = sites_of(links)
        for url in new:
            score = log2(1 + links[url]) + 0.5 * log2(1 + sites[site_of(url)])
            scores[url] = round(score, 6)
    return {url: score for url, score in scores.items() if url not in crawled}


@st.composite
def arrivals(draw: st.DrawFn) -> list[dict[str, list[Any]]]:
    """Running totals and crawled pages, each flow split into epochs in its own way."""
    flows: dict[str, list[Any]] = {"url_counts": [], "site_counts": [], "crawled": []}
    urls: Counter[str] = Counter()
    for url in draw(st.lists(st.sampled_from(URLS), max_size=8)):
        urls[url] += 1
        flows["url_counts"].append((site_of(url), url, urls[url]))
        flows["site_counts"].append((site_of(url), sites_of(urls)[site_of(url)]))
    flows["crawled"] = [(url, site_of(url)) for url in draw(st.lists(st.sampled_from(URLS)))]
    count = draw(st.integers(1, 4))
    epochs: list[dict[str, list[Any]]] = [{} for _ in range(count)]
    for name, records in flows.items():
        cuts = sorted(
            draw(st.lists(st.integers(0, len(records)), min_size=count - 1, max_size=count - 1))
        )
        for epoch, start, stop in zip(epochs, [0, *cuts], [*cuts, len(records)], strict=True):
            epoch[name] = records[start:stop]
    return epochs


def crawl_state(epochs: list[dict[str, list[Any]]]) -> tuple[dict[str, int], set[str]]:
    """Return the last count of each URL, and which ones were crawled."""
    urls = {url: n for epoch in epochs for _, url, n in epoch["url_counts"]}
    return urls, {url for epoch in epochs for url, _ in epoch["crawled"]}
