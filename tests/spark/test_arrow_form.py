"""Vectorised translators on Spark against the groupwise ones in the reference engine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from cbp.engine.direct import DirectEngine
from cbp.engine.spark import SparkExecutor
from stages.translators.url_count_arrow import UrlCountArrow
from tests.cbp.engine.epochs import assert_same, dataflow_of
from tests.cbp.engine.vectorised.arrow_forms import in_arrow
from tests.driver import Driver
from tests.limited import limits_of
from tests.spark.spark_epochs import epochs_of

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("shuffled", [False, True], ids=["arranged", "shuffled"])
@pytest.mark.parametrize("case", ["clock", "members", "sequences", "tags"])
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
