"""Set difference from scratch."""

from __future__ import annotations

from datetime import datetime
from itertools import groupby

from cbp.testing import Result

Crawl = list[tuple[str, datetime]]


def oracle(a: Crawl, b: Crawl) -> dict[str, list[set[str]]]:
    """Return the URLs that each side alone found, by hours in which any was found."""
    hours = {side: {} for side in "ab"}  # type: dict[str, dict[datetime, set[str]]]
    for side, crawl in (("a", a), ("b", b)):
        for hour, actual in groupby(crawl, lambda record: record[1].replace(minute=0)):
            hours[side].setdefault(hour, set()).update(url for url, _ in actual)
    seen: set[str] = set()
    diffs: dict[str, list[set[str]]] = {"a": [], "b": []}
    for hour in sorted(hours["a"].keys() | hours["b"].keys()):
        in_a, in_b = hours["a"].get(hour, set()), hours["b"].get(hour, set())
        diffs["a"].append(in_a - in_b - seen)
        diffs["b"].append(in_b - in_a - seen)
        seen |= in_a | in_b
    return diffs


def diffs(result: Result) -> dict[str, list[set[str]]]:
    """Return what came out per epoch that read something."""
    return {
        side: [{row.url for row in epoch} for epoch in result.outputs[f"{side}_diff"]]
        for side in "ab"
    }
