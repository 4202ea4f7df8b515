"""Peers of the orders with customers: all join a round's orders with a table of all customers.

    orders LEFT JOIN customers -> enriched orders, once each even if a round is repeated

| candidate | what it does |
| --- | --- |
| `spark-merge` | Spark joins, and a Delta MERGE that only inserts writes |
| `streaming` | Structured Streaming, static join; a query that runs all the time |
| `polars-merge` | Polars joins a Delta table, and delta-rs merges into another |
| `polars-append` | Polars joins a Delta table; delta-rs appends, with a transaction of the round |
| `polars-memory` | the same with the customers in memory: it sees no change of the table |
| `duckdb` | DuckDB joins a table of its own database; a synced Parquet file per round |

Settings: `tests/bench/README.md`. Spark and delta-rs sync no files, to their advantage.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from tests.bench.comparison.changed_counts_files import sync
from tests.bench.figures.ours import Place, plain
from tests.bench.figures.records import (
    COUNTRY_SQL,
    CUSTOMERS,
    KEY_SQL,
    ORDERS,
    Digest,
    customers_of,
    digest,
)
from tests.bench.figures.spark import SLOTS, begin_spark

__all__ = ["DuckdbOrders", "PolarsOrders", "SparkMerge", "StreamingOrders"]

_ENRICHED = f"{ORDERS}, name STRING, country STRING"
_COLUMNS = ["order", "customer", "total", "name", "country"]
_BUCKETS = 4 * SLOTS


class _Orders:
    """What all peers share: their folder, and how others read their answers."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._customers, self._enriched = (
            str(place.folder / name) for name in ("customers", "enriched")
        )

    def _orders(self, round_: int) -> str:
        return str(self._place.arrival("orders", round_).path)

    def _span(self, round_: int) -> tuple[int, int]:
        """Return the first number of a round's orders, and the one after its last."""
        records = self._place.draws.records
        return round_ * records, (round_ + 1) * records

    def answer(self, round_: int) -> Digest:
        """Return the digest of the orders that a round wrote, as Polars reads the table."""
        first, end = self._span(round_)
        rows = self._written(round_).filter(pl.col("order") >= first, pl.col("order") < end)
        return digest(rows.select(_COLUMNS).collect())

    def _written(self, round_: int) -> pl.LazyFrame:
        del round_
        return pl.scan_delta(self._enriched)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


class _SparkOrders(_Orders):
    """What both peers on Spark share: a session, and the customers as a Delta table."""

    SETTINGS = {  # noqa: RUF012 - read only
        "spark.databricks.delta.merge.materializeSource": "none",
        "spark.databricks.delta.properties.defaults.enableDeletionVectors": "true",
        "spark.databricks.delta.properties.defaults.dataSkippingNumIndexedCols": "1",
        "spark.sql.autoBroadcastJoinThreshold": str(64 << 20),
    }

    def load(self) -> None:
        """Start Spark, and write all customers."""
        self._spark = begin_spark(self.SETTINGS)
        self._write_customers()

    def _all_customers(self) -> Any:
        ids = self._spark.range(0, self._place.draws.keys, 1, _BUCKETS)
        return ids.selectExpr(
            f"{KEY_SQL} AS customer",
            "concat('name ', id) AS name",
            f"{COUNTRY_SQL} AS country",
        )

    def _write_customers(self) -> None:
        self._all_customers().write.format("delta").save(self._customers)

    def _joined(self, orders: Any) -> Any:
        """Join a round's orders, which are small, with the customers, which are read once.

        The side of a left join that keeps its rows cannot be broadcast; so the customers that the
        orders name are found first.
        """
        customers = self._spark.read.format("delta").load(self._customers)
        wanted = orders.select("customer").distinct().hint("broadcast")
        known = customers.join(wanted, "customer", "leftsemi")
        return orders.join(known.hint("broadcast"), "customer", "left").select(*_COLUMNS)

    def close(self) -> None:
        """Stop Spark."""
        self._spark.stop()


class SparkMerge(_SparkOrders):
    """A batch per round: a join, and a MERGE that inserts the orders which are not there yet."""

    def load(self) -> None:
        """Write all customers, and an empty table of orders."""
        super().load()
        none = self._spark.createDataFrame([], self._spark_schema())
        none.write.format("delta").save(self._enriched)

    def run(self, round_: int) -> None:
        """Join, and merge."""
        from delta.tables import DeltaTable

        orders = self._spark.read.schema(_quoted(ORDERS)).parquet(self._orders(round_))
        first, end = self._span(round_)
        target = DeltaTable.forPath(self._spark, self._enriched).alias("t")
        # The span lets Delta pass over files of other rounds.
        on = f"t.`order` = s.`order` AND t.`order` >= {first} AND t.`order` < {end}"
        target.merge(self._joined(orders).alias("s"), on).whenNotMatchedInsertAll().execute()

    def _spark_schema(self) -> str:
        return _quoted(_ENRICHED)


class StreamingOrders(_SparkOrders):
    """A stream of orders, joined with the static table of customers.

    Args:
        form: `batch`: each micro-batch is broadcast and joined with the Delta table, by
            `foreachBatch`. `bucketed`: a left join of the stream with a table that is bucketed by
            customer, without a shuffle of customers. `available-now`: as `batch`, and a query for
            each round.
    """

    SETTINGS = {  # noqa: RUF012 - read only
        **_SparkOrders.SETTINGS,
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.pollingDelay": "10ms",
        "spark.sql.streaming.metricsEnabled": "false",
    }

    def __init__(self, place: Place, form: str = "batch") -> None:
        super().__init__(place)
        self._form = form
        self._incoming = place.folder / "incoming"
        self._batch = 0

    def load(self) -> None:
        """Write all customers, and start the query."""
        super().load()
        self._incoming.mkdir(parents=True)
        if self._form != "available-now":
            self._query = self._writer().trigger(processingTime="0 seconds").start()

    def _write_customers(self) -> None:
        if self._form != "bucketed":
            super()._write_customers()
            return
        writer = self._all_customers().repartition(_BUCKETS, "customer").write.format("parquet")
        by_customer = writer.bucketBy(_BUCKETS, "customer").sortBy("customer")
        by_customer.option("path", self._customers).saveAsTable("customers")

    def _writer(self) -> Any:
        reader = self._spark.readStream.schema(_quoted(ORDERS))
        orders = reader.parquet(str(self._incoming))
        if self._form == "bucketed":
            customers = self._spark.table("customers")
            stream = orders.hint("shuffle_hash").join(customers, "customer", "left")
            writer = stream.select(*_COLUMNS).writeStream.foreachBatch(self._save)
        else:
            writer = orders.writeStream.foreachBatch(
                lambda batch, number: self._save(self._joined(batch), number)
            )
        return writer.option("checkpointLocation", str(self._place.folder / "checkpoint"))

    def _save(self, rows: Any, number: int) -> None:
        rows.write.mode("overwrite").parquet(f"{self._enriched}/{number:06d}")

    def run(self, round_: int) -> None:
        """Add a file, and wait until it is processed."""
        path = self._incoming / f"{round_:06d}.parquet"
        os.link(self._orders(round_), path)
        if self._form == "available-now":
            self._query = self._writer().trigger(availableNow=True).start()
            self._query.awaitTermination()
        else:
            self._query.processAllAvailable()

    def _written(self, round_: int) -> pl.LazyFrame:
        return pl.scan_parquet(f"{self._enriched}/{round_:06d}/*.parquet")

    def close(self) -> None:
        """Stop the query, and Spark."""
        self._query.stop()
        super().close()


class PolarsOrders(_Orders):
    """Polars and delta-rs.

    Args:
        write: `merge`: delta-rs MERGE. `append`: an append with the number of the round, which
            another attempt of the round would find.
        memory: Whether the customers are read once, and stay in memory.
    """

    def __init__(self, place: Place, *, write: str = "append", memory: bool = False) -> None:
        super().__init__(place)
        self._write, self._memory = write, memory
        self._known: pl.LazyFrame

    def load(self) -> None:
        """Write all customers, in files of some million rows; and an empty table of orders."""
        keys, part = self._place.draws.keys, 2_000_000
        for first in range(0, keys, part):
            rows = customers_of(np.arange(first, min(first + part, keys)))
            rows.write_delta(self._customers, mode="append")
        self._known = pl.scan_delta(self._customers)
        if self._memory:
            self._known = self._known.collect().lazy()
        self._place.draws.enriched(0).head(0).write_delta(self._enriched)

    def run(self, round_: int) -> None:
        """Join, and write."""
        orders = pl.scan_parquet(self._orders(round_))
        customers = self._known if self._memory else pl.scan_delta(self._customers)
        # The increment is the small side of both joins.
        known = customers.join(orders.select("customer").unique(), on="customer", how="semi")
        found = known.collect(engine="streaming").lazy()
        rows = orders.join(found, on="customer", how="left").select(_COLUMNS).collect()
        if self._write == "merge":
            self._merge(rows, round_)
        else:
            self._append(rows, round_)

    def _merge(self, rows: pl.DataFrame, round_: int) -> None:
        from deltalake import DeltaTable

        first, end = self._span(round_)
        on = f't."order" = s."order" AND t."order" >= {first} AND t."order" < {end}'
        merge = DeltaTable(self._enriched).merge(
            rows.to_arrow(), predicate=on, source_alias="s", target_alias="t"
        )
        merge.when_not_matched_insert_all().execute()

    def _append(self, rows: pl.DataFrame, round_: int) -> None:
        from deltalake import CommitProperties, DeltaTable, Transaction

        done = DeltaTable(self._enriched).transaction_version("orders")
        if done is None or done < round_:
            properties = CommitProperties(app_transactions=[Transaction("orders", round_)])
            rows.write_delta(
                self._enriched,
                mode="append",
                delta_write_options={"commit_properties": properties},
            )


class DuckdbOrders(_Orders):
    """DuckDB, whose database has the customers; a Parquet file per round, put by its name."""

    def load(self) -> None:
        """Fill the table of customers."""
        import duckdb

        keys, part = self._place.draws.keys, 2_000_000
        self._place.folder.mkdir(parents=True, exist_ok=True)
        Path(self._enriched).mkdir()
        config: dict[str, Any] = {"threads": SLOTS, "preserve_insertion_order": False}
        self._database = duckdb.connect(str(self._place.folder / "shop.duckdb"), config=config)
        self._database.execute("SET enable_progress_bar = false")
        columns = CUSTOMERS.replace("STRING", "VARCHAR NOT NULL")
        self._database.execute(f"CREATE TABLE customers ({columns})")
        for first in range(0, keys, part):
            rows = plain(customers_of(np.arange(first, min(first + part, keys))))
            self._database.execute("INSERT INTO customers SELECT * FROM rows")
            del rows
        self._database.execute("CHECKPOINT")

    def run(self, round_: int) -> None:
        """Join into a file, sync it, and give it its name."""
        path = Path(self._enriched) / f"{round_:06d}.parquet"
        columns = ", ".join(f'"{name}"' for name in _COLUMNS)
        query = (
            f"SELECT {columns} FROM read_parquet('{self._orders(round_)}') "
            "LEFT JOIN customers USING (customer)"
        )
        self._database.execute(f"COPY ({query}) TO '{path}.next' (FORMAT parquet)")
        sync(Path(f"{path}.next"))
        os.replace(f"{path}.next", path)
        sync(path.parent)

    def _written(self, round_: int) -> pl.LazyFrame:
        return pl.scan_parquet(f"{self._enriched}/{round_:06d}.parquet")

    def close(self) -> None:
        """Close the database."""
        self._database.close()


def _quoted(schema: str) -> str:
    """Return a schema whose first column may be the SQL word `order`."""
    return schema.replace("order ", "`order` ", 1)
