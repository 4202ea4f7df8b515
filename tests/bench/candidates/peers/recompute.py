"""Spark from scratch: all input is counted again in every run, and the table is replaced.

Best settings found: adaptive execution, partial counts before the shuffle (Spark's own), as many
partitions as `cbp` has buckets, no statistics collected. It emits no changes, since these cannot
be known without the previous table.
"""

from __future__ import annotations

from tests.bench.candidates.candidate import Figures, Place
from tests.bench.candidates.peers.counts import counts_of, initial_urls, totals_of
from tests.bench.comparison.result_comparison import Totals
from tests.bench.workloads.workload import Arrival

__all__ = ["RecomputeCandidate"]

PARTITIONS_PER_SLOT = 4


class RecomputeCandidate:
    """All input, and one Delta table; see `tests.bench.candidates.candidate`."""

    name, form = "recompute", "sql"

    def __init__(self, place: Place) -> None:
        self.state_keys = 0
        self._place, self._table = place, str(place.folder / "counts")
        self._partitions = PARTITIONS_PER_SLOT * place.slots
        self._session = place.session(
            {
                "spark.sql.adaptive.enabled": "true",
                "spark.sql.shuffle.partitions": str(self._partitions),
                "spark.databricks.delta.stats.collect": "false",
            }
        )
        self._bytes = 0
        self._inputs: list[Arrival | str] = [str(place.scratch / "initial")]

    def load(self, state_keys: int) -> None:
        """Write the first input; the first run counts it."""
        self.state_keys = state_keys
        urls = initial_urls(self._session, state_keys, self._partitions)
        urls.write.parquet(str(self._inputs[0]))
        files = (self._place.scratch / "initial").glob("*.parquet")
        self._bytes = sum(file.stat().st_size for file in files)

    def run(self, arrival: Arrival) -> Figures:
        """Count all input so far."""
        self._inputs.append(arrival)
        counts = counts_of(self._session, *self._inputs)
        counts.write.format("delta").mode("overwrite").save(self._table)
        self._bytes += arrival.bytes
        return Figures(bytes_read=self._bytes)

    def emitted(self) -> None:
        """Return None: no changes are emitted."""

    def held(self) -> Totals:
        """Digest the table; no changes are emitted."""
        return totals_of(self._session.read.format("delta").load(self._table), None)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""
