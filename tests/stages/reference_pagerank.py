"""PageRank from scratch."""

from __future__ import annotations

from collections import defaultdict

Edge = tuple[int, int]


A = 0.85


def links_of(edges: list[Edge]) -> dict[int, set[int]]:
    """Return every page with the pages that it links to."""
    links: dict[int, set[int]] = {node: set() for edge in edges for node in edge}
    for src, dst in edges:
        links[src].add(dst)
    return links


def from_scratch(edges: list[Edge]) -> dict[int, float]:
    """Iterate until no rank moves; the mean rank is 1."""
    links = links_of(edges)
    ranks, moved = dict.fromkeys(links, 1.0), 1.0
    while moved > 1e-13:
        dangling = sum(ranks[node] for node, targets in links.items() if not targets)
        inflow: dict[int, float] = defaultdict(float)
        for node, targets in links.items():
            for target in targets:
                inflow[target] += ranks[node] / len(targets)
        after = {node: 1 - A + A * (inflow[node] + dangling / len(links)) for node in links}
        moved = max(abs(after[node] - ranks[node]) for node in links)
        ranks = after
    return ranks
