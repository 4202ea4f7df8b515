"""Count how often each URL was seen, in Spark SQL: no record becomes a Python object.

Source: CBP (SoCC'10), section 2.1, the example URLCount.
"""

from __future__ import annotations

from cbp import Input, Output, State, TranslateSql

__all__ = ["UrlCountSql"]


class UrlCountSql(TranslateSql):
    """Count how often each URL was seen; the results are those of `UrlCount`.

    Shape:
        urls: `(url STRING)`.
        totals: `(url STRING, n BIGINT)`, one record per URL seen in the epoch; the last
            one per URL is the same however the input is split.
    """

    urls = Input("url STRING", route_by="url")
    counts = State("url STRING, n BIGINT", grouping="inner")
    totals = Output("url STRING, n BIGINT", key="url")
    queries = {  # noqa: RUF012 - read only
        "seen": "SELECT url, 1L AS n FROM urls UNION ALL SELECT url, n FROM counts",
        "summed": "SELECT url, sum(n) AS n FROM seen GROUP BY url",
        "counts": "SELECT * FROM summed",
        "totals": "SELECT * FROM summed",
    }
