"""Clustering and PageRank on the direct engine: the reference engine's epochs, record by record.

That the reference engine's results are right is held by test_clustering.py and
test_pagerank.py; here every output, its order, and state are the same at every epoch.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from cbp.engine.direct import LocalEngine
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.model.dataflow.dataflow import Dataflow
from stages.flows.clustering_by_messages import clustering_by_messages as clustering
from stages.flows.pagerank_in_phases import pagerank_in_phases as pagerank
from tests.cbp.engine.epochs import assert_same
from tests.driver import Driver
from tests.stages.graphs import increments, small_web, small_world

FLOWS = {
    "clustering": clustering(multicast=False),
    "clustering-multicast": clustering(multicast=True),
    "pagerank": pagerank(threshold=0.01, tolerance=1e-2),
    "pagerank-broadcast": pagerank(threshold=0.01, tolerance=1e-2, broadcast=True),
}


@pytest.mark.part(every=6)
@pytest.mark.parametrize("name", FLOWS)
def test_every_epoch_equals_the_reference(name: str, tmp_path: Path) -> None:
    """With several tasks and small windows; new edges arrive while state is there."""
    limits = EngineLimits(rows_per_task=20, window_rows=50, large_group_rows=50)
    dataflow: Dataflow = FLOWS[name]
    edges = small_web(25) if "pagerank" in name else small_world(40)
    engine = LocalEngine(cache=str(tmp_path / "cache"), limits=limits)
    driver = Driver(engine, dataflow, tmp_path / "t")
    assert_same(dataflow, driver, increments(edges, 3), source="")
    assert not any(figures.get("dead_letters", 0) for figures in driver.figures)
