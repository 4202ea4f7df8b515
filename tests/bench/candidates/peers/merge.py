"""Delta MERGE in a batch, in two forms; the changes are computed first, then merged.

    changes := the increment's counts LEFT JOIN the table  -> Parquet, synced
    MERGE the table WITH changes: matched rows are updated, new ones inserted

- `merge-files`: files with a changed row are rewritten.
- `merge-vectors`: changed rows are deleted by deletion vectors, and written to new files.

Best settings found: eight shuffle partitions on two slots; the source is read from the changes,
which are small, and not materialized again; the source is broadcast as long as it fits; as many
files as `cbp` has buckets; no statistics. Partitioning or clustering by the key does not help:
random keys touch every file. The change feed is off: the join is cheaper. Two things are to its
advantage: OPTIMIZE is left out, and Spark syncs no files. Its query plans need some rounds to warm
up.
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

__all__ = ["MergeCandidate"]

FILES_PER_SLOT = 4
_BROADCAST_BYTES = 256 << 20


class MergeCandidate:
    """One Delta table; see `tests.bench.candidates.candidate`."""

    form = "sql"

    def __init__(self, place: Place, name: str) -> None:
        self.name, self.state_keys = name, 0
        self._place, self._table = place, str(place.folder / "counts")
        self._changes = Changes(place.folder, "")
        vectors = str(name == "merge-vectors").lower()
        self._session = place.session(
            {
                "spark.sql.adaptive.enabled": "true",
                "spark.sql.shuffle.partitions": str(FILES_PER_SLOT * place.slots),
                "spark.sql.autoBroadcastJoinThreshold": str(_BROADCAST_BYTES),
                "spark.databricks.delta.merge.materializeSource": "none",
                "spark.databricks.delta.properties.defaults.enableDeletionVectors": vectors,
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
        """Compute the changes of one increment, emit them, and merge them."""
        from delta.tables import DeltaTable

        path = str(self._changes.next())
        changes_of(self._session, self._state(), arrival).write.parquet(path)
        self._changes.sync()
        source = self._session.read.schema("url STRING, n BIGINT").parquet(path).alias("s")
        target = DeltaTable.forPath(self._session, self._table).alias("t")
        merge = target.merge(source, "t.url = s.url")
        merge = merge.whenMatchedUpdate(set={"n": "s.n"})
        merge.whenNotMatchedInsert(values={"url": "s.url", "n": "s.n"}).execute()
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
        return self._session.read.format("delta").load(self._table)
