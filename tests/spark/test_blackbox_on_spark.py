"""The black-box mode on Spark: state in the shuffle, with the reference's results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cbp.engine.direct import DirectEngine
from tests.bench.candidates.ours.blackbox_on_spark import SparkBlackboxExecutor
from tests.cbp.engine.epochs import assert_same, dataflow_of
from tests.driver import Driver
from tests.spark.spark_epochs import epochs_of

pytestmark = pytest.mark.spark


@pytest.mark.part(every=5)
@pytest.mark.soak
@pytest.mark.parametrize(
    ("case", "records"),
    [
        ("parcels", 40),  # two states, one of them outer; written for other keys
        ("sequences", 40),  # order, over two inputs
        ("clock", 40),  # outer: who has no input is called as well
        ("reach", 4),  # two states and messages
        ("outer_probe", 10),  # ALL, addresses, messages
    ],
)
def test_every_epoch_equals_the_reference(
    case: str, records: int, spark: Any, tmp_path: Path
) -> None:
    """Outputs in their order and every state, with either grouping, after Spark's shuffle."""
    dataflow = dataflow_of(case)
    engine = DirectEngine(SparkBlackboxExecutor(spark), cache=str(tmp_path / "cache"))
    driver = Driver(engine, dataflow, tmp_path / "t")
    assert_same(dataflow, driver, epochs_of(case, seed=21, records=records)[:2])
    kept = [
        driver.state("stage", state.name)
        for state in driver.dataflow.stages["stage"].translator.states
    ]
    assert all(kept), "each state has records that had to travel"
    assert sum(figures["state_written"] for figures in driver.figures) > 0
