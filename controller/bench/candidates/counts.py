"""What the peers that count in Spark SQL share: the first state, and one increment's counts."""

from __future__ import annotations

from typing import Any

from controller.bench.held import Totals
from controller.bench.workload import Arrival, UrlCount

__all__ = ["counts_of", "initial_urls", "totals_of"]


def initial_urls(session: Any, keys: int, partitions: int) -> Any:
    """Return a frame `(url STRING)` of the keys 0 to `keys`."""
    return session.range(0, keys, 1, partitions).selectExpr(f"{UrlCount.KEY_SQL} AS url")


def counts_of(session: Any, *arrivals: Arrival | str) -> Any:
    """Return a frame `(url STRING, n BIGINT)`: how often each URL stands in some files."""
    paths = [str(one.path if isinstance(one, Arrival) else one) for one in arrivals]
    urls = session.read.schema("url STRING").parquet(*paths)
    return urls.groupBy("url").count().withColumnRenamed("count", "n")


def totals_of(frame: Any) -> Totals:
    """Return what a frame `(url, n)` with one row per key holds."""
    keys, n = frame.selectExpr("count(*)", "coalesce(sum(n), 0)").first()
    return Totals(int(keys), int(n))
