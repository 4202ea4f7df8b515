"""Views on Spark: records and changes are the reference's, shuffled or not, in all forms."""

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
from tests.view_dataflows import links_dataflow, random_epochs, random_items, shelf_dataflow

pytestmark = pytest.mark.spark


def engine_of(spark: Any, folder: Path, limits: EngineLimits, hash_mask: int = -1) -> DirectEngine:
    cache = str(folder / "cache")
    return DirectEngine(SparkExecutor(spark), cache=cache, hash_mask=hash_mask, limits=limits)


@pytest.mark.part(every=2)
@pytest.mark.parametrize("shuffled", [True, False])
def test_views_and_their_readers_are_the_references(
    shuffled: bool, spark: Any, tmp_path: Path
) -> None:
    """In the reference's order; what an input leaves out does not arrive, all else does."""
    dataflow = shelf_dataflow()
    engine = engine_of(spark, tmp_path, limits_of(shuffled=shuffled))
    driver = Driver(engine, dataflow, tmp_path / "t", fused=shuffled, files=2)
    assert_same(dataflow, driver, random_epochs(random.Random(3)))


@pytest.mark.part(every=3)
@pytest.mark.parametrize(
    ("tasks", "reads", "hash_mask"),
    [(2, 1_000_000, NARROW), (2, 0, NARROW), (1, 1_000_000, -1)],
    ids=["parts-colliding", "shuffled-colliding", "one"],
)
def test_views_in_sql_are_those_of_groups(
    tasks: int, reads: int, hash_mask: int, spark: Any, tmp_path: Path
) -> None:
    """Signed changes and new records reach queries; what queries give is settled into changes."""
    limits = EngineLimits(arranged_reads=reads, rows_per_task_sql=50_000 if tasks == 1 else 1)
    driver = Driver(
        engine_of(spark, tmp_path, limits, hash_mask), links_dataflow("sql"), tmp_path / "t"
    )
    epochs = random_items(random.Random(tasks + reads), epochs=2)
    assert_same(links_dataflow("groupwise"), driver, epochs, ordered=False)
