"""Four readers read a view while it is written: each answer is the exact result of some epoch."""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from cbp.engine.direct import LocalEngine
from cbp.engine.reference.engine import ReferenceEngine
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.model.flow.schema import Schema
from tests.change_feeds import OURS, is_compacted, record_of
from tests.driver import Driver
from tests.view_dataflows import SHELF, random_epochs, shelf_dataflow

pytestmark = pytest.mark.spark

COLUMNS = Schema.parse(SHELF).names
EPOCHS = 6

Rows = list[dict[str, Any]]
Read = Callable[[str], Rows]
Result = Counter[tuple[Any, ...]]


def by_delta_rs(path: str) -> Any:
    """Return the table as delta-rs reads it."""
    query = QueryBuilder().register("t", DeltaTable(path)).execute("select * from t")
    return pa.table(query.read_all())


def readers(spark: Any) -> Mapping[str, Read]:
    """Return readers, as `cbp snapshot --for` shows them; DuckDB is given Arrow by delta-rs."""

    def with_spark(path: str) -> Rows:
        return [row.asDict() for row in spark.read.format("delta").load(path).collect()]

    def with_duckdb(path: str) -> Rows:
        table = by_delta_rs(path)
        with duckdb.connect() as connection:
            rows = connection.from_arrow(table).select("*")
            names = rows.columns
            return [dict(zip(names, row, strict=True)) for row in rows.fetchall()]

    return {
        "spark": with_spark,
        "polars": lambda path: pl.read_delta(path).to_dicts(),
        "delta-rs": lambda path: by_delta_rs(path).to_pylist(),
        "duckdb": with_duckdb,
    }


def result_of(rows: Rows) -> Result:
    """Return the records of a view; an answer has the view's columns, and two of ours."""
    assert all(row.keys() == {*COLUMNS, *OURS} for row in rows)
    return Counter(record_of(row, COLUMNS) for row in rows)


@dataclass
class Show:
    """What the writer and the readers tell each other: readings of an epoch go on in the next run.

    Attributes:
        readers: Names of the readers.
        shown: The newest epoch that is published; `EPOCHS` once the writer has ended.
        done: Reader to the epoch after whose publication its last reading began.
    """

    readers: tuple[str, ...]
    shown: int = -1
    done: dict[str, int] = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def publish(self, epoch: int) -> None:
        """Note that an epoch is published, once all readings of the one before have ended."""
        with self.changed:
            self.changed.wait_for(
                lambda: all(self.done.get(name, -1) >= epoch - 1 for name in self.readers)
            )
            self.shown = epoch
            self.changed.notify_all()

    def note(self, reader: str, epoch: int) -> None:
        """Note that a reading has ended."""
        with self.changed:
            self.done[reader] = epoch
            self.changed.notify_all()

    def next_after(self, epoch: int) -> int:
        """Wait until a later epoch is published; return it."""
        with self.changed:
            self.changed.wait_for(lambda: self.shown > epoch)
            return self.shown


def follow(name: str, read: Read, path: str, show: Show) -> list[Result]:
    """Read a view once for each epoch, until the writer has ended; return the answers."""
    answers: list[Result] = []
    epoch = -1
    try:
        while (epoch := show.next_after(epoch)) < EPOCHS:
            answers.append(result_of(read(path)))
            show.note(name, epoch)
    finally:
        show.note(name, EPOCHS)
    return [*answers, result_of(read(path))]


def expected_results(epochs: list[Rows]) -> list[Result]:
    """Return the view before all epochs and after each of them, by the reference engine."""
    reference = ReferenceEngine(shelf_dataflow())
    results = [Counter[tuple[Any, ...]]()]
    for orders in epochs:
        reference.feed("s_orders", orders)
        reference.run_until_idle()
        rows = reference.state("shelf", "shelf")
        results.append(Counter(record_of(row, COLUMNS) for row in rows))
    return results


@pytest.mark.soak
def test_every_answer_is_the_result_of_an_epoch_and_never_goes_back(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark, Polars, delta-rs and DuckDB, during runs and after each; at last it is the newest."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    dice = random.Random(7)
    made = (epoch["orders"] for _ in range(50) for epoch in random_epochs(dice))
    epochs = [orders for orders in made if orders][:EPOCHS]
    expected = expected_results(epochs)
    engine = LocalEngine(cache=str(tmp_path / "cache"), limits=EngineLimits(state_fanout=3))
    driver = Driver(engine, shelf_dataflow(), tmp_path / "t")
    path = f"{driver.folder}/state/shelf.shelf"
    reads = readers(spark)
    show = Show(tuple(reads))
    with ThreadPoolExecutor(len(reads)) as pool:
        answers = {n: pool.submit(follow, n, read, path, show) for n, read in reads.items()}
        try:
            for epoch, orders in enumerate(epochs):
                driver.feed("s_orders", orders)
                driver.run_until_idle()
                show.publish(epoch)
        finally:
            show.publish(EPOCHS)
    assert is_compacted(path)
    for name, future in answers.items():
        at, epochs_seen = 0, set()
        for answer in future.result():
            at = next((e for e in range(at, len(expected)) if expected[e] == answer), -1)
            assert at >= 0, f"{name} read what was never a result: {answer}"
            epochs_seen.add(at)
        assert answer == expected[-1], name
        # A reading sees the epoch that was just published, or the next one: half of them at least.
        assert len(epochs_seen) >= EPOCHS / 2, name
