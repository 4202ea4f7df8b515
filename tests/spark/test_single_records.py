"""Inputs without `route_by` beside such with groups, on Spark: two jobs of one run.

More of it, on both ways of a small increment, is in tests/spark/test_spark_engine.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cbp import DataflowBuilder
from cbp.engine.direct import DirectEngine
from cbp.engine.spark import SparkExecutor
from tests.bench.candidates.ours.blackbox_on_spark import SparkBlackboxExecutor
from tests.cbp.engine.epochs import assert_same
from tests.driver import Driver
from tests.flows import Scored

pytestmark = pytest.mark.spark


@pytest.mark.part(every=2)
@pytest.mark.parametrize(
    "kind", [SparkExecutor, pytest.param(SparkBlackboxExecutor, marks=pytest.mark.soak)]
)
def test_groups_are_called_for_their_state_though_only_single_records_come(
    kind: type[SparkExecutor], spark: Any, tmp_path: Path
) -> None:
    """With outer state and keys in SQL, whichever of the inputs has records; state or none yet."""
    builder = DataflowBuilder("scored")
    items, notes = builder.source("items", "k BIGINT"), builder.source("notes", "k BIGINT")
    builder.stage("stage", Scored(), buckets=2, items=items, notes=notes)
    engine = DirectEngine(kind(spark), cache=str(tmp_path / "cache"))
    driver = Driver(engine, builder.build(), tmp_path / "t")
    epochs = [
        {"notes": [{"k": 7}, {"k": 1}]},
        {"items": [{"k": 4}, {"k": 5}, {"k": 8}], "notes": [{"k": 2}]},
        {"notes": [{"k": 0}]},
    ]
    assert_same(driver.dataflow, driver, epochs, source="")
    assert max(map(len, driver.outputs("stage.lines"))) > 3
