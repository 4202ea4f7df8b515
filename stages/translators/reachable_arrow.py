"""Breadth-first search in a graph, while edges come and go, on columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from stages.propagate_arrow import PropagateArrow

__all__ = ["ReachableArrow"]


class ReachableArrow(PropagateArrow):
    """Give each node the least number of edges on a path to it from the source.

    Shape: as in `Reachable`; with `changes=False`, edges are records `(src, dst, gone BOOLEAN)`.

    Args:
        source: The node at which all paths begin.
        node: Type of a node, such as `STRING`.
        directed: Whether an edge leads from `src` to `dst` only.
        limit: Largest number of steps; `None` means no limit.
        changes: Whether edges are the changes of a view.
    """

    def __init__(
        self,
        source: Any,
        node: str = "BIGINT",
        directed: bool = True,
        limit: int | None = None,
        changes: bool = True,
    ) -> None:
        super().__init__("steps BIGINT", node=node, directed=directed, changes=changes)
        self._source, self._limit = source, limit

    def starts(self, nodes: Any) -> Any:
        """Return which node is the source."""
        return nodes == self._source

    def start(self, nodes: Any) -> Any:
        """Return the number of steps to the source."""
        return np.zeros(len(nodes), np.int64)

    def along(self, values: Any, *_: Any) -> Any:
        """Take one more step."""
        return values + 1

    def reaches(self, values: Any) -> Any:
        """Return which steps are within the limit."""
        return values <= (np.iinfo(np.int64).max if self._limit is None else self._limit)
