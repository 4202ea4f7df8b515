"""SQL that gives another result when its run is repeated is refused, and named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cbp import Input, State, TranslateSql, View
from cbp.engine.direct import DirectEngine
from cbp.engine.spark import SparkExecutor
from cbp.engine.spark.sql.determinism import differences, moments
from cbp.errors import DataflowInvalidError
from tests.driver import Driver
from tests.spark.sql_dataflows import dataflow_of

pytestmark = pytest.mark.spark

REFUSED = {
    "SELECT url, current_timestamp() AS at FROM urls": "current_timestamp()",
    "SELECT url, now() AS at FROM urls": "now()",
    "SELECT url FROM urls WHERE CURRENT_DATE > DATE'2026-01-01'": "current_date()",
    "SELECT url, date_add(current_date(), 1) AS day FROM urls": "current_date()",
    "SELECT url, unix_timestamp() AS at FROM urls": "current_timestamp()",
    "SELECT url, localtimestamp() AS at FROM urls": "localtimestamp()",
    "SELECT url, rand() AS x FROM urls": "rand()",
    "SELECT url, rand(7) AS x FROM urls": "rand()",
    "SELECT url, concat(url, uuid()) AS id FROM urls": "uuid()",
    "SELECT url, monotonically_increasing_id() AS n FROM urls": "monotonically_increasing_id()",
    "SELECT url, current_user() AS name FROM urls": "current_user()",
    "SELECT url FROM urls WHERE url > (SELECT max(CAST(now() AS STRING)) FROM urls)": "now()",
    "WITH t AS (SELECT url, uuid() AS id FROM urls) SELECT id FROM t": "uuid()",
    "SELECT url, CAST('now' AS TIMESTAMP) AS at FROM urls": "'now'",
    "SELECT url, TIMESTAMP 'now' AS at FROM urls": "'now'",
    "SELECT url, DATE 'yesterday' AS day FROM urls": "'yesterday'",
}
ACCEPTED = [
    "SELECT url, count(*) AS n FROM urls GROUP BY url",
    "SELECT url, array_sort(collect_list(url)) AS many, first(url) AS one FROM urls GROUP BY url",
    "SELECT url, row_number() OVER (PARTITION BY url ORDER BY url) AS n FROM urls",
    "SELECT url FROM urls WHERE url > (SELECT min(url) FROM urls)",
    "SELECT url AS now, 1 AS `rand` FROM urls WHERE url <> 'now' AND url <> 'uuid()'",
    "SELECT url, TIMESTAMP '2026-01-01 00:00:00' AS at, DATE 'epoch' AS day FROM urls",
    "SELECT url, CAST('epoch' AS TIMESTAMP) AS at, CAST('2026-01-01' AS DATE) AS day FROM urls",
    "SELECT url, xxhash64(url) AS x, to_date(url) AS day FROM urls",
]


def test_what_differs_is_named_and_nothing_else(spark: Any) -> None:
    """The clock, chance, the session and moments, in subqueries too; not order, nor a fixed day."""
    session = spark.newSession()
    session.createDataFrame([], "url STRING").createOrReplaceTempView("urls")

    def named(query: str) -> tuple[str, ...]:
        analyzed = session.sql(query)._jdf.queryExecution().analyzed()
        return (*differences(session, analyzed), *moments(session, [query]))

    expected = {query: (name,) for query, name in REFUSED.items()}
    assert {query: named(query) for query in REFUSED} == expected
    assert {query: named(query) for query in ACCEPTED} == dict.fromkeys(ACCEPTED, ())


class Stamped(TranslateSql):
    """The time of the last visit, by the clock."""

    urls = Input("url STRING", route_by="url")
    seen = View("url STRING, at TIMESTAMP", key="url")
    queries = {  # noqa: RUF012
        "fresh": "SELECT DISTINCT url FROM urls",
        "seen": "SELECT url, current_timestamp() AS at FROM fresh",
    }


class StampedByRun(Stamped):
    queries = {  # noqa: RUF012
        "fresh": "SELECT DISTINCT url FROM urls",
        "seen": "SELECT url, time AS at FROM fresh CROSS JOIN run",
    }


class StampedByFrames(TranslateSql):
    """The same by the author's own plan, whose state has nothing of the clock."""

    urls, seen = Stamped.urls, Stamped.seen
    names = State("url STRING")

    def translate(self, frames: Any, out: Any) -> None:
        out.names(frames.urls.select("url").distinct())
        out.seen(frames.urls.distinct().selectExpr("url", "now() AS at"))


def test_queries_of_the_clock_are_refused_when_they_are_registered(
    spark: Any, tmp_path: Path
) -> None:
    """The result and the function are named, and the run's time in its place is taken."""
    executor = SparkExecutor(spark)
    engine = DirectEngine(executor, cache=str(tmp_path))
    with pytest.raises(DataflowInvalidError) as caught:
        engine.control.refuse("d", list(dataflow_of(Stamped()).stages.values()))
    (mistake,) = caught.value.mistakes
    assert (mistake.code, mistake.where) == ("by_sql_invalid", "stages.t0")
    assert mistake.message.startswith("out.seen uses current_timestamp()")
    assert "run" in mistake.message
    assert mistake.place.startswith(__file__)
    for name in ("d", "e"):
        engine.control.refuse(name, list(dataflow_of(StampedByRun()).stages.values()))
    executor.forget(f"{tmp_path}/tables/d")  # deleted
    assert [dataflow for dataflow, _ in executor._queries._known] == ["e"]


def test_an_authors_plan_of_the_clock_is_refused_by_its_run(spark: Any, tmp_path: Path) -> None:
    """It exists only then; what it gives another result by is the same mistake."""
    engine = DirectEngine(SparkExecutor(spark), cache=str(tmp_path / "cache"))
    driver = Driver(engine, dataflow_of(StampedByFrames()), tmp_path / "t")
    driver.feed("r0", [{"url": "a"}])
    with pytest.raises(DataflowInvalidError) as caught:
        driver.run_until_idle()
    (mistake,) = caught.value.mistakes
    assert mistake.code == "by_sql_invalid"
    assert mistake.message.startswith("out.seen uses now()")
