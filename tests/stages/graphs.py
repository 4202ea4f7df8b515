"""Small seeded graphs for the applications, cut into increments."""

from __future__ import annotations

import itertools
import random
from typing import Any

Edge = tuple[int, int]


def small_world(nodes: int, *, seed: int = 1) -> list[Edge]:
    """Return the edges of a ring with chords, in any order and direction."""
    chance = random.Random(seed)
    edges = {(n, (n + step) % nodes) for n in range(nodes) for step in (1, 2)}
    edges |= {(chance.randrange(nodes), chance.randrange(nodes)) for _ in range(nodes)}
    return chance.sample(sorted(edges), len(edges))


def small_web(pages: int, *, seed: int = 1) -> list[Edge]:
    """Return the links of a web: some pages get many, some have none."""
    chance = random.Random(seed)
    sources = range(pages // 10, pages)
    edges = {(chance.choice(sources), int(pages * chance.random() ** 2)) for _ in range(2 * pages)}
    return chance.sample(sorted(edges), len(edges))


def increments(edges: list[Edge], many: int) -> list[dict[str, list[dict[str, Any]]]]:
    """Return the edges as so many increments of a source `edges`: one large, the others small."""
    records = [{"src": src, "dst": dst} for src, dst in edges]
    cuts = [0, *range(len(records) - 3 * (many - 1), len(records) + 1, 3)]
    return [{"edges": records[a:b]} for a, b in itertools.pairwise(cuts)]
