"""Messages that are read where they lie, on Spark: nothing of them is shuffled."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pyarrow as pa
import pytest

from cbp.engine.direct import DirectEngine
from cbp.engine.spark import SparkExecutor
from cbp.engine.storage.engine_limits import EngineLimits
from tests import message_flows
from tests.cbp.engine.letters import fed, letters, many, small_limits
from tests.driver import Driver

pytestmark = pytest.mark.spark

GROUPS, EACH = 60, 40


def engine_of(spark: Any, folder: Path, limits: EngineLimits) -> DirectEngine:
    """Return an engine on the session of the test run."""
    return DirectEngine(SparkExecutor(spark), cache=str(folder / "cache"), limits=limits)


@pytest.mark.soak
def test_large_messages_are_not_shuffled_and_read_once(spark: Any, tmp_path: Path) -> None:
    """0 bytes of them go through Spark's shuffle, which took them all where they lie otherwise.

    Each is read by one task, once; and their table reads the same in three readers.
    """
    limits = EngineLimits(rows_per_task=20, message_rows_min=1, arranged_reads=200)
    figures, seen = {}, {}
    for by_bucket in (True, False):
        folder = tmp_path / f"t{by_bucket}"
        engine = engine_of(spark, tmp_path, limits)
        driver = Driver(engine, letters(message_flows.Chatter()), folder, by_bucket=by_bucket)
        fed(driver, [{"k": k, "n": EACH} for k in range(GROUPS)])
        figures[by_bucket], seen[by_bucket] = driver.figures[1], driver.outputs("stage.seen")
    ours, others = figures[True], figures[False]
    assert ours["tasks"] == others["tasks"] > 1
    assert ours["bytes_shuffled"] == 0
    assert others["bytes_shuffled"] > 30 * GROUPS * EACH
    assert ours["messages_local"] + ours["messages_remote"] == GROUPS * EACH
    moved = ours["bytes_messages_local"] + ours["bytes_messages_remote"]
    assert 0.7 < moved / others["bytes_shuffled"] < 1.4
    assert seen[True] == seen[False]
    table = str(tmp_path / "tTrue" / "flows/stage.mail")
    wanted = sorted((to, f"{k}/{to}") for k in range(GROUPS) for to in range(EACH))
    rows = spark.read.format("delta").load(table).select("dst", "text").collect()
    assert sorted((row.dst, row.text) for row in rows) == wanted
    assert sorted(pl.read_delta(table).select("dst", "text").iter_rows()) == wanted
    query = deltalake.QueryBuilder().register("mail", deltalake.DeltaTable(table))
    actual = pa.table(query.execute("SELECT dst, text FROM mail").read_all()).to_pylist()
    assert sorted((row["dst"], row["text"]) for row in actual) == wanted


@pytest.mark.soak
def test_messages_are_read_in_place_beside_an_input_that_is_shuffled(
    spark: Any, tmp_path: Path
) -> None:
    """Flows come to one task from files and from the shuffle, as if all had been shuffled.

    So do messages of which some lie by bucket and others as they were emitted: too many of
    these are shuffled with all of their flow.
    """
    small = small_limits(rows_min=20)
    actual, beside = {}, {}
    for by_bucket, limit in ((True, 60), (True, 0), (False, 0)):
        which = f"{by_bucket}-{limit}"
        engine = engine_of(spark, tmp_path, replace(small, arranged_reads=limit))
        driver = Driver(engine, letters(), tmp_path / which, by_bucket=by_bucket)
        for seed in (5, 6):
            driver.feed("s_items", many(seed))
            driver.feed("s_notes", [{"to": n % 40, "n": n % 3} for n in range(9)])
            assert driver.run("stage")
        beside[which] = driver.figures[-1]
        driver.run_until_idle()
        actual[which] = driver.outputs("stage.seen")
    assert beside["True-60"]["messages_local"] > 0
    assert beside["False-0"]["bytes_shuffled"] > beside["True-60"]["bytes_shuffled"] > 0
    assert "messages_local" not in beside["False-0"]
    assert actual["True-60"] == actual["True-0"] == actual["False-0"]
