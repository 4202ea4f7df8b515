"""Links in memory: after any changes, what arranging all links anew gives."""

from __future__ import annotations

import numpy as np

from stages.link_arrays import LinkChanges
from stages.links_in_memory import OutLinks


def changes(links: set[tuple[int, int]]) -> LinkChanges:
    """Return links as changes."""
    node, other = np.array(sorted(links), np.int64).reshape(-1, 2).T
    none = np.zeros(len(node), np.int32)
    return LinkChanges(node, other, (), none, none, none, none)


def test_links_that_come_and_go_are_those_of_their_nodes() -> None:
    """Nodes that had none, that have none any more, that are new; until the array is full."""
    dice, nodes = np.random.default_rng(3), 30
    there = {(int(a), int(b)) for a, b in dice.integers(0, nodes, (200, 2))}
    src, dst = np.array(sorted(there, key=lambda pair: pair[::-1])).T
    links = OutLinks(src, dst, nodes)
    for _ in range(40):
        nodes += 1
        come = {(int(a), int(b)) for a, b in dice.integers(0, nodes, (5, 2))} - there
        gone = {sorted(there)[at] for at in dice.integers(0, len(there), 6)}
        links.change(changes(come), changes(gone), nodes)
        there = (there | come) - gone
        asked = dice.permutation(nodes)
        at, other = links.of(asked)
        assert sorted(zip(asked[at].tolist(), other.tolist(), strict=True)) == sorted(there)
        assert np.all(np.diff(at) >= 0)
