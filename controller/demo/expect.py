"""Computes, from the pages alone, which groups and records an increment must touch.

The counts follow from the documented wiring of the dataflow, not from what an engine did: a link
calls the group of its target's site, and a page calls the group of its own site.

    count_in_links  groups: sites linked to
                    state:  one record per URL linked to, and one per site (its total)
    merge           groups: sites linked to, and sites of the pages
                    state:  one record per URL linked to or crawled now, one per site whose
                            total grew, and one per site that was unknown before

Guaranteed: exact if no page of the increment arrived before
(tests/controller/test_demo_expect.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from controller.demo.corpus import Page

__all__ = ["Touched", "expected_touched"]


@dataclass(frozen=True, slots=True)
class Touched:
    """What one run of one stage touches.

    Attributes:
        groups: Number of groups called.
        state_written: Number of state records that are new or have changed.
    """

    stage: str
    groups: int
    state_written: int


def expected_touched(pages: Sequence[Page], before: Iterable[Page]) -> list[Touched]:
    """Return what the stages with state must touch for `pages`, after the pages `before`."""
    linked = {link for page in pages for link in page.links}
    linked_sites = set(map(_site, linked))
    crawled = {page.url for page in pages}
    called = linked_sites | set(map(_site, crawled))
    known = {_site(url) for page in before for url in (page.url, *page.links)}
    totals = linked_sites | (called - known)
    return [
        Touched("count_in_links", len(linked_sites), len(linked) + len(linked_sites)),
        Touched("merge", len(called), len(linked | crawled) + len(totals)),
    ]


def _site(url: str) -> str:
    return url.partition(".")[0]
