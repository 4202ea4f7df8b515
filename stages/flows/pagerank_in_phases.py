"""The paper's incremental PageRank, of a graph that grows: two stages in a cycle.

    edges -> rank -> pages
             |  ^
       moved v  | converged
            verdict

`rank.pages` is the result, a view: the last rank per page; the mean is 1.

Source: CBP (SoCC'10), section 3.1.2, figure 8.
"""

from __future__ import annotations

from typing import Any

from cbp import Dataflow, DataflowBuilder
from stages.flows import read_document
from stages.translators.incremental_pagerank import IncrementalPageRank
from stages.translators.pagerank_verdict import PageRankVerdict


def document() -> dict[str, Any]:
    """Return the document to register, as JSON values."""
    return read_document("pagerank_in_phases")


def pagerank_in_phases(
    *, threshold: float = 0.001, tolerance: float = 1e-10, broadcast: bool = False
) -> Dataflow:
    """Build the dataflow; by default the same as `document`.

    `threshold` decides which pages a change affects (see `IncrementalPageRank`), and `tolerance`
    when ranks have converged. With `broadcast`, messages go to all pages, not to the affected ones.
    """
    flow = DataflowBuilder("pagerank_in_phases")
    edges = flow.source("edges", "src BIGINT NOT NULL, dst BIGINT NOT NULL")
    ranks = IncrementalPageRank(threshold=threshold, broadcast=broadcast)
    rank = flow.stage("rank", ranks, edges=edges, converged="verdict.converged")
    flow.stage("verdict", PageRankVerdict(tolerance), moved=rank.moved)
    return flow.build()
