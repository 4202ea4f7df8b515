"""Shared code of the peers that count in Spark SQL: the first state, counts, and changes."""

from __future__ import annotations

from typing import Any

from tests.bench.comparison.changed_counts_files import SCHEMA, Changes
from tests.bench.comparison.digests import frame_digest
from tests.bench.comparison.result_comparison import Totals
from tests.bench.workloads.workload import Arrival, UrlCount

__all__ = ["COUNTS", "TOTALS", "changes_of", "counts_of", "initial_urls", "totals_of"]

COUNTS, TOTALS = "count.counts", "count.totals"
"""The state and the output of the dataflow `url-count`; peers use the same names."""


def initial_urls(session: Any, keys: int, partitions: int) -> Any:
    """Return a frame `(url STRING)` of the keys 0 to `keys`."""
    return session.range(0, keys, 1, partitions).selectExpr(f"{UrlCount.KEY_SQL} AS url")


def counts_of(session: Any, *arrivals: Arrival | str) -> Any:
    """Return a frame `(url STRING, n BIGINT)`: how often each URL occurs in some files."""
    paths = [str(one.path if isinstance(one, Arrival) else one) for one in arrivals]
    urls = session.read.schema("url STRING").parquet(*paths)
    return urls.groupBy("url").count().withColumnRenamed("count", "n")


def changes_of(session: Any, state: Any, arrival: Arrival, *, also: str = "") -> Any:
    """Return a frame `(url STRING, n BIGINT)`: the new counts of the keys in an increment.

    State is read once; the counts of the increment are broadcast.

    Args:
        state: A frame `(url, n)` with one row per key.
        also: A further column, computed from `t` (state) and `s` (the increment's counts).
    """
    fresh = counts_of(session, arrival).alias("s")
    # The broadcast side of a join cannot keep unmatched rows, so keys in state are found first.
    keys = fresh.hint("broadcast")
    known = state.alias("t").join(keys, on="url").selectExpr("url", "t.n AS n")
    joined = fresh.join(known.alias("t").hint("broadcast"), on="url", how="left")
    more = [also] if also else []
    return joined.selectExpr("url", "s.n + coalesce(t.n, 0L) AS n", *more)


def totals_of(state: Any, changes: Changes | None) -> Totals:
    """Return what a candidate holds.

    Args:
        state: A frame `(url, n)` with one row per key.
        changes: Its output; None: it emits none.
    """
    states = {COUNTS: frame_digest(state.select("url", "n"), SCHEMA.names)}
    return Totals(states, None if changes is None else {TOTALS: changes.digest()})
