"""Snapshots read by plain Spark, while epochs are being published."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from cbp.engine.direct import LocalEngine
from tests.controller.diamond import KEPT, bystander, check, started
from tests.controller.world import World

pytestmark = pytest.mark.spark


@pytest.mark.soak
def test_spark_sees_one_publication_at_every_log_entry(spark: Any, tmp_path: Path) -> None:
    """The versions that a snapshot names are those of one epoch, for `versionAsOf` too.

    However old: the clock of this world is far back, and Spark opens a version only while
    its table says that deleted files are retained.
    """
    world = World(tmp_path, engine=LocalEngine, retention=KEPT)
    reader, seen = bystander(started(world)), []

    @cache
    def by_spark(path: str, version: int) -> pl.DataFrame:
        table = spark.read.format("delta").option("versionAsOf", version).load(path)
        return pl.DataFrame(table.toArrow())

    def look(point: str) -> None:
        if point == "log_entry.after":
            seen.append(check(reader.take("diamond"), by_spark))

    for number in range(2):
        world.arrive("diamond", "a", ("a", number), ("b", number))
        world.arrive("diamond", "b", ("a", 10 * number))
        world.clock.advance(1)
        world.faults.to = look
        world.ticks()
        world.faults.to = lambda point: None
    world.close()
    assert seen == sorted(seen)
    assert len(set(seen)) > 1
