"""Spark reads what sinks wrote: a mirror with updates and deletions, appended changes, files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.controller.sinks import sunk

pytestmark = pytest.mark.spark

VIEW = "sum.counts"
SINKS = {
    "counts": {"view": VIEW, "to": "delta", "path": "counts"},
    "changes": {"flow": VIEW, "to": "delta", "path": "changes"},
    "files": {"flow": VIEW, "to": "parquet", "path": "files"},
}


@pytest.mark.soak
def test_spark_sees_the_view_and_the_flow(spark: Any, tmp_path: Path) -> None:
    """The same as the service, which is not nothing."""
    world = sunk.sink_world(tmp_path)
    sunk.play(world, sunk.viewed(SINKS))
    record, dataflow = world.store.dataflow("one"), world.controller.dataflow("one")
    rows = world.engine.records.read_state(record.folder, dataflow.stages["sum"], "counts")
    view = sorted((row["word"], row["n"]) for row in rows)
    flow = sorted(map(repr, sunk.flow_of(world, VIEW)))
    assert len(view) == 2
    assert len(flow) == 8

    def read(kind: str, folder: str, *columns: str) -> list[dict[str, Any]]:
        table = spark.read.format(kind).load(str(tmp_path / "out" / folder))
        return [row.asDict() for row in table.select(*columns).collect()]

    mirrored = read("delta", "counts", "word", "n")
    assert sorted((row["word"], row["n"]) for row in mirrored) == view
    columns = ("word", "n", "change_type", "sign")
    assert sorted(map(repr, read("delta", "changes", *columns))) == flow
    assert sorted(map(repr, read("parquet", "files", *columns))) == flow
    world.close()
