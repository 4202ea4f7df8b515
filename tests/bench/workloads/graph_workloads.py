"""The two workloads on graphs: clustering coefficients, and PageRank.

Both begin with a whole graph in state, written as files as if the dataflow had run (`states`), and
read increments of new links. At the end a candidate's value of every page, its coefficient or its
rank, is compared with the truth.

`cbp` skips pages whose rank changes by less than `threshold`, so its ranks are near the truth but
not equal to it. Its error is measured and shown beside the time. The tolerance of the verdict,
`TOLERANCE` of the sum of all ranks, is far below that error. Peers iterate until their mean error
is at most `error`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cbp.model.dataflow.dataflow import Dataflow
from tests.bench.comparison.result_comparison import Values
from tests.bench.workloads.dataflows import arranged, compiled, ready
from tests.bench.workloads.graph import Edges, Graph, coefficients_of, edge_table, ranks_of

__all__ = ["DAMPING", "TOLERANCE", "Clustering", "GraphWorkload", "PageRank", "Rows"]

DAMPING = 0.85
TOLERANCE = 1e-8
ROUNDING = 1e-9

Rows = Callable[[str, str], Iterable[Mapping[str, Any]]]
"""Stage and state to all records of the state."""


@dataclass(frozen=True)
class Clustering:
    """Clustering coefficients of an undirected graph.

    Attributes:
        state_keys: Number of nodes of the graph.
        edges: Number of its first edges.
        variant: `plain`: one message per neighbour; else one multicast per change.
    """

    state_keys: int
    edges: int
    seed: int = 0
    variant: str = ""
    source: str = "edges"
    last_phase: str = "fof"

    @cached_property
    def graph(self) -> Graph:
        """The graph that the increments extend."""
        return Graph(self.state_keys, self.edges, self.seed, undirected=True)

    @property
    def loaded_keys(self) -> int:
        """Number of all nodes."""
        return self.state_keys

    @property
    def state_records(self) -> int:
        """One record per end of an edge."""
        return 2 * self.edges

    def dataflow(self, *, grouping: str, form: str, buckets: int) -> Dataflow:
        """Return the dataflow `clustering` up to the coefficients; it has one form."""
        document: dict[str, Any] = deepcopy(dict(ready("clustering_by_messages")))
        del document["stages"]["nodes"]  # peers keep no table of all that they emitted
        parameters = {"multicast": self.variant != "plain"}
        document["stages"]["coefficients"]["parameters"] = parameters
        return arranged(compiled(document), grouping, buckets)

    def records(self, number: int, count: int, *, before: int) -> pa.Table:
        """Return `(src BIGINT, dst BIGINT)`: new edges."""
        return edge_table(self.graph.more(number, count))

    def states(self) -> dict[tuple[str, str], pa.Table]:
        """Return the graph as every node stores it: its neighbours, and theirs."""
        first = self.graph.first
        node = np.concatenate([first.src, first.dst])
        neighbour = np.concatenate([first.dst, first.src])
        order = np.lexsort((neighbour, node))
        node, neighbour = node[order], neighbour[order]
        ends = np.searchsorted(node, np.arange(self.state_keys + 1)).astype(np.int32)
        lists = pa.ListArray.from_arrays(pa.array(ends), pa.array(neighbour))
        columns = {"node": node, "neighbour": neighbour, "theirs": lists.take(pa.array(neighbour))}
        return {("coefficients", "graph"): pa.table(columns)}

    def held(self, rows: Rows) -> Values:
        """Return the coefficient of every node, computed from its final state."""
        known: dict[int, dict[int, set[int]]] = {}
        for row in rows("coefficients", "graph"):
            known.setdefault(row["node"], {})[row["neighbour"]] = set(row["theirs"])
        return Values({node: _coefficient(theirs) for node, theirs in known.items()})

    def truth(self, edges: Edges) -> npt.NDArray[np.float64]:
        """Return the coefficient of every node, from scratch."""
        return coefficients_of(edges, self.state_keys)

    def error_max(self, stale: float) -> float:
        """Return the mean error that an answer may have: rounding, and less than a stale one's."""
        return min(ROUNDING, stale)


@dataclass(frozen=True)
class PageRank:
    """PageRank of a directed graph.

    Attributes:
        state_keys: Number of pages of the graph.
        edges: Number of its first links.
        threshold: Change of a rank that affects a page; see `incremental_pagerank`.
        error: Mean error at which peers that iterate over the whole graph stop.
        variant: `broadcast`: all pages get the messages that concern only the affected ones.
    """

    state_keys: int
    edges: int
    seed: int = 0
    threshold: float = 0.01
    error: float = 1e-4
    variant: str = ""
    source: str = "edges"
    last_phase: str = "ranks"

    @cached_property
    def graph(self) -> Graph:
        """The graph that the increments extend."""
        return Graph(self.state_keys, self.edges, self.seed)

    @property
    def tolerance(self) -> float:
        """Sum of all changes at which a computation ends."""
        return TOLERANCE * self.state_keys

    @property
    def loaded_keys(self) -> int:
        """Number of all nodes."""
        return self.state_keys

    @property
    def state_records(self) -> int:
        """Two records per page, one for the whole graph, and the last verdict."""
        return 2 * self.state_keys + 2

    def dataflow(self, *, grouping: str, form: str, buckets: int) -> Dataflow:
        """Return the dataflow `pagerank`; it has one form."""
        document: dict[str, Any] = deepcopy(dict(ready("pagerank_in_phases")))
        document["stages"]["rank"]["parameters"] = {
            "damping": DAMPING,
            "threshold": self.threshold,
            "broadcast": self.variant == "broadcast",
        }
        document["stages"]["verdict"]["parameters"] = {"tolerance": self.tolerance}
        return arranged(compiled(document), grouping, buckets)

    def records(self, number: int, count: int, *, before: int) -> pa.Table:
        """Return `(src BIGINT, dst BIGINT)`: new links."""
        return edge_table(self.graph.more(number, count))

    def states(self) -> dict[tuple[str, str], pa.Table]:
        """Return the state of all pages after their first round."""
        edges, count = self.graph.first, self.state_keys
        ranks = ranks_of(edges, count, damping=DAMPING)
        node = np.arange(count)
        nodes = {
            "node": node,
            "rank": ranks.rank,
            "inflow": ranks.inflow,
            "shared": np.full(count, ranks.dangling / count),
            "weight": np.zeros(count),
            "affected": np.zeros(count, np.bool_),
            "round": np.ones(count, np.int64),
        }
        empty = pa.ListArray.from_arrays(
            pa.array(np.zeros(count + 1, np.int32)), pa.array([], pa.int64())
        )
        whole = {
            "node": pa.array([None], pa.int64()),
            "n": [count],
            "dangling": [ranks.dangling],
            "told": [ranks.dangling],
            "weight": [0.0],
            "round": [1],
        }
        return {
            ("rank", "nodes"): pa.table(nodes),
            ("rank", "links"): pa.table(
                {"node": node, "links": _targets(edges, count), "inside": empty}
            ),
            ("rank", "members"): pa.table({"node": pa.array([], pa.int64())}),
            ("rank", "whole"): pa.table(whole),
            ("verdict", "last"): pa.table({"one": [True], "round": [1]}),
        }

    def held(self, rows: Rows) -> Values:
        """Return the rank of every page."""
        return Values({row["node"]: row["rank"] for row in rows("rank", "nodes")})

    def truth(self, edges: Edges) -> npt.NDArray[np.float64]:
        """Return the rank of every page, from scratch."""
        return ranks_of(edges, self.state_keys, damping=DAMPING).rank

    def error_max(self, stale: float) -> float:
        """Return the mean error that an answer may have.

        Args:
            stale: The allowed share of the error of an answer that ignores the increments. The
                threshold leaves some of that error.
        """
        return stale


GraphWorkload = Clustering | PageRank
"""Workloads that have variants of their dataflow, and one value per page at the end."""


def _targets(edges: Edges, nodes: int) -> pa.ListArray:
    """Return the pages that each page links to, ascending."""
    order = np.lexsort((edges.dst, edges.src))
    ends = np.searchsorted(edges.src[order], np.arange(nodes + 1)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(ends), pa.array(edges.dst[order]))


def _coefficient(theirs: Mapping[int, set[int]]) -> float:
    """Return the share of pairs of neighbours that are linked."""
    pairs = len(theirs) * (len(theirs) - 1)
    knowing = sum(len(known & theirs.keys()) for known in theirs.values())
    return knowing / pairs if pairs else 0.0
