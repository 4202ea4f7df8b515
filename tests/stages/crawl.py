"""A crawl in plain Python: what the stages of the crawl queue must come to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

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
