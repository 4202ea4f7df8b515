"""Spark reads an output's table as a stream, while it is compacted and what is old goes.

A compaction is one entry that adds and removes, or a reader of the table would see records twice,
or not at all. None of its actions changes data, and those a stream passes over.

A stream brings each record of an output once, also over a retention (`ignoreDeletes`; without it
the stream stops and says so). No entry has both what comes and what goes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pyspark.errors import StreamingQueryException

from cbp.engine.delta.actions import CommitInfo
from cbp.engine.delta.managed_table import open_table
from cbp.engine.storage.files import LocalFiles
from tests.cbp.engine.kept_outputs import KEPT, run
from tests.cbp.engine.merged_outputs import driver_on
from tests.driver import Driver

pytestmark = [pytest.mark.spark, pytest.mark.soak]

FLOW = "count.totals"


def follow(spark: Any, path: str, sink: Path, **options: str) -> list[tuple[Any, ...]]:
    """Let a stream read on to the end of a table; return all that it has ever brought, sorted."""
    stream = spark.readStream.format("delta").options(**options).load(path)
    written = stream.writeStream.option("checkpointLocation", f"{sink}-place")
    written.trigger(availableNow=True).start(str(sink)).awaitTermination()
    return sorted(pl.read_parquet(f"{sink}/*.parquet").rows())


def written(driver: Driver) -> list[tuple[Any, ...]]:
    """Return every record that the runs wrote to the flow, with its epoch, sorted."""
    actual = []
    for increment in driver.increments[FLOW]:
        rows = driver.engine.increments.read(driver.folder, [increment], offset=0, limit=10**9)
        actual += [tuple(row.values()) for row in rows]
    return sorted(actual)


def operations(path: str) -> set[str]:
    log = open_table(path, LocalFiles()).log
    entries = (log.entry(version) for version in log.versions())
    return {one.operation for entry in entries for one in entry if isinstance(one, CommitInfo)}


@pytest.mark.parametrize("publish_every", [1, 3])
def test_a_stream_brings_each_record_once_over_compactions_and_retention(
    publish_every: int, spark: Any, tmp_path: Path
) -> None:
    """None is lost or brought twice; that old ones go it has to expect, or it stops and says so.

    One that begins late brings what the table shows.
    """
    driver = driver_on(tmp_path, publish_every=publish_every)
    path, sink = f"{driver.folder}/flows/{FLOW}", tmp_path / "sink"
    for epochs in (4, 6, 10):
        run(driver, epochs)
        driver.publish()
        assert follow(spark, path, sink) == written(driver)
    assert operations(path) == {"CBP CREATE", "CBP RUN", "CBP COMPACT"}
    driver.kept = {FLOW: KEPT}
    run(driver, 14)
    driver.publish()
    assert "CBP RETAIN" in operations(path)
    with pytest.raises(StreamingQueryException, match="DELTA_SOURCE_IGNORE_DELETE"):
        follow(spark, path, sink)
    assert follow(spark, path, sink, ignoreDeletes="true") == written(driver)
    shown = sorted(pl.read_delta(path).rows())
    assert follow(spark, path, tmp_path / "late") == shown
    assert 0 < len(shown) < len(written(driver))
