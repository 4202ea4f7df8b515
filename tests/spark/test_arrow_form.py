"""Vectorised translators on Spark against the groupwise ones in the reference engine."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from cbp.engine.direct import DirectEngine
from cbp.engine.spark import SparkExecutor
from stages.flows.pagerank import pagerank
from stages.translators.url_count_arrow import UrlCountArrow
from tests.cbp.engine.epochs import assert_same, dataflow_of
from tests.cbp.engine.vectorised.arrow_forms import in_arrow
from tests.driver import Driver
from tests.limited import limits_of
from tests.spark.spark_epochs import epochs_of
from tests.stages.graphs import increments, small_web

pytestmark = pytest.mark.spark


@pytest.mark.part(every=3)
@pytest.mark.parametrize(
    ("case", "shuffled"),
    list(itertools.product(["clock", "members", "sequences", "tags"], (False, True))),
)
def test_every_epoch_equals_the_groupwise_form(
    case: str, shuffled: bool, spark: Any, tmp_path: Path
) -> None:
    """Outputs in their order, and state, are the same, whichever way the records came."""
    limits = limits_of(shuffled=shuffled)
    dataflow = dataflow_of(case)
    engine = DirectEngine(SparkExecutor(spark), cache=str(tmp_path / "cache"), limits=limits)
    driver = Driver(engine, in_arrow(dataflow), tmp_path / "t")
    assert_same(dataflow, driver, epochs_of(case, seed=11))


def test_the_ready_url_count_equals_the_groupwise_one(spark: Any, tmp_path: Path) -> None:
    """Workers find the stage by its module."""
    dataflow = dataflow_of("url_count")
    node = replace(dataflow.stages["stage"], translator=UrlCountArrow().spec())
    vectorised = replace(dataflow, stages=MappingProxyType({"stage": node}))
    engine = DirectEngine(SparkExecutor(spark), cache=str(tmp_path / "cache"))
    driver = Driver(engine, vectorised, tmp_path / "t")
    assert_same(dataflow, driver, epochs_of("url_count", seed=12))


@pytest.mark.part(every=2)
@pytest.mark.parametrize("shuffled", [False, True], ids=["arranged", "shuffled"])
def test_a_whole_run_equals_the_reference(shuffled: bool, spark: Any, tmp_path: Path) -> None:
    """One call in one task, whichever way the records came; links come, and one goes."""
    limits = limits_of(shuffled=shuffled, rows_per_task=20)
    engine = DirectEngine(SparkExecutor(spark), cache=str(tmp_path / "cache"), limits=limits)
    driver = Driver(engine, pagerank(), tmp_path / "t")
    edges = small_web(25)
    src, dst = edges[0]
    gone = {"edges": [{"src": src, "dst": dst, "gone": True}]}
    assert_same(pagerank(), driver, [*increments(edges, 3), gone], source="")
    moved = sum(figures.get("bytes_shuffled", 0) for figures in driver.figures)
    assert (moved > 0) == shuffled
