"""Corrections of state under Spark: the run of an operator is a job like any other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cbp.engine.direct import DirectEngine
from cbp.engine.spark import SparkExecutor
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.model.run.correction import Correction
from tests.controller.world import ONE, World
from tests.limited import limits_of

pytestmark = pytest.mark.spark


@pytest.mark.soak
def test_a_correction_is_a_job_with_and_without_the_shuffle(spark: Any, tmp_path: Path) -> None:
    """Set, removed and added; other keys stay, and Spark reads them so."""

    for shuffled in (False, True):
        correct(spark, tmp_path / f"{shuffled}", limits_of(shuffled=shuffled))


def correct(spark: Any, folder: Path, limits: EngineLimits) -> None:
    """Correct a state twice, and compare what Spark reads."""

    def engine(**options: Any) -> Any:
        return DirectEngine(SparkExecutor(spark), **options)

    world = World(folder, engine=engine, engine_limits=limits)
    world.controller.register(ONE)
    world.arrive("one", "a", ("x", 1), ("y", 2), ("z", 3))
    world.ticks()
    expected = {"x": 1, "y": 2, "z": 3}
    for n in (10, 20):
        corrections = [
            Correction({"word": "x"}, "set", ({"n": n},)),
            Correction({"word": "y"}, "records"),
            Correction({"word": f"new{n}"}, "records", ({"n": n},)),
        ]
        world.controller.amendments.correct("one", "sum", "sums", corrections, who="", why="t")
        expected = {**expected, "x": n, f"new{n}": n}
        expected.pop("y", None)
        rows = spark.read.format("delta").load(f"{world.tables}/one/state/sum.sums").collect()
        assert {row.word: row.n for row in rows} == expected
    world.close()
