"""Steps from one node to each other node of a graph, while edges come and go.

    edges -> [ node: its links, and what its neighbours said ] -> distances
                 '------------- news of the distance -----------'      (a loopback)

Each node is one step farther than the nearest of the nodes that link to it. Nodes on a cycle that
was cut off support each other for a while; their distances grow by a step in each epoch, up to a
limit. After that many epochs without new edges, no distance depends on a removed path.
"""

from __future__ import annotations

from typing import Any

from cbp import Input, Loopback, State, Translate, View

__all__ = ["Distances"]


class Distances(Translate):
    """Breadth-first search: the least number of steps from a source node along directed edges.

    Shape:
        edges: the changes of a view that has `(src BIGINT, dst BIGINT)` as its key.
        distances: a view `(node BIGINT, distance INT)` with the key `node`: the nodes that are
            reached in at most `limit` steps. The source itself is included while an edge leaves it.

    Args:
        source: The node at which all paths begin.
        limit: Largest number of steps. Removed edges cost up to as many epochs.
    """

    key = "node BIGINT"
    edges = Input("src BIGINT, dst BIGINT, sign INT", route_by="src", changes="signed")
    news = Loopback("node BIGINT, origin BIGINT, steps INT", route_by="node")
    links = State("node BIGINT, dst BIGINT")
    near = State("node BIGINT, origin BIGINT, steps INT")
    distances = View("node BIGINT, distance INT", key="node")

    def __init__(self, source: int, limit: int = 100) -> None:
        self._source, self._far = source, limit + 1

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Apply the input, and send messages to linked nodes whose distance may change."""
        far, before = self._far, {row.dst for row in group.links}
        links, old = set(before), next((row.distance for row in group.distances), self._far)
        for edge in group.edges:
            (links.add if edge.sign > 0 else links.discard)(edge.dst)
        near = {row.origin: row.steps for row in (*group.near, *group.news)}
        is_source = bool(links) and key.node == self._source
        distance = 0 if is_source else min([far, *near.values()])
        for dst in sorted(before | links):
            told = min(old + 1, far) if dst in before else far
            steps = min(distance + 1, far) if dst in links else far
            if steps != told:
                out.news(node=dst, origin=key.node, steps=steps)
        for dst in sorted(links):
            out.links(node=key.node, dst=dst)
        for origin, steps in sorted(near.items()):
            if steps < far:
                out.near(node=key.node, origin=origin, steps=steps)
        if distance < far:
            out.distances(node=key.node, distance=distance)
