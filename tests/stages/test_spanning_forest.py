"""Components and spanning forests of whole graphs, against networkx."""

from __future__ import annotations

import networkx as nx
import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.spanning_forest import ForestSearch, best_of, united
from tests.sampling import examples

Int64s = npt.NDArray[np.int64]


def graph_of(seed: int, many: int, links: int) -> tuple[nx.Graph, Int64s, Int64s]:
    """Return a random graph, and the ends of its links, each from both sides, by node."""
    dice = np.random.default_rng(seed)
    ends = dice.integers(0, many, (links, 2))
    graph = nx.Graph()
    graph.add_nodes_from(range(many))
    graph.add_edges_from(ends.tolist())
    both = sorted({(a, b) for a, b in graph.edges} | {(b, a) for a, b in graph.edges})
    node, other = np.array(both, np.int64).reshape(-1, 2).T
    return graph, node, other


@settings(max_examples=examples(30), deadline=None)
@given(seed=st.integers(0, 1 << 30), many=st.integers(1, 60), share=st.integers(0, 4))
def test_each_node_gets_the_least_of_its_component(seed: int, many: int, share: int) -> None:
    """Single nodes, links to a node itself and long paths included."""
    graph, node, other = graph_of(seed, many, share * many // 2)
    right = {one: min(part) for part in nx.connected_components(graph) for one in part}
    assert united(many, node, other).tolist() == [right[one] for one in range(many)]


def test_many_links_a_node_give_the_same() -> None:
    """A few links are looked at first; what only the others unite, and a node without any."""
    dice, many = np.random.default_rng(6), 3_001
    left = dice.integers(0, many - 1, 60_000)
    right = (dice.integers(0, many - 1, 60_000) & ~3) | (left & 3)  # four parts
    left, right = np.append(left, 4), np.append(right, 5)  # of which two hang together here alone
    for turned in (1, -1):
        label = united(many, left[::turned], right[::turned])
        assert label[:-1].tolist() == [{0: 0, 1: 0, 2: 2, 3: 3}[one & 3] for one in range(many - 1)]
        assert label[-1] == many - 1


def test_a_long_path_takes_few_rounds() -> None:
    """A path of 100,000 nodes in a random order is one component at once."""
    order = np.random.default_rng(4).permutation(100_000)
    assert not united(len(order), order[:-1], order[1:]).any()


@settings(max_examples=examples(30), deadline=None)
@given(seed=st.integers(0, 1 << 30), many=st.integers(1, 60), share=st.integers(0, 6))
def test_all_nodes_that_a_path_leads_to_hang_in_a_forest(seed: int, many: int, share: int) -> None:
    """Each hangs under the least neighbor of the level before it, so no cycle holds itself up."""
    graph, node, other = graph_of(seed, many, share * many // 2)
    dice = np.random.default_rng(seed)
    is_root, is_left = dice.random(many) < 0.2, dice.random(many) < 0.8
    is_left &= ~is_root
    sizes = np.bincount(node, minlength=many)
    search = ForestSearch(np.cumsum(sizes) - sizes, sizes, other)
    found, under = search.grow(is_root.copy(), is_left)
    allowed = graph.subgraph(np.flatnonzero(is_root | is_left).tolist())
    roots = np.flatnonzero(is_root).tolist()
    level = nx.multi_source_dijkstra_path_length(allowed, roots) if roots else {}
    assert {*found.tolist()} == {one for one, steps in level.items() if steps}
    for one, near in zip(found.tolist(), under.tolist(), strict=True):
        above = [n for n in allowed[one] if level.get(n, many) == level[one] - 1]
        assert near == min(above)


def test_the_best_of_each_label() -> None:
    """The least, or the largest; of numbers, and of texts; a label without values has none."""
    label = np.array([2, 0, 2, 0])
    best, has = best_of(label, 3, np.array([5, 9, 4, 7]), largest=False)
    assert (best[has].tolist(), has.tolist()) == ([7, 4], [True, False, True])
    best, has = best_of(label, 3, np.array(["b", "z", "c", "y"], object), largest=True)
    assert (best[has].tolist(), has.tolist()) == (["z", "c"], [True, False, True])
    assert not best_of(label[:0], 2, np.empty(0, np.int64), largest=False)[1].any()
