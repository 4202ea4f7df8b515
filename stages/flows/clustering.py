"""Clustering coefficients: how many of each node's neighbours are linked to each other.

    edges -> coefficients -> nodes

`coefficients.nodes` is the result, a view: coefficient, degree and triangles of each node. A record
of `edges` says that an edge exists, or, with `gone`, that it no longer exists.
"""

from __future__ import annotations

from typing import Any

from cbp import Dataflow, DataflowBuilder
from stages.flows import read_document
from stages.translators.clustering_arrow import ClusteringArrow


def document() -> dict[str, Any]:
    """Return the document to register, as JSON values."""
    return read_document("clustering")


def clustering() -> Dataflow:
    """Build the dataflow; the same as `document`."""
    flow = DataflowBuilder("clustering")
    edges = flow.source("edges", "src BIGINT NOT NULL, dst BIGINT NOT NULL, gone BOOLEAN")
    flow.stage("coefficients", ClusteringArrow(), buckets=2, edges=edges)
    return flow.build()
