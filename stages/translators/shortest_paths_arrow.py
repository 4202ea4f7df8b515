"""Lengths of the shortest paths from one node, while edges come, go and change, on columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from stages.propagate_arrow import PropagateArrow

__all__ = ["ShortestPathsArrow"]


class ShortestPathsArrow(PropagateArrow):
    """Give each node the least total of the weights on a path to it from the source.

    Shape: as in `ShortestPaths`.

    Args:
        source: The node at which all paths begin.
        node: Type of a node, such as `STRING`.
        directed: Whether an edge leads from `src` to `dst` only.
    """

    def __init__(self, source: Any, node: str = "BIGINT", directed: bool = True) -> None:
        super().__init__("distance DOUBLE", node=node, edge="weight DOUBLE", directed=directed)
        self._source = source

    def starts(self, nodes: Any) -> Any:
        """Return which node is the source."""
        return nodes == self._source

    def start(self, nodes: Any) -> Any:
        """Return the distance of the source."""
        return np.zeros(len(nodes))

    def along(self, values: Any, *edge: Any) -> Any:
        """Add the weights of edges.

        Raises:
            ValueError: A weight is negative: around a cycle, paths would get shorter forever.
        """
        (weights,) = edge
        if (weights < 0).any():
            message = f"an edge has the weight {weights.min()}; weights are 0 or more"
            raise ValueError(message)
        return values + weights
