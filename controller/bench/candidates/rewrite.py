"""The black box without Python: a full outer join of state and increment, table rewritten.

Best settings found: the join hashes the increment's side, so that state is shuffled but
never sorted; as many partitions as there are buckets of ours; no statistics collected.
"""

from __future__ import annotations

from controller.bench.candidate import Figures, Place
from controller.bench.candidates.counts import counts_of, initial_urls, totals_of
from controller.bench.held import Totals
from controller.bench.workload import Arrival

__all__ = ["RewriteCandidate"]

PARTITIONS_PER_SLOT = 4


class RewriteCandidate:
    """One Delta table that every epoch replaces; see `controller.bench.candidate`."""

    name, form = "rewrite", "sql"

    def __init__(self, place: Place) -> None:
        self.state_keys = 0
        self._place, self._table = place, str(place.folder / "counts")
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
        """Join one increment's counts, and write everything again."""
        state = self._session.read.format("delta").load(self._table).alias("t")
        fresh = counts_of(self._session, arrival).hint("shuffle_hash").alias("s")
        joined = state.join(fresh, on="url", how="full_outer")
        rows = joined.selectExpr("url", "coalesce(t.n, 0) + coalesce(s.n, 0) AS n")
        rows.write.format("delta").mode("overwrite").save(self._table)
        return Figures()

    def held(self) -> Totals:
        """Digest the table; no changes are emitted."""
        return totals_of(self._session.read.format("delta").load(self._table))

    def close(self) -> None:
        """Hold nothing."""
