"""Spark SQL that rewrites the table in every epoch, without Python; changes are computed first.

    changes := the increment's counts LEFT JOIN the table  -> Parquet, synced
    table   := the table with the changed counts, and the new keys

It is the full outer join of state and increment, in its best form: the increment is broadcast, so
that state is read and written but never shuffled. Best settings found: as many partitions as
`cbp` has buckets; no statistics. Spark syncs no files, to its advantage.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from tests.bench.candidates.candidate import Figures, Place
from tests.bench.candidates.peers.counts import changes_of, initial_urls, totals_of
from tests.bench.comparison.changed_counts_files import Changes
from tests.bench.comparison.result_comparison import Totals
from tests.bench.workloads.workload import Arrival

__all__ = ["RewriteCandidate"]

PARTITIONS_PER_SLOT = 4


class RewriteCandidate:
    """One Delta table that every epoch replaces; see `tests.bench.candidates.candidate`."""

    name, form = "rewrite", "sql"

    def __init__(self, place: Place) -> None:
        self.state_keys = 0
        self._place, self._table = place, str(place.folder / "counts")
        self._changes = Changes(place.folder, "")
        self._partitions = PARTITIONS_PER_SLOT * place.slots
        self._session = place.session(
            {
                "spark.sql.adaptive.enabled": "false",
                "spark.sql.shuffle.partitions": str(self._partitions),
                "spark.databricks.delta.stats.collect": "false",
            }
        )

    def load(self, state_keys: int) -> None:
        """Write the table."""
        self.state_keys = state_keys
        urls = initial_urls(self._session, state_keys, self._partitions)
        urls.selectExpr("url", "1L AS n").write.format("delta").save(self._table)

    def run(self, arrival: Arrival) -> Figures:
        """Compute one increment's changes, emit them, and rewrite the table."""
        path, state = str(self._changes.next()), self._state()
        changes_of(self._session, state, arrival, also="t.n IS NULL AS new").write.parquet(path)
        self._changes.sync()
        shape = "url STRING, n BIGINT, new BOOLEAN"
        changes = self._session.read.schema(shape).parquet(path)
        known = changes.where("NOT new").alias("s").hint("broadcast")
        joined = state.join(known, on="url", how="left").selectExpr(
            "url", "coalesce(s.n, t.n) AS n"
        )
        rows = joined.unionAll(changes.where("new").select("url", "n").coalesce(1))
        rows.write.format("delta").mode("overwrite").save(self._table)
        return Figures()

    def emitted(self) -> Iterator[pa.RecordBatch]:
        """Yield the changes of the latest run."""
        return self._changes.latest()

    def held(self) -> Totals:
        """Digest the table, and the last emitted row per key."""
        return totals_of(self._state(), self._changes)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def _state(self) -> Any:
        return self._session.read.format("delta").load(self._table).alias("t")
