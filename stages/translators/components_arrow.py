"""Connected components of a graph, while edges come and go, on columns."""

from __future__ import annotations

from typing import Any

from stages.propagate_arrow import PropagateArrow

__all__ = ["ComponentsArrow"]


class ComponentsArrow(PropagateArrow):
    """Label each node with the least node that it is linked to, by any number of edges.

    Shape: as in `Components`; with `changes=False`, edges are records `(src, dst, gone BOOLEAN)`.

    Args:
        node: Type of a node, such as `STRING`.
        changes: Whether edges are the changes of a view.
    """

    def __init__(self, node: str = "BIGINT", changes: bool = True) -> None:
        super().__init__(f"label {node}", node=node, changes=changes)

    def start(self, nodes: Any) -> Any:
        """Return the nodes themselves."""
        return nodes
