"""Extract the links of pages; first stage of the crawl queue.

Source: CBP (SoCC'10), section 1.1, figure 1, "extract links".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from cbp import Input, Output, TranslateRecords

__all__ = ["ExtractLinks"]


def _first_label(url: str) -> str:
    return url.partition(".")[0]


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:  # pages contain links such as "http://[", which cannot be parsed
        return ""


_SITE_RULES: dict[str, Callable[[str], str]] = {"first_label": _first_label, "host": _host}


class ExtractLinks(TranslateRecords):
    """Emit the links of each page, and that the page was crawled.

    On both outputs, the site of a URL follows from the URL alone, so that a page and the links to
    it are always in one group.

    Shape:
        pages: `(url STRING, links ARRAY<STRING>)`; a page has a URL, or the run fails.
        links: `(source STRING, url STRING, site STRING)`, one record per page and
            distinct target, in the page's order; empty targets are left out.
        crawled: `(url STRING, site STRING)`, one record per page.

    Args:
        site_rule: `"first_label"` takes the first part of a dotted name (`numpy` of
            `numpy.linalg`); `"host"` takes the host of a URL, lower-case, or `""` if it has none.

    Raises:
        ValueError: If the rule is unknown.
    """

    pages = Input("url STRING, links ARRAY<STRING>")
    links = Output("source STRING NOT NULL, url STRING NOT NULL, site STRING NOT NULL")
    crawled = Output("url STRING NOT NULL, site STRING NOT NULL")

    def __init__(self, site_rule: str = "first_label") -> None:
        if site_rule not in _SITE_RULES:
            message = f"site_rule {site_rule!r} is unknown; use {' or '.join(_SITE_RULES)}"
            raise ValueError(message)
        self._site_of = _SITE_RULES[site_rule]

    def translate(self, record: Any, out: Any) -> None:
        """Emit the links of one page."""
        out.crawled(url=record.url, site=self._site_of(record.url or ""))
        for url in dict.fromkeys(record.links or ()):
            if url:
                out.links(source=record.url, url=url, site=self._site_of(url))
