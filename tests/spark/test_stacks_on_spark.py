"""Where a run on Spark is: resident workers are asked, Spark's own are refused."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cbp import DataflowBuilder, Input, Output, TranslateRecords
from cbp.engine.direct import DirectEngine
from cbp.engine.spark.spark_executor import SparkExecutor
from cbp.errors import RunStackUnseenError
from tests.driver import Driver
from tests.waiting import until, wait_for_file

pytestmark = pytest.mark.spark


class Waits(TranslateRecords):
    """Says by a file that it has begun, and waits for another one."""

    files = Input("begun STRING, go STRING")
    seen = Output("go STRING")

    def translate(self, record: Any, out: Any) -> None:
        Path(record.begun).touch()
        wait_for_file(Path(record.go))
        out.seen(go=record.go)


@pytest.mark.parametrize("resident", [False, True])
def test_a_run_on_spark_says_where_it_is_or_where_to_look(
    spark: SparkSession, tmp_path: Path, resident: bool
) -> None:
    """And goes on in both cases; before and after it there is nothing to see."""
    executor = SparkExecutor(spark, resident_workers=1 if resident else 0)
    executor.residents.start()
    flow = DataflowBuilder("waits")
    flow.stage("one", Waits(), files=flow.source("files", "begun STRING, go STRING"))
    engine = DirectEngine(executor, cache=str(tmp_path / "cache"))
    driver = Driver(engine, flow.build(), tmp_path / "waits")
    begun, go = tmp_path / "begun", tmp_path / "go"
    driver.feed("files", [{"begun": str(begun), "go": str(go)}])
    thread = threading.Thread(target=driver.run_until_idle)
    thread.start()
    try:
        until(begun.exists)
        (run,) = executor._going
        if resident:
            (stack,) = executor.stacks(run)
            assert "translate" in [call.function for call in stack.calls if call.file == __file__]
        else:
            with pytest.raises(RunStackUnseenError, match=r"For SQL.* Thread Dump\. For code"):
                executor.stacks(run)
    finally:
        go.touch()
        thread.join()
        executor.residents.close()
    assert driver.outputs("one.seen")[-1][0]["go"] == str(go)
    assert not executor.stacks(run)
