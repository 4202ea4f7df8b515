"""Delta MERGE in a batch: the source counted first, matched rows updated, new ones inserted.

Best settings found: deletion vectors, so that no unchanged row is rewritten; the source
aggregated, and not materialized, since reading it twice gives the same; broadcast of the
source as long as it fits; adaptive execution; as many files as there are buckets of ours.
Partitioning or clustering by the key does not help: random keys touch every file. So
no column's statistics are collected. Left out, to its advantage: the change feed, so that
it emits no changes, and OPTIMIZE. Its plans take long to warm up: some ten runs.
"""

from __future__ import annotations

from controller.bench.candidate import Figures, Place
from controller.bench.candidates.counts import counts_of, initial_urls, totals_of
from controller.bench.held import Totals
from controller.bench.workload import Arrival

__all__ = ["MergeCandidate"]

FILES_PER_SLOT = 4
_BROADCAST_BYTES = 256 << 20


class MergeCandidate:
    """One Delta table; see `controller.bench.candidate`."""

    name, form = "merge", "sql"

    def __init__(self, place: Place) -> None:
        self.state_keys = 0
        self._place, self._table = place, str(place.folder / "counts")
        self._session = place.session(
            {
                "spark.sql.adaptive.enabled": "true",
                "spark.sql.shuffle.partitions": str(place.slots),
                "spark.sql.autoBroadcastJoinThreshold": str(_BROADCAST_BYTES),
                "spark.databricks.delta.merge.materializeSource": "none",
                "spark.databricks.delta.properties.defaults.enableDeletionVectors": "true",
                "spark.databricks.delta.properties.defaults.dataSkippingNumIndexedCols": "0",
            }
        )

    def load(self, state_keys: int) -> None:
        """Write the table, sorted by key within each file."""
        self.state_keys = state_keys
        files = FILES_PER_SLOT * self._place.slots
        urls = initial_urls(self._session, state_keys, files).repartition(files, "url")
        rows = urls.sortWithinPartitions("url").selectExpr("url", "1L AS n")
        rows.write.format("delta").save(self._table)

    def run(self, arrival: Arrival) -> Figures:
        """Merge the counts of one increment."""
        from delta.tables import DeltaTable

        source = counts_of(self._session, arrival).alias("s")
        target = DeltaTable.forPath(self._session, self._table).alias("t")
        merge = target.merge(source, "t.url = s.url")
        merge = merge.whenMatchedUpdate(set={"n": "t.n + s.n"})
        merge.whenNotMatchedInsert(values={"url": "s.url", "n": "s.n"}).execute()
        return Figures()

    def held(self) -> Totals:
        """Digest the table; no changes are emitted."""
        return totals_of(self._session.read.format("delta").load(self._table))

    def close(self) -> None:
        """Hold nothing."""
