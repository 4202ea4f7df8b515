"""Look-ups on Spark: records are the reference's, shuffled or not, in all forms."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from cbp.engine.direct import DirectEngine
from cbp.engine.spark import SparkExecutor
from cbp.engine.storage.engine_limits import EngineLimits
from tests.cbp.engine.epochs import NARROW, assert_same
from tests.driver import Driver
from tests.limited import limits_of
from tests.lookup_dataflows import (
    orders_dataflow,
    prices_dataflow,
    random_arrivals,
    random_prices,
)

pytestmark = pytest.mark.spark


def engine_of(spark: Any, folder: Path, limits: EngineLimits, hash_mask: int = -1) -> DirectEngine:
    cache = str(folder / "cache")
    return DirectEngine(SparkExecutor(spark), cache=cache, hash_mask=hash_mask, limits=limits)


@pytest.mark.part(every=2, first=1)
@pytest.mark.parametrize("shuffled", [False, True], ids=["arranged", "shuffled"])
def test_what_is_looked_up_is_the_references(shuffled: bool, spark: Any, tmp_path: Path) -> None:
    """Nothing of the looked-up tables is shuffled; each task finds its groups' records."""
    dataflow = orders_dataflow(of_customers=2)
    engine = engine_of(spark, tmp_path, limits_of(shuffled=shuffled))
    driver = Driver(engine, dataflow, tmp_path / "t", files=2)
    arrivals = random_arrivals(random.Random(3), most=6)
    assert_same(dataflow, driver, [{name: rows} for name, rows in arrivals])


@pytest.mark.part(every=3)
@pytest.mark.parametrize(
    ("tasks", "reads", "hash_mask"),
    [(1, 1_000_000, -1), (2, 1_000_000, NARROW), (2, 0, NARROW)],
    ids=["one", "parts-colliding", "shuffled-colliding"],
)
def test_queries_join_what_is_looked_up(
    tasks: int, reads: int, hash_mask: int, spark: Any, tmp_path: Path
) -> None:
    """A look-up is a table of the called groups' records; with by=() of all."""
    limits = EngineLimits(arranged_reads=reads, rows_per_task_sql=50_000 if tasks == 1 else 1)
    engine = engine_of(spark, tmp_path, limits, hash_mask)
    driver = Driver(engine, prices_dataflow("sql"), tmp_path / "t")
    arrivals = random_prices(random.Random(tasks + reads), most=3)
    epochs = [{name: rows} for name, rows in arrivals]
    assert_same(prices_dataflow("groupwise"), driver, epochs, ordered=False)
