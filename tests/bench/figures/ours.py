"""Our candidates: URL count with and without a view, orders that look up customers, and a history.

Each has the direct engine without Spark in one process, whose tasks follow one another, and makes
every commit of the service: output increments, intention, log entries, all synced
(`tests.bench.candidates.ours.engine_driver`). The first state is written as files.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from cbp import DataflowBuilder, Input, Output, TranslateArrow, View
from cbp.engine.direct import LocalEngine
from cbp.engine.interface.garbage_collector import Retention
from cbp.engine.storage.table_names import flow_table, state_table
from cbp.model.dataflow.dataflow import Dataflow
from stages.translators.latest import Latest
from stages.translators.orders_with_customers import OrdersWithCustomers
from tests.bench.candidates.ours.engine_driver import DataflowDrive
from tests.bench.candidates.ours.initial_state import load_state
from tests.bench.figures.records import (
    CUSTOMERS,
    ORDERS,
    Digest,
    Draws,
    customers_of,
    digest,
    keys_of,
)
from tests.bench.views import FORMS
from tests.bench.workloads.workload import Arrival, write_arrival

__all__ = [
    "BLOCK",
    "CountCandidate",
    "History",
    "OrdersCandidate",
    "Place",
    "count_dataflow",
    "plain",
    "plain_file_of_history",
    "tables_of_history",
]

BUCKETS = 8
COUNTS, CHANGES, TOTALS = "counts", "counts", "totals"
BLOCK = 250
"""Epochs between two collections of what nothing needs."""
_HOUSE = Retention(versions_min=1, versions_max=20, seconds=0.0, attempt_seconds=600.0)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a candidate works, and what it reads.

    Attributes:
        folder: Its own folder.
        shared: A folder for first states that several candidates begin with.
        arrivals: The folder with the increments of all rounds; see `arrival_file`.
    """

    folder: Path
    shared: Path
    arrivals: Path
    draws: Draws

    def arrival(self, kind: str, round_: int) -> Arrival:
        """Return the increment of a round."""
        path = self.arrivals / f"{kind}-{round_:06d}.parquet"
        return Arrival(path, self.draws.records, path.stat().st_size)

    def write_arrivals(self, rounds: int) -> None:
        """Write the increments of all rounds."""
        for round_ in range(rounds):
            for kind, records in (
                ("urls", self.draws.urls(round_)),
                ("orders", self.draws.orders(round_)),
            ):
                write_arrival(plain(records), self.arrivals / f"{kind}-{round_:06d}.parquet")


def plain(frame: pl.DataFrame) -> pa.Table:
    """Return a frame as an Arrow table whose texts are plain strings."""
    table = frame.to_arrow()
    fields = [
        field.with_type(pa.string()) if not pa.types.is_primitive(field.type) else field
        for field in table.schema
    ]
    return table.cast(pa.schema(fields))


def _drive(place: Place, dataflow: Dataflow) -> DataflowDrive:
    engine = LocalEngine(cache=str(place.folder / "cache"))
    return DataflowDrive(engine, dataflow, place.folder / "tables")


def count_dataflow(translator: Any) -> Dataflow:
    """Return a dataflow of one stage `count`, which reads URLs."""
    builder = DataflowBuilder("count")
    urls = builder.source("urls", "url STRING", format="parquet")
    builder.stage("count", translator, urls=urls, buckets=BUCKETS)
    return builder.build()


class CountCandidate:
    """URL count in one of two forms; its counts are a state with an output, or a view."""

    def __init__(self, place: Place, form: str, *, view: bool) -> None:
        self._place, self._view = place, view
        self._drive = _drive(place, count_dataflow(FORMS[form][int(view)]()))

    def load(self) -> None:
        """Write a count of each known URL."""
        node, keys = self._drive.dataflow.stages["count"], self._place.draws.keys

        def counts() -> pa.Table:
            n = np.ones(keys, np.int64)
            return plain(pl.DataFrame({"url": keys_of(np.arange(keys)), "n": n}))

        load_state(self._drive.folder, node, COUNTS, counts, shared=self._place.shared / "counts")

    def run(self, round_: int) -> None:
        """Count the URLs of a round."""
        self._drive.offer("urls", self._place.arrival("urls", round_))
        self._drive.run_until_idle()

    def answer(self, round_: int) -> Digest:
        """Return the digest of the counts that the round changed, as Polars reads the flow."""
        del round_
        path = self._drive.folder / flow_table("count", CHANGES if self._view else TOTALS)
        rows = pl.scan_delta(str(path)).filter(pl.col("_epoch") == self._drive.epoch("count") - 1)
        after = rows.filter(pl.col("sign") == 1) if self._view else rows
        return digest(after.select("url", "n").collect())

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


class OrdersCandidate:
    """Orders that look up customers in another stage's view."""

    def __init__(self, place: Place) -> None:
        builder = DataflowBuilder("shop")
        rows = builder.source("rows", CUSTOMERS, format="parquet")
        kept = builder.stage("keep", Latest(CUSTOMERS, "customer"), rows=rows, buckets=BUCKETS)
        orders = builder.source("orders", ORDERS, format="parquet")
        builder.stage(
            "with", OrdersWithCustomers(), orders=orders, customers=kept.latest, buckets=BUCKETS
        )
        self._place, self._drive = place, _drive(place, builder.build())

    def load(self) -> None:
        """Write all customers."""
        node, keys = self._drive.dataflow.stages["keep"], self._place.draws.keys

        def customers() -> pa.Table:
            return plain(customers_of(np.arange(keys)))

        load_state(self._drive.folder, node, "latest", customers)

    def run(self, round_: int) -> None:
        """Write the orders of a round, each with its customer."""
        self._drive.offer("orders", self._place.arrival("orders", round_))
        self._drive.run_until_idle()

    def answer(self, round_: int) -> Digest:
        """Return the digest of the orders that the round wrote, as Polars reads the flow."""
        del round_
        path = self._drive.folder / flow_table("with", "enriched")
        rows = pl.scan_delta(str(path)).filter(pl.col("_epoch") == self._drive.epoch("with") - 1)
        return digest(rows.drop("_epoch").collect())

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


class BothCount(TranslateArrow):
    """Counts URLs, in a view, and in a log of counts: for those who read either."""

    urls = Input("url STRING", route_by="url")
    counts = View("url STRING, n BIGINT", key="url")
    totals = Output("url STRING, n BIGINT", key="url")

    def translate(self, groups: Any, out: Any) -> None:
        """Add the new sightings of many URLs to their counts."""
        n = groups.sizes("urls") + groups.sums("counts", "n")
        rows = groups.keys.append_column("n", pa.array(n))
        out.counts(rows)
        out.totals(rows)


class History:
    """A view and a log of the same counts, with many epochs behind them; not measured.

    The first epoch sees each known URL once, each later one a round of the draws. A round of this
    candidate is a block of epochs.

    Args:
        epochs: Number of epochs behind the first.
    """

    def __init__(self, place: Place, epochs: int) -> None:
        self._epochs = epochs
        self._place, self._drive = place, _drive(place, count_dataflow(BothCount()))

    def load(self) -> None:
        """Run the first epoch."""
        urls = pl.DataFrame({"url": keys_of(np.arange(self._place.draws.keys))})
        self._run(urls, -1)

    def run(self, round_: int) -> None:
        """Run a block of epochs, and collect what they left behind."""
        for epoch in range(round_ * BLOCK, min((round_ + 1) * BLOCK, self._epochs)):
            self._run(self._place.draws.urls(epoch), epoch)
        self._drive.keep_house(_HOUSE)

    def answer(self, round_: int) -> Digest:
        """Return nothing: readers are asked, when all epochs have run."""
        del round_
        return Digest(0, 0, 0)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def _run(self, urls: pl.DataFrame, round_: int) -> None:
        path = self._place.arrivals / f"history-{round_:06d}.parquet"
        self._drive.offer("urls", write_arrival(plain(urls), path))
        path.unlink()
        self._drive.run_until_idle()


def tables_of_history(place: Place) -> tuple[Path, Path]:
    """Return the folders of the view and of the log."""
    tables = place.folder / "tables"
    return tables / state_table("count", COUNTS), tables / flow_table("count", TOTALS)


def plain_file_of_history(place: Place) -> Path:
    """Return the path of a Parquet file of the view's records."""
    return place.folder / "plain.parquet"
