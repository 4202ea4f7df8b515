"""Readers of a current result: the table of a view, against the last record per key of a log.

A plain Parquet file of the same records shows what a reader needs in any case: no layout of a table
can be faster than that by much.

Each reader answers two questions. `all`: every current record, `(url, n)`, in its own memory
(Spark, whose answers stay in the cluster, computes a digest of all records instead). `top`: the ten
URLs seen most often. Best forms found, of those that were tried:

- Polars on the log: `group_by` and `max_by`; the streaming engine in both cases.
- DuckDB on the log: Parquet files by `arg_max` and `GROUP BY`; `QUALIFY row_number()` is as fast.
  On the view it gets the Arrow table of delta-rs, since deletion vectors need an extension that is
  another download (as `cbp snapshot --for duckdb`).
- Spark on the log: `max_by` and `GROUP BY`, which is a hash aggregation.
- The plain file has no order, and is read by each reader's own code for Parquet.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
from deltalake import DeltaTable, QueryBuilder

from tests.bench.figures.entrant import Candidate
from tests.bench.figures.records import Digest, digest
from tests.bench.figures.spark import begin_spark, spark_digest

__all__ = ["KINDS", "LOG", "PLAIN", "QUESTIONS", "READERS", "VIEW", "WITH_SPARK", "reader_of"]

VIEW, LOG, PLAIN = KINDS = ("view", "log", "plain")
"""What is read: a view's table, a log of all changes, or a file of the current records."""

QUESTIONS = ("all", "top")
READERS, WITH_SPARK = ("polars", "duckdb"), ("spark",)
_TOP = 10
_WARM = 10_000


class _Reader:
    """What all readers share: a table, a question, and the latest answer."""

    def __init__(self, path: Path, *, kind: str, question: str) -> None:
        self._path, self._kind, self._question = str(path), kind, question
        self._rows: pl.DataFrame | Digest = Digest(0, 0, 0)

    def load(self) -> None:
        """Read one record, so that all modules are loaded; the tables are there."""
        self._scanned().head(1).collect()

    def _scanned(self) -> pl.LazyFrame:
        return (pl.scan_parquet if self._kind == PLAIN else pl.scan_delta)(self._path)

    def answer(self, round_: int) -> Digest:
        """Return the digest of the latest answer."""
        del round_
        return self._rows if isinstance(self._rows, Digest) else digest(self._rows)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


class PolarsReader(_Reader):
    """Polars, with its streaming engine."""

    def run(self, round_: int) -> None:
        """Answer the question."""
        del round_
        rows = self._scanned()
        if self._kind == LOG:
            last = pl.col("n").max_by("_epoch")
            rows = rows.select("url", "n", "_epoch").group_by("url").agg(last)
        else:
            rows = rows.select("url", "n")
        if self._question == "top":
            rows = rows.sort("n", "url", descending=[True, False]).head(_TOP)
        self._rows = rows.collect(engine="streaming")


class DuckdbReader(_Reader):
    """DuckDB, in memory."""

    def run(self, round_: int) -> None:
        """Answer the question."""
        import duckdb

        del round_
        with duckdb.connect(config={"preserve_insertion_order": False}) as database:
            database.execute("SET enable_progress_bar = false")
            if self._kind == PLAIN:
                plain = "SELECT url, n FROM read_parquet($file)"
                answer = database.sql(self._asked(plain), params={"file": self._path})
            elif self._kind == LOG:
                files = [str(file) for file in DeltaTable(self._path).file_uris()]
                last = "SELECT url, arg_max(n, _epoch) AS n FROM read_parquet($files) GROUP BY url"
                answer = database.sql(self._asked(last), params={"files": files})
            else:
                query = QueryBuilder().register("t", DeltaTable(self._path))
                current = query.execute("SELECT url, n FROM t").read_all()
                answer = database.sql(self._asked("SELECT url, n FROM current"))
                del current
            self._rows = pl.DataFrame(answer.to_arrow_table())

    def _asked(self, query: str) -> str:
        top = f" ORDER BY n DESC, url LIMIT {_TOP}"
        return query + top if self._question == "top" else query


class SparkReader(_Reader):
    """Spark, with a session of its own; `all` is a digest of all records."""

    def load(self) -> None:
        """Start Spark, and let it compile the query once, on some records."""
        self._spark = begin_spark()
        self._ask(self._table().limit(_WARM))

    def run(self, round_: int) -> None:
        """Answer the question."""
        del round_
        self._ask(self._table())

    def _table(self) -> Any:
        kind = "parquet" if self._kind == PLAIN else "delta"
        return self._spark.read.format(kind).load(self._path)

    def _ask(self, rows: Any) -> None:
        if self._kind == LOG:
            rows = _last(rows)
        rows = rows.select("url", "n")
        if self._question == "top":
            top = rows.orderBy("n", "url", ascending=[False, True]).limit(_TOP)
            self._rows = pl.DataFrame(top.toArrow())
        else:
            self._rows = spark_digest(rows)

    def close(self) -> None:
        """Stop Spark."""
        self._spark.stop()


def _last(rows: Any) -> Any:
    from pyspark.sql import functions as F

    return rows.groupBy("url").agg(F.max_by("n", "_epoch").alias("n"))


_READERS: dict[str, type[_Reader]] = {
    "polars": PolarsReader,
    "duckdb": DuckdbReader,
    "spark": SparkReader,
}


def reader_of(name: str, path: Path, *, kind: str, question: str) -> Candidate:
    """Return a reader of the table at a path, which is one of `KINDS`."""
    reader: Candidate = _READERS[name](path, kind=kind, question=question)  # type: ignore[assignment]
    return reader
