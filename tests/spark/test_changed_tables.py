"""Tables of a changed stage under Spark: the JVM's readers, and its shuffle of old files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cbp import DataflowBuilder, Input, Output, State, Translate
from cbp.engine.direct import DirectEngine
from cbp.engine.spark import SparkExecutor
from cbp.model.dataflow.dataflow import Dataflow
from tests.cbp.engine.epochs import order_free
from tests.cbp.engine.wide_state import FLOW, STATE, Life, Narrow, Wide, dataflow_of
from tests.driver import Driver
from tests.limited import SHUFFLED, with_limits

pytestmark = pytest.mark.spark


class Last(Translate):
    """Keep the last count of each word, as the wide version writes it."""

    totals = Input("word STRING, n BIGINT, by STRING", route_by="word")
    lasts = State("word STRING, n BIGINT, by STRING")
    changes = Output("word STRING, n BIGINT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        for row in group.totals:
            out.lasts(word=key.word, n=row.n, by=row.by)
            out.changes(word=key.word, n=row.n)


def with_reader() -> Dataflow:
    builder = DataflowBuilder("d")
    words = builder.source("words", "word STRING")
    stage = builder.stage("stage", Wide(), words=words, buckets=8)
    builder.stage("last", Last(), totals=stage.totals, buckets=2)
    return builder.build()


@pytest.mark.soak
def test_spark_reads_a_changed_table_and_shuffles_old_increments(
    spark: Any, tmp_path: Path
) -> None:
    """Split buckets and grown columns are one table to Spark; runs on it go on."""

    class OnSpark(Life):
        def engine(self) -> Any:
            return DirectEngine(SparkExecutor(spark), cache=str(self.folder / "cache"))

    life = OnSpark(tmp_path, dataflow_of(Narrow()))
    life.count(2)
    old = life.driver.increments["stage.totals"][0]
    first = {row["word"]: row["n"] for row in life.driver.outputs("stage.totals")[0]}
    life.change(dataflow_of(Wide(), buckets=8))
    life.count(1)
    life.check()
    for table in (STATE, FLOW):
        rows = spark.read.format("delta").load(str(tmp_path / "t" / table))
        names = [name for name in rows.columns if not name.startswith("_")]
        actual = order_free([row.asDict() for row in rows.select(*names).collect()])
        assert actual == life.seen(table)["polars"], table
    driver = Driver(with_limits(life.driver.engine, SHUFFLED), with_reader(), tmp_path / "t")
    driver._enqueue(old)
    driver.run("last")
    lasts = driver.state("last", "lasts")
    assert {row["word"]: row["n"] for row in lasts} == first
    assert {row["by"] for row in lasts} == {None}
