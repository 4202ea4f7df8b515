"""The paper's clustering coefficients, of a graph that grows: neighbours tell of neighbours.

    edges -> coefficients -> nodes -> latest
              '-- fof --'

`nodes.latest` is the result, a view: the last value of each node. It takes two epochs until an edge
shows in `coefficients.co`, from which it is made.

Source: CBP (SoCC'10), section 3.1.1, figure 6.
"""

from __future__ import annotations

from importlib import resources
from typing import Any

import yaml

from cbp import Dataflow, DataflowBuilder
from stages.translators.clustering_coefficients import ClusteringCoefficients
from stages.translators.latest import Latest

__all__ = ["clustering_by_messages", "document"]


def document() -> dict[str, Any]:
    """Return the document to register, as JSON values."""
    text = (
        resources.files("stages.flows").joinpath("clustering_by_messages.yaml").read_text("utf-8")
    )
    content: dict[str, Any] = yaml.safe_load(text)
    return content


def clustering_by_messages(*, multicast: bool = True) -> Dataflow:
    """Build the dataflow; by default the same as `document`."""
    flow = DataflowBuilder("clustering_by_messages")
    edges = flow.source("edges", "src BIGINT NOT NULL, dst BIGINT NOT NULL")
    coefficients = flow.stage("coefficients", ClusteringCoefficients(multicast), edges=edges)
    flow.stage("nodes", Latest("node BIGINT, co DOUBLE", "node"), rows=coefficients.co)
    return flow.build()
