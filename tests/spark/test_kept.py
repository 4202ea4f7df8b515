"""Which plans in SQL may be run again.

A kept plan reads what each run reads, beside others and after another version; a plan that
remembers is not kept.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cbp.engine.spark.sql.plan_cache import runs_again
from cbp.engine.spark.sql.sql_tasks import read_task

pytestmark = pytest.mark.spark

AGAIN = [
    "SELECT url, count(*) AS n FROM urls GROUP BY url",
    "SELECT DISTINCT url FROM urls UNION ALL SELECT 'x'",
    "SELECT u.url FROM urls u CROSS JOIN urls w WHERE u.url > w.url",
    "SELECT u.url FROM urls u LEFT JOIN urls w ON u.url <=> w.url",
    "SELECT url, row_number() OVER (PARTITION BY url ORDER BY url) AS n FROM urls",
    "SELECT url FROM urls UNION ALL VALUES ('a'), ('b')",
    "SELECT url AS now, 1 AS `rand` FROM urls WHERE url <> 'uuid()'",
    "SELECT url, collect_list(url) AS many, first(url) AS one FROM urls GROUP BY url",
    "SELECT url, DATE '2026-01-01' AS day, TIMESTAMP '2026-01-01 00:00:00' AS at FROM urls",
    "SELECT url, CAST('2026-01-01' AS DATE) AS day, to_date(url) AS other FROM urls",
]
NOT_AGAIN = [
    "SELECT url FROM urls WHERE length(url) > (SELECT min(length(url)) FROM urls)",
    "SELECT /*+ REPARTITION(3) */ url FROM urls",
    "SELECT /*+ BROADCAST(w) */ u.url FROM urls u JOIN urls w ON u.url = w.url",
    "SELECT url, current_timestamp() AS at FROM urls",
    "SELECT url FROM urls WHERE current_date() > DATE'2026-01-01'",
    "SELECT url, unix_timestamp() AS at FROM urls",
    "SELECT url, rand() AS x FROM urls",
    "SELECT url, TIMESTAMP 'now' AS at FROM urls",
    "SELECT url FROM urls WHERE CURRENT_DATE > DATE'2026-01-01'",
    "SELECT url, to_date('to' || 'day') AS day FROM urls",
    "SELECT url, CAST('now' AS TIMESTAMP) AS at FROM urls",
    'SELECT url FROM urls WHERE to_date(url) > DATE r"today "',
    "WITH t AS (SELECT DATE 'yesterday' AS day) SELECT url, day FROM urls JOIN t ON url = ''",
    "SELECT url FROM urls UNION ALL VALUES (CAST(DATE 'today' AS STRING))",
    "SELECT url, user() AS who FROM urls",
    "SELECT url, monotonically_increasing_id() AS n FROM urls",
    "SELECT url, reflect('java.util.UUID', 'randomUUID') AS id FROM urls",
]


@pytest.mark.part(every=3)
@pytest.mark.parametrize("first", range(3))
def test_only_what_computes_everything_again_is_kept(
    first: int, spark: Any, tmp_path: Path
) -> None:
    """Shuffles, broadcasts, subqueries, the clock and files of others are remembered by a plan."""
    session = spark.newSession()
    session.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    urls = session.range(0, 1, 1, 1).mapInArrow(read_task("urls"), "url STRING")
    urls.createOrReplaceTempView("urls")
    session.range(3).selectExpr("CAST(id AS STRING) AS url").write.parquet(str(tmp_path / "p"))
    side = f"SELECT u.url FROM urls u JOIN parquet.`{tmp_path}/p` p ON u.url = p.url"
    again, every = AGAIN[first::3], [*AGAIN[first::3], *NOT_AGAIN[first::3], side]
    actual = {query: runs_again(session.sql(query), ["SELECT 1", query]) for query in every}
    assert {query for query, kept in actual.items() if kept} == set(again)
