"""Corrected inputs under Spark: a file that is replaced, and tables that are built beside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cbp.engine.direct import DirectEngine
from cbp.engine.spark import SparkExecutor
from tests.controller.corrected_files import DOCUMENT, Shelf

pytestmark = pytest.mark.spark

STAGES = {name: DOCUMENT["stages"][name] for name in ("sums", "per")}


@pytest.fixture
def shelf(spark: Any, tmp_path: Path) -> Any:
    """Give a service on Spark with two files."""

    def engine(**options: Any) -> Any:
        return DirectEngine(SparkExecutor(spark), **options)

    made = Shelf(tmp_path, {**DOCUMENT, "stages": STAGES}, engine=engine)
    made.counts = {"f": [("x", 1), ("y", 2)], "g": [("x", 10), ("z", 3)]}
    for name, rows in made.counts.items():
        made.put(name, *rows)
        made.take_in()
    yield made
    made.close()


def read(spark: Any, shelf: Shelf) -> dict[str, tuple[int, int]]:
    """Return the sums as Spark reads them."""
    path = f"{shelf.world.tables}/{shelf.document['name']}/state/sums.totals"
    rows = spark.read.format("delta").load(path).collect()
    return {row.word: (row.n, row.records) for row in rows}


@pytest.mark.soak
def test_a_file_that_is_taken_back_is_followed(shelf: Shelf, spark: Any) -> None:
    """A group without records is gone, from the tables of the stage behind, too."""
    shelf.retract("g")
    del shelf.counts["g"]
    shelf.take_in()
    shelf.require_right()
    assert read(spark, shelf) == shelf.right() == {"x": (1, 1), "y": (2, 1)}


def test_corrections_are_followed_and_tables_built_beside(shelf: Shelf, spark: Any) -> None:
    """Touched groups are computed anew by a job, and the stage behind follows the signs.

    Tables are built by jobs of their own; a reader sees them by the path of before, and files
    come on.
    """
    shelf.counts["f"] = [("x", 5), ("w", 1)]
    shelf.replace("f", *shelf.counts["f"])
    shelf.take_in()
    shelf.require_right()
    assert read(spark, shelf) == shelf.right() == {"x": (15, 2), "w": (1, 1), "z": (3, 1)}
    jobs, document = shelf.world.controller.rebuild_jobs, shelf.document
    job = jobs.start(document, shelf.world.controller.dataflow("shelf"))
    job = jobs.show("shelf", job.id)
    assert job.status == "ready", job.error
    assert {(one.added, one.gone, one.changed) for one in job.tables} == {(0, 0, 0)}
    jobs.swap("shelf", job.id)
    assert jobs.show("shelf", job.id).status == "swapped", jobs.show("shelf", job.id).error
    assert read(spark, shelf) == shelf.right()
    shelf.counts["h"] = [("x", 100), ("new", 1)]
    shelf.put("h", *shelf.counts["h"])
    shelf.take_in()
    shelf.require_right()
    assert read(spark, shelf) == shelf.right()
