"""Lengths of the shortest paths from one node of a graph, while edges come, go and change."""

from __future__ import annotations

from typing import Any

from stages.propagate import Propagate

__all__ = ["ShortestPaths"]


class ShortestPaths(Propagate):
    """Give each node the least total of the weights on a path to it from the source.

    Shape:
        edges: the changes of a view with the columns `src`, `dst` and `weight DOUBLE`; an edge
            without a weight is ignored.
        nodes: a view `(node, distance DOUBLE)` with the key `node`: the nodes that are reached.
            The source is included while an edge leaves it.

    Args:
        source: The node at which all paths begin.
        node: Type of a node, such as `STRING`.
        directed: Whether an edge leads from `src` to `dst` only.
    """

    def __init__(self, source: Any, node: str = "BIGINT", directed: bool = True) -> None:
        super().__init__("distance DOUBLE", node=node, edge="weight DOUBLE", directed=directed)
        self._source = source

    def start(self, node: Any) -> Any:
        """Return the distance of the source."""
        return 0.0 if node == self._source else None

    def along(self, value: Any, *edge: Any) -> Any:
        """Add the weight of an edge.

        Raises:
            ValueError: The weight is negative: around a cycle, paths would get shorter forever.
        """
        (weight,) = edge
        if weight < 0:
            message = f"an edge has the weight {weight}; weights are 0 or more"
            raise ValueError(message)
        return value + weight
