"""Corrections of state under Spark: the run of an operator is a job like any other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cbp.engine.direct import DirectEngine
from cbp.engine.spark import SparkExecutor, executor
from cbp.model.run.correction import Correction
from tests.controller.world import ONE, World

pytestmark = pytest.mark.spark


def test_a_correction_is_a_job_with_and_without_the_shuffle(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Set, removed and added; other keys stay, and Spark reads them so."""

    def engine(**options: Any) -> Any:
        return DirectEngine(SparkExecutor(spark), **options)

    world = World(tmp_path, engine=engine)
    world.controller.register(ONE)
    world.arrive("one", "a", ("x", 1), ("y", 2), ("z", 3))
    world.ticks()
    expected = {"x": 1, "y": 2, "z": 3}
    for reads, n in ((executor.ARRANGED_READS_MAX, 10), (0, 20)):
        monkeypatch.setattr(executor, "ARRANGED_READS_MAX", reads)
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
