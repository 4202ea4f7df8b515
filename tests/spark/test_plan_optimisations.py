"""The switch that turns all of our optimisations of plans in SQL off, and what it changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cbp.engine.direct import DirectEngine
from cbp.engine.spark import SparkExecutor
from stages.translators.url_count_sql import UrlCountSql
from tests.driver import Driver
from tests.spark.sql_dataflows import dataflow_of

pytestmark = pytest.mark.spark

EPOCHS = ["abcab", "bbd", "a"]
TWO_LEVELS = "spark.sql.codegen.aggregate.map.twolevel.enabled"


def plans_since(spark: Any, seen: int) -> list[str]:
    """Return Spark's plans behind the first `seen`, without those that only name a view."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    done = spark._jsparkSession.sharedState().statusStore().executionsList()
    every = [done.apply(at).physicalPlanDescription() for at in range(done.length())]
    return [plan for plan in every if "CreateViewCommand" not in plan][seen:]


def run(spark: Any, folder: Path, *, optimised: bool) -> tuple[list[Any], list[str], Any]:
    """Run the epochs; return what they gave, Spark's plans, and the stage's session."""
    executor = SparkExecutor(spark, plan_optimisations=optimised)
    engine = DirectEngine(executor, cache=str(folder / "cache"))
    driver = Driver(engine, dataflow_of(UrlCountSql()), folder / "t")
    seen = len(plans_since(spark, 0))
    for urls in EPOCHS:
        driver.feed("r0", [{"url": url} for url in urls])
        driver.run_until_idle()
    (session,) = executor._sessions[(driver.folder, "t0")]
    outputs = [{row["url"]: row["n"] for row in rows} for rows in driver.outputs("t0.totals")]
    state = {row["url"]: row["n"] for row in driver.state("t0", "counts")}
    counted = [[one[name] for name in ("records_in", "groups")] for one in driver.figures]
    return [outputs, state, counted], plans_since(spark, seen), session


@pytest.mark.soak
def test_off_gives_equal_tables_by_other_plans(spark: Any, tmp_path: Path) -> None:
    """State and outputs are equal; plans are cached, merged and shared, or as Spark makes them."""
    on, on_plans, on_session = run(spark, tmp_path / "on", optimised=True)
    off, off_plans, off_session = run(spark, tmp_path / "off", optimised=False)
    assert on == off
    totals = [{"a": 2, "b": 2, "c": 1}, {"b": 4, "d": 1}, {"a": 3}]
    assert off[:2] == [totals, {"a": 3, "b": 4, "c": 1, "d": 1}]
    assert on_session.kept_plan is not None
    assert off_session.kept_plan is None
    assert len(on_plans) == len(off_plans) == len(EPOCHS)
    # A cached plan is rows for Spark; one that it makes itself aggregates partially and finally.
    assert all("partial_sum" not in plan and "ExistingRDD" in plan for plan in on_plans)
    for plan in off_plans:
        assert plan.count("Functions [1]: [partial_sum") == 2  # state and output, each by itself
        assert "raise_error" not in plan
    levels = [one.spark.conf.get(TWO_LEVELS) for one in (on_session, off_session)]
    assert levels == ["false", "true"]
