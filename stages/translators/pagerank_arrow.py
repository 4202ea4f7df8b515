"""PageRank to a declared error, while links come and go, on columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stages.residuals_arrow import ResidualsArrow

__all__ = ["PageRankArrow"]


class PageRankArrow(ResidualsArrow):
    """Keep a score of every page that has a link; see `stages.residuals_arrow`.

    Pages without links give nothing. In the usual PageRank, such pages give to all pages. The
    scores differ from its ranks by a common factor only: divided by their sum, they are its ranks.

    Shape:
        ranks: a view `(node, score DOUBLE)` with the key `node`. The mean is 1, or less if there
            are pages without links.

    Args:
        damping: The share of a score that its links get.
        error: Largest mean over all pages of the difference between a score and the right one.
        node: Type of a page, such as `STRING`.
        changes: Whether edges are the changes of a view; otherwise records `(src, dst, gone
            BOOLEAN)`.
        favourites: Personalised PageRank: the only pages with a base score.
    """

    def __init__(
        self,
        damping: float = 0.85,
        error: float = 1e-6,
        node: str = "BIGINT",
        changes: bool = True,
        favourites: Sequence[Any] = (),
    ) -> None:
        super().__init__(damping, error, node, changes)
        self._favourites = tuple(favourites)

    def base(self, nodes: Any) -> Any:
        """Return 1 - damping: for all pages, or for the favourites."""
        chosen = np.isin(nodes, np.array(self._favourites)) if self._favourites else True
        return np.where(chosen, np.full(len(nodes), 1 - self.damping), 0.0)

    def share(self, scores: Any, links: Any) -> Any:
        """Return equal shares for all links."""
        return self.damping * scores / links
