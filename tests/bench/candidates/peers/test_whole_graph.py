"""What is computed from scratch on Spark is the answer of networkx."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx as nx
import pytest
from networkx.algorithms.link_analysis.pagerank_alg import _pagerank_python

from tests.bench.candidates.candidate import Place
from tests.bench.candidates.peers.whole_graph import WholeGraphCandidate
from tests.bench.comparison.result_comparison import Values
from tests.bench.workloads import graph_workloads
from tests.bench.workloads.graph import edge_table
from tests.bench.workloads.graph_workloads import Clustering, GraphWorkload, PageRank
from tests.bench.workloads.workload import write_arrival

pytestmark = pytest.mark.spark


def computed(folder: Path, spark: Any, workload: GraphWorkload) -> tuple[Values, list[Any]]:
    """Compute a graph after one increment; return the values, and all its links."""
    place = Place(folder / "tables", folder / "scratch", spark, 2)
    place.folder.mkdir()
    place.scratch.mkdir()
    candidate = WholeGraphCandidate(place, workload)
    candidate.load(workload.state_keys)
    arrival = write_arrival(workload.records(0, 7, before=0), folder / "0.parquet")
    assert candidate.run(arrival).epochs
    tables = edge_table(workload.graph.first), workload.records(0, 7, before=0)
    links = [(edge["src"], edge["dst"]) for table in tables for edge in table.to_pylist()]
    return candidate.held(), links


@pytest.mark.soak
def test_coefficients_are_those_of_networkx(tmp_path: Path, spark: Any) -> None:
    """Every node has one, those without triangles too."""
    values, links = computed(tmp_path, spark, Clustering(100, 500, 1))
    assert values.of == pytest.approx(nx.clustering(nx.Graph(links)))


@pytest.mark.soak
def test_ranks_are_those_of_networkx(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to the tolerance at which the iteration ends; the mean rank is 1."""
    monkeypatch.setattr(graph_workloads, "TOLERANCE", 1e-4)
    values, links = computed(tmp_path, spark, PageRank(100, 400, 1))
    ranks = _pagerank_python(nx.DiGraph(links), alpha=0.85, max_iter=1000, tol=1e-15)
    expected = Values({page: rank * 100 for page, rank in ranks.items()})
    assert values.of == pytest.approx(expected.of, abs=0.01)
