"""Clustering and PageRank as Spark jobs: the reference engine's epochs, both ways to the tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cbp.engine.direct import DirectEngine
from cbp.engine.spark import SparkExecutor
from stages.flows.clustering_by_messages import clustering_by_messages as clustering
from stages.flows.pagerank_in_phases import pagerank_in_phases as pagerank
from tests.bench.candidates.ours.blackbox_on_spark import SparkBlackboxExecutor
from tests.cbp.engine.broadcasts import broadcast, sent_to_all
from tests.cbp.engine.epochs import assert_same, dataflow_of
from tests.driver import Driver
from tests.limited import SHUFFLED, limits_of
from tests.stages.graphs import increments, small_web, small_world

pytestmark = pytest.mark.spark


@pytest.mark.part(every=4)
@pytest.mark.parametrize("shuffled", [False, True], ids=["arranged", "shuffled"])
@pytest.mark.parametrize("name", ["clustering", "pagerank"])
def test_every_epoch_equals_the_reference(
    name: str, shuffled: bool, spark: Any, tmp_path: Path
) -> None:
    """Outputs, their order, and state; multicast, messages, `ALL` and several keys at once."""
    limits = limits_of(shuffled=shuffled, rows_per_task=20)
    engine = DirectEngine(SparkExecutor(spark), cache=str(tmp_path / "cache"), limits=limits)
    if name == "clustering":
        dataflow, edges = clustering(multicast=True), small_world(40)
    else:
        dataflow, edges = pagerank(threshold=0.1, tolerance=1.0), small_web(8)
    driver = Driver(engine, dataflow, tmp_path / "t")
    assert_same(dataflow, driver, increments(edges, 2), source="")
    moved = sum(figures.get("bytes_shuffled", 0) for figures in driver.figures)
    assert (moved > 0) == shuffled


@pytest.mark.soak
def test_bytes_shuffled_do_not_grow_with_the_groups_that_get_a_record(
    spark: Any, tmp_path: Path
) -> None:
    """Over the wire once per task: to 10 keys in 4 buckets, or to 100 keys in 16."""
    moved = []
    for groups, buckets in ((10, 4), (100, 16)):
        folder = tmp_path / str(groups)
        engine = DirectEngine(SparkExecutor(spark), cache=str(folder / "cache"), limits=SHUFFLED)
        dataflow = dataflow_of("outer_probe", buckets=buckets)
        runs = sent_to_all(Driver(engine, dataflow, folder / "t"), groups)
        moved.append([run["bytes_shuffled"] for run in runs])
        assert all(run["bytes_broadcast"] > 0 for run in runs)
    assert moved[0] == moved[1]
    assert all(0 < each < 10_000 for each in moved[0])


@pytest.mark.soak
@pytest.mark.parametrize(
    ("kind", "least", "most"),
    [
        (SparkExecutor, 1, 1),
        pytest.param(SparkBlackboxExecutor, 15, 45, marks=pytest.mark.soak),
    ],
    ids=["direct", "blackbox"],
)
def test_what_one_more_record_to_all_moves(
    kind: type[SparkExecutor],
    least: int,
    most: int,
    spark: Any,
    tmp_path: Path,
) -> None:
    """To 30 times as many groups the same bytes; of the black box some 30 times as many."""
    moved = []
    for groups in (10, 300):
        folder = tmp_path / str(groups)
        engine = DirectEngine(kind(spark), cache=str(folder / "cache"), limits=SHUFFLED)
        driver = Driver(engine, dataflow_of("outer_probe"), folder / "t")
        few, many = (
            broadcast(driver, groups=groups, records=records)["bytes_shuffled"]
            for records in (64, 128)
        )
        moved.append(many - few)
    assert moved[0] > 0
    assert least <= moved[1] / moved[0] <= most
