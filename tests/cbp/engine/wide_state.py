"""A state whose schema grows."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from cbp import DataflowBuilder, Input, Output, State, Translate, TranslateRecords
from cbp.engine.direct import DirectEngine, LocalEngine
from cbp.engine.reference.engine import ReferenceEngine
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.model.dataflow.dataflow import Dataflow
from tests.cbp.engine.epochs import order_free
from tests.controller.world import Switch
from tests.driver import Driver

STATE, FLOW = "state/stage.counts", "flows/stage.totals"

SMALL = EngineLimits(state_fanout=3, state_tier_rows=4)
"""Limits with which state is compacted often."""


class Narrow(Translate):
    """Count words."""

    words = Input("word STRING", route_by="word")
    counts = State("word STRING, n INT")
    totals = Output("word STRING, n INT", key="word")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        n = sum(1 for _ in group.words) + sum(row.n for row in group.counts)
        out.counts(word=key.word, n=n)
        out.totals(word=key.word, n=n)


class Wide(Translate):
    """Count words, in more bits, and remember which version counted last."""

    words = Input("word STRING", route_by="word")
    counts = State("word STRING, n BIGINT, by STRING")
    totals = Output("word STRING, n BIGINT, by STRING", key="word")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        n = sum(1 for _ in group.words) + sum(row.n for row in group.counts)
        out.counts(word=key.word, n=n, by="wide")
        out.totals(word=key.word, n=n, by="wide")


class Longer(TranslateRecords):
    """Pass on what the wide one counts."""

    totals = Input("word STRING, n BIGINT, by STRING")
    copies = Output("word STRING, n BIGINT, by STRING")

    def translate(self, record: Any, out: Any) -> None:
        out.copies(word=record.word, n=record.n, by=record.by)


def dataflow_of(translator: Any, *, buckets: int = 4, reader: bool = False) -> Dataflow:
    """Return a dataflow of one stage, and perhaps one that reads it."""
    builder = DataflowBuilder("d")
    words = builder.source("words", "word STRING")
    stage = builder.stage("stage", translator, words=words, buckets=buckets)
    if reader:
        builder.stage("reader", Longer(), totals=stage.totals, buckets=2)
    return builder.build()


class Life:
    """A stage that counts on the direct engine and on the reference, and is changed."""

    def __init__(self, folder: Path, dataflow: Dataflow, *, publish_every: int = 1) -> None:
        self.faults, self.folder = Switch(), folder
        self.driver = Driver(self.engine(), dataflow, folder / "t", publish_every=publish_every)
        self.reference = ReferenceEngine(dataflow_of(Wide()))
        self.random = random.Random(7)
        self.version = 1

    def engine(self) -> DirectEngine:
        return LocalEngine(cache=str(self.folder / "cache"), faults=self.faults, limits=SMALL)

    def count(self, epochs: int = 1, words: int = 25) -> None:
        """Count some words."""
        for _ in range(epochs):
            rows = [{"word": f"w{self.random.randrange(60)}"} for _ in range(words)]
            self.driver.feed("words", rows)
            self.reference.feed("words", rows)
            self.driver.run_until_idle()
            self.reference.run_until_idle()

    def change(self, dataflow: Dataflow, *, anew: bool = False) -> None:
        """Bring every table to the new version, as a controller does."""
        self.driver.publish()
        self.version += 1
        engine, folder, now = self.driver.engine, self.driver.folder, 2_100_000_000_000
        assert isinstance(engine, DirectEngine)
        for node in dataflow.stages.values():
            epoch = self.driver.epochs[node.name]
            changes = engine.tables.rewrite(
                folder, "d", node, epoch=epoch, run=f"c{self.version}", anew=anew
            )
            engine.tables.alter(
                folder, "d", node, changes,
                epoch=epoch, version=self.version, timestamp_ms=now + self.version,
            )  # fmt: skip
        self.driver.dataflow = dataflow

    def counts(self) -> dict[str, int]:
        """Return the state as the engine reads it."""
        return {row["word"]: row["n"] for row in self.driver.state("stage", "counts")}

    def expected(self) -> dict[str, int]:
        return {row["word"]: row["n"] for row in self.reference.state("stage", "counts")}

    def seen(self, table: str = STATE, columns: Sequence[str] = ()) -> dict[str, list[str]]:
        """Return a table's records, or some columns, as each reader without a JVM has them."""
        path = str(self.folder / "t" / table)
        frame = pl.scan_delta(path).collect()
        names = columns or [name for name in frame.columns if not name.startswith("_")]
        rows = QueryBuilder().register("t", DeltaTable(path)).execute("select * from t")
        by_rs = [{n: row[n] for n in names} for row in pa.table(rows.read_all()).to_pylist()]
        return {
            "polars": order_free(frame.select(names).to_dicts()),
            "delta-rs": order_free(by_rs),
        }

    def check(self) -> None:
        """Compare the state with the reference, through the engine and two readers."""
        assert self.counts() == self.expected()
        engine = order_free(self.driver.state("stage", "counts"))
        assert self.seen() == {"polars": engine, "delta-rs": engine}
