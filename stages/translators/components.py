"""Connected components of a graph, while edges come and go."""

from __future__ import annotations

from typing import Any

from stages.propagate import Propagate

__all__ = ["Components"]


class Components(Propagate):
    """Label each node with the least node that it is linked to, by any number of edges.

    Shape:
        edges: the changes of a view with the columns `src` and `dst`; the direction does not
            matter.
        nodes: a view `(node, label)` with the key `node`: the nodes that have an edge.

    Args:
        node: Type of a node, such as `STRING`.
    """

    def __init__(self, node: str = "BIGINT") -> None:
        super().__init__(f"label {node}", node=node)

    def start(self, node: Any) -> Any:
        """Return the node itself."""
        return node

    def along(self, value: Any, *_: Any) -> Any:
        """Return the label unchanged."""
        return value
