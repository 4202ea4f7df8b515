"""PageRank of a graph whose links come and go: one stage, one epoch for each increment.

    edges -> rank -> ranks

`rank.ranks` is the result, a view: a score for each page. Divided by their sum, scores are ranks.
A record of `edges` says that a link exists, or, with `gone`, that it no longer exists.
"""

from __future__ import annotations

from typing import Any

from cbp import Dataflow, DataflowBuilder
from stages.flows import read_document
from stages.translators.pagerank_arrow import PageRankArrow


def document() -> dict[str, Any]:
    """Return the document to register, as JSON values."""
    return read_document("pagerank")


def pagerank(*, error: float = 1e-6) -> Dataflow:
    """Build the dataflow; by default the same as `document`.

    `error` is the largest mean over all pages of the difference between a score and the right one.
    """
    flow = DataflowBuilder("pagerank")
    edges = flow.source("edges", "src BIGINT NOT NULL, dst BIGINT NOT NULL, gone BOOLEAN")
    flow.stage("rank", PageRankArrow(error=error, changes=False), buckets=2, edges=edges)
    return flow.build()
