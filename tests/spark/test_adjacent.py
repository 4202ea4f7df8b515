"""Aggregations that Spark splits in two, and that a plan of one partition does in one.

An aggregation that follows its own first half is one, and gives the same rows, whatever its
functions, filters and keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from cbp.engine.spark.sql.merge_aggregates import combined, combined_plan

pytestmark = pytest.mark.spark

_ROWS = {
    "k": ["a", "b", "a", None, "A", None],
    "n": [1, 2, 3, 4, None, 6],
    "x": [1.0, 2.0, 1.0, 0.0, -0.0, float("nan")],
}
_JOINED = """
SELECT s.k, s.n AS total, t.n FROM (SELECT k, sum(n) AS n FROM t GROUP BY k) s JOIN t ON s.k <=> t.k
"""

QUERIES = {
    # query: how many aggregations Spark plans, and how many are left.
    "SELECT k, sum(n) AS n FROM t GROUP BY k": (2, 1),
    "SELECT DISTINCT k, x FROM t": (2, 1),
    "SELECT count(*) AS many, max(n) AS most FROM t": (2, 1),
    "SELECT upper(k) AS u, sum(n) FILTER (WHERE n > 1) AS s, avg(x) AS a FROM t GROUP BY 1": (2, 1),
    "SELECT k, max(k || 'x') AS most FROM t GROUP BY k": (2, 1),
    "SELECT k, sort_array(collect_list(n)) AS many, percentile(x, 0.5) AS p FROM t GROUP BY k": (
        2,
        1,
    ),
    "SELECT k, sum(n) + 1 AS s, grouping_id() AS g FROM t GROUP BY CUBE (k, x)": (2, 1),
    "SELECT max(s) AS most FROM (SELECT k, sum(n) AS s FROM t GROUP BY k)": (4, 2),
    _JOINED: (2, 1),
    "SELECT k, count(DISTINCT x) AS d FROM t GROUP BY k": (4, 3),
    "SELECT k, count(DISTINCT x) AS d, sum(n) AS s FROM t GROUP BY k": (4, 4),
}


def _leaf(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        pass
    yield pa.RecordBatch.from_pydict(_ROWS)


@pytest.mark.soak
def test_halves_are_one_and_rows_are_the_same(spark: Any) -> None:
    """Whatever the functions, filters and keys; stages of distinct ones stay; again and again."""
    session = spark.newSession()
    session.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    session.conf.set("spark.sql.shuffle.partitions", "1")
    leaf = session.range(0, 1, 1, 1).mapInArrow(_leaf, "k STRING, n BIGINT, x DOUBLE")
    leaf.createOrReplaceTempView("t")
    for query, (planned, left) in QUERIES.items():
        frame = session.sql(query)
        assert _aggregations(frame._jdf.queryExecution().executedPlan()) == planned, query
        assert _aggregations(combined_plan(frame)) == left, query
        again = combined(frame)
        expected = sorted(map(str, frame.collect()))
        assert [sorted(map(str, again.collect())) for _ in range(2)] == [expected] * 2, query


def _aggregations(plan: Any) -> int:
    return str(plan.toString()).count("Aggregate(")
