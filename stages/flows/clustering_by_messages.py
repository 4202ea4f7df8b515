"""The paper's clustering coefficients, of a graph that grows: nodes tell others of neighbours.

    edges -> coefficients -> nodes -> latest
              '-- fof --'

`nodes.latest` is the result, a view: the last value of each node. An edge takes two epochs until it
shows in `coefficients.co`, from which the view is made.

Source: CBP (SoCC'10), section 3.1.1, figure 6.
"""

from __future__ import annotations

from typing import Any

from cbp import Dataflow, DataflowBuilder
from stages.flows import read_document
from stages.translators.clustering_coefficients import ClusteringCoefficients
from stages.translators.latest import Latest


def document() -> dict[str, Any]:
    """Return the document to register, as JSON values."""
    return read_document("clustering_by_messages")


def clustering_by_messages(*, multicast: bool = True) -> Dataflow:
    """Build the dataflow; by default the same as `document`."""
    flow = DataflowBuilder("clustering_by_messages")
    edges = flow.source("edges", "src BIGINT NOT NULL, dst BIGINT NOT NULL")
    coefficients = flow.stage("coefficients", ClusteringCoefficients(multicast), edges=edges)
    flow.stage("nodes", Latest("node BIGINT, co DOUBLE", "node"), rows=coefficients.co)
    return flow.build()
