"""The limits of an engine decide in every process that does its tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cbp import DataflowBuilder, Input, Output, TranslateArrow
from cbp.engine.direct import DirectEngine
from cbp.engine.spark import SparkExecutor
from cbp.model.plan.spark_or_worker import Lane, lanes_of
from tests.driver import Driver
from tests.limited import limits_of
from tests.spark.resident_workers import started

pytestmark = pytest.mark.spark


class Calls(TranslateArrow):
    """Emits for each group how many groups were called together with it."""

    items = Input("k BIGINT", route_by="k")
    calls = Output("k BIGINT, together BIGINT")

    def translate(self, groups: Any, out: Any) -> None:
        """Emit the number of groups of this call, for each of them."""
        out.calls({"k": groups.keys.column(0), "together": [len(groups)] * len(groups)})


@pytest.mark.part(every=3)
@pytest.mark.parametrize(
    ("way", "lane"),
    [("resident", Lane.RESIDENT), ("job", Lane.SPARK), ("shuffled", Lane.SPARK)],
)
def test_limits_reach_the_process_that_does_a_task(
    way: str, lane: Lane, spark: Any, tmp_path: Path
) -> None:
    """Calls are as small as the engine's limits say, beside the driver and in Spark's workers."""
    executor = SparkExecutor(spark, resident_workers=int(way == "resident"))
    if way == "resident":
        started(executor.residents, 1)
    try:
        for rows in (3, 50):
            limits = limits_of(shuffled=way == "shuffled", resident_after_runs=0, call_rows=rows)
            engine = DirectEngine(executor, cache=str(tmp_path / "cache"), limits=limits)
            flow = DataflowBuilder("calls")
            items = flow.source("items", "k BIGINT")
            flow.stage("stage", Calls(), buckets=2, items=items)
            driver = Driver(engine, flow.build(), tmp_path / f"t{rows}")
            driver.feed("items", [{"k": k} for k in range(30)])
            driver.run_until_idle()
            assert lanes_of(driver.figures[-1]) == (lane,)
            (told,) = driver.outputs("stage.calls")
            assert max(row["together"] for row in told) <= rows
            assert rows == 3 or max(row["together"] for row in told) > 3
    finally:
        executor.residents.close()
