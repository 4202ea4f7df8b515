"""Breadth-first search in a graph, while edges come and go."""

from __future__ import annotations

from typing import Any

from stages.propagate import Propagate

__all__ = ["Reachable"]


class Reachable(Propagate):
    """Give each node the least number of edges on a path to it from the source.

    Shape:
        edges: the changes of a view with the columns `src` and `dst`.
        nodes: a view `(node, steps BIGINT)` with the key `node`: the nodes that are reached.
            The source is included while an edge leaves it.

    Args:
        source: The node at which all paths begin.
        node: Type of a node, such as `STRING`.
        directed: Whether an edge leads from `src` to `dst` only.
        limit: Largest number of steps; `None` means no limit.
    """

    def __init__(
        self,
        source: Any,
        node: str = "BIGINT",
        directed: bool = True,
        limit: int | None = None,
    ) -> None:
        super().__init__("steps BIGINT", node=node, directed=directed)
        self._source, self._limit = source, limit

    def start(self, node: Any) -> Any:
        """Return the number of steps to the source."""
        return 0 if node == self._source else None

    def along(self, value: Any, *_: Any) -> Any:
        """Take one more step, within the limit."""
        return None if value == self._limit else value + 1
