"""What the peers that count in Spark SQL share: the first state, and one increment's counts."""

from __future__ import annotations

from typing import Any

from controller.bench.digests import frame_digest, last_frame
from controller.bench.held import Totals
from controller.bench.workload import Arrival, UrlCount

__all__ = ["COUNTS", "TOTALS", "counts_of", "initial_urls", "totals_of"]

COUNTS, TOTALS = "count.counts", "count.totals"
"""The state and the output of the dataflow `url-count`; peers hold theirs under the same names."""

_NAMES = ("url", "n")


def initial_urls(session: Any, keys: int, partitions: int) -> Any:
    """Return a frame `(url STRING)` of the keys 0 to `keys`."""
    return session.range(0, keys, 1, partitions).selectExpr(f"{UrlCount.KEY_SQL} AS url")


def counts_of(session: Any, *arrivals: Arrival | str) -> Any:
    """Return a frame `(url STRING, n BIGINT)`: how often each URL stands in some files."""
    paths = [str(one.path if isinstance(one, Arrival) else one) for one in arrivals]
    urls = session.read.schema("url STRING").parquet(*paths)
    return urls.groupBy("url").count().withColumnRenamed("count", "n")


def totals_of(state: Any, emitted: Any = None, *, order: str = "") -> Totals:
    """Return what a candidate holds.

    Args:
        state: A frame `(url, n)` with one row per key.
        emitted: A frame `(url, n)` with the column `order`: what was emitted after the load;
            None: nothing is.
        order: Rises with what was emitted.
    """
    states = {COUNTS: frame_digest(state, _NAMES)}
    if emitted is None:
        return Totals(states)
    last = last_frame(emitted, _NAMES[:1], _NAMES, order)
    return Totals(states, {TOTALS: frame_digest(last, _NAMES)})
