"""Queries over real tables, each in a process of its own: right rows, one snapshot, hard limits."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from cbp.errors import VersionGoneError
from controller.query import (
    Answer,
    Queries,
    QueriesBusyError,
    QueryInvalidError,
    QueryLimits,
    QueryRefusedError,
    QueryTimeError,
    QueryTooLargeError,
    Question,
)
from controller.query.database import lock, open_database
from controller.query.sql_types import unheld_type
from tests.controller.live import Live
from tests.controller.query.queried import VALUES, queried

pytestmark = pytest.mark.usefixtures("without_syncs")

LIMITS = QueryLimits(seconds=30, threads=1, memory_bytes=128 << 20)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    made = queried(tmp_path_factory.mktemp("queries"))
    yield made
    made.world.close()


def ask(service: Live, sql: str, limits: QueryLimits = LIMITS, **when: Any) -> Answer:
    snapshot = service.world.controller.snapshots.take("one", **when)
    return Queries(limits).run(Question(sql, snapshot))


def test_a_query_reads_exactly_the_records_of_a_snapshot(service: Live) -> None:
    """States without what is deleted or replaced, flows with every epoch, changes of views."""
    answer = ask(
        service,
        "SELECT s.word, s.n, c.n, (SELECT count(*) FROM sum.totals), "
        "(SELECT string_agg(word || n || change_type, ' ' ORDER BY _epoch, word, n, sign) "
        'FROM sum.counts_changes) FROM sum.sums s JOIN "sum.counts" c USING (word) ORDER BY 1',
    )
    changes = (
        "a1insert b5insert a1update_before a3update_after c2insert "
        "a3delete c2update_before c9update_after"
    )
    assert answer.rows == [("b", 5, 5, 6, changes), ("c", 9, 9, 6, changes)]
    assert sorted(answer.tables) == ["sum.counts", "sum.counts_changes", "sum.sums", "sum.totals"]
    assert not answer.truncated
    before = ask(service, "SELECT word, n FROM sum.sums ORDER BY ALL", epoch=0)
    assert before.rows == [("a", 1), ("b", 5)]


def test_every_type_is_read_as_it_was_written(service: Live) -> None:
    """Values and names of types, without the engine's own columns."""
    answer = ask(service, "SELECT * FROM sum.sums WHERE word = 'b'")
    names = [name for name, _ in answer.columns]
    (row,) = answer.rows
    assert dict(zip(names, row, strict=True)) == {"word": "b", "n": 5, **VALUES}
    assert dict(answer.columns)["named"] == "MAP(VARCHAR, BIGINT)"
    flow = ask(service, "SELECT * EXCLUDE (_order) FROM sum.totals ORDER BY _order LIMIT 1")
    assert [name for name, _ in flow.columns] == ["word", "n", "_epoch"]


UNHELD = [
    "340282366920938463463374607431768211455::UHUGEINT",
    "[{'a': 1::UHUGEINT}]",
    "map {1: '101'::BIT}",
    "timetz '12:00:00+02'",
    "1::VARIANT",
    "1::BIGNUM",
]


def test_a_value_that_an_answer_does_not_hold_is_refused(service: Live) -> None:
    """With its column and what to do, not changed, and not as a fault; a cast to text holds it."""
    for value in (UNHELD[1], "[{'day': date 'infinity'}]", "map {[1]: 2}"):
        with pytest.raises(QueryInvalidError, match=r"column 'odd'; cast it"):
            ask(service, f"SELECT 1 AS even, {value} AS odd")
    sql = f"SELECT {UNHELD[0]}::VARCHAR, (date 'infinity')::VARCHAR, 3::HUGEINT, [1]::INT[1]"
    held = [("340282366920938463463374607431768211455", "infinity", 3, [1])]
    assert ask(service, sql).rows == held


def test_types_that_an_answer_does_not_hold_are_known_at_any_depth() -> None:
    """Those that Arrow would change; no type of a table's column is one."""
    with duckdb.connect() as database:
        assert all(map(unheld_type, database.sql(f"SELECT {', '.join(UNHELD)}").types))
        held = "3::HUGEINT, [1]::INT[1], union_value(k := 1), map {'k': 2}, {'bit': [now()]}"
        assert not any(map(unheld_type, database.sql(f"SELECT {held}").types))


def test_rows_beyond_the_limit_are_left_out_and_said(service: Live) -> None:
    """Not one too few: an answer that just fits is whole."""
    few = replace(LIMITS, rows=3)
    answer = ask(service, "SELECT range AS x FROM range(1000000000)", few)
    assert (answer.rows, answer.truncated) == ([(0,), (1,), (2,)], True)
    whole = ask(service, "SELECT * FROM range(3)", few)
    assert (len(whole.rows), whole.truncated) == (3, False)
    nothing = ask(service, "SELECT * FROM sum.sums WHERE false", few)
    assert (nothing.rows, nothing.truncated) == ([], False)


ENDLESS = [
    "WITH RECURSIVE t AS (SELECT 1 x UNION ALL SELECT x + 1 FROM t) SELECT max(x) FROM t",
    "SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE hash(a.range, b.range) = 1",
]


@pytest.mark.part(every=4)
@pytest.mark.parametrize("sql", ENDLESS)
def test_what_does_not_end_is_ended(service: Live, sql: str) -> None:
    """In time, with its process; the place is free for the next one."""
    began, before = time.monotonic(), _children()
    queries = Queries(replace(LIMITS, seconds=2, parallel=1))
    snapshot = service.world.controller.snapshots.take("one")
    with pytest.raises((QueryTimeError, QueryTooLargeError)):
        queries.run(Question(sql, snapshot))
    assert time.monotonic() - began < 15
    assert _children() <= before
    slow = replace(LIMITS, parallel=1)
    assert Queries(slow).run(Question("SELECT 1", snapshot)).rows == [(1,)]


LARGE = [
    "SELECT string_agg(repeat('x', 1000000), '') FROM range(100000)",
    "SELECT count(*) FROM (SELECT DISTINCT range * 7 AS x, repeat('y', 90) || range AS y "
    "FROM range(100000000))",
]


@pytest.mark.part(every=2)
@pytest.mark.parametrize("sql", LARGE)
def test_what_takes_too_much_memory_is_ended(service: Live, sql: str) -> None:
    """Nothing is spilled to disk; the answer says why."""
    with pytest.raises(QueryTooLargeError):
        ask(service, sql)


def test_an_answer_that_is_too_large_is_refused(service: Live) -> None:
    """Also if its rows are few."""
    small = replace(LIMITS, answer_bytes=1 << 20)
    with pytest.raises(QueryTooLargeError):
        ask(service, "SELECT repeat('x', 300000) FROM range(100)", small)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT nothing FROM sum.sums",
        "SELECT error('no') FROM sum.sums",
    ],
)
def test_a_wrong_query_is_told(service: Live, sql: str) -> None:
    """As the engine says it, without a failure of ours."""
    with pytest.raises(QueryInvalidError):
        ask(service, sql)


def test_the_database_itself_reaches_nothing(tmp_path: Path) -> None:
    """Also for a query that is not checked: no file beside the tables, no setting, no network."""
    tables, outside = tmp_path / "tables", tmp_path / "secret.csv"
    tables.mkdir()
    outside.write_text("a\n1\n")
    database = open_database([str(tables)], LIMITS)
    lock(database)
    for sql in (
        f"SELECT * FROM read_csv('{outside}')",
        f"SELECT * FROM read_csv('{tables}/../secret.csv')",
        f"SELECT * FROM '{outside}'",
        f"SELECT * FROM glob('{tmp_path}/*')",
        "SELECT * FROM outside",
        f"COPY (SELECT 1) TO '{tmp_path}/written.csv'",
        f"ATTACH '{tmp_path}/written.db'",
        "SET enable_external_access = true",
        "SET allowed_directories = ['/']",
        "SET memory_limit = '64GB'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SELECT * FROM read_parquet('https://127.0.0.1:1/x.parquet')",
    ):
        with pytest.raises(duckdb.Error):
            database.execute(sql)
    assert sorted(os.listdir(tmp_path)) == ["secret.csv", "tables"]


def test_a_refused_query_starts_nothing_of_it(service: Live) -> None:
    """The process refuses what the tree shows, and says which tables there are."""
    with pytest.raises(QueryRefusedError, match=r"sum\.counts_changes"):
        ask(service, "SELECT * FROM two.sums")


def test_no_more_run_than_may(service: Live) -> None:
    """The next one is asked to come back; it takes the place of none."""
    queries = Queries(replace(LIMITS, parallel=1))
    snapshot = service.world.controller.snapshots.take("one")
    assert queries._free.acquire(blocking=False)
    with pytest.raises(QueriesBusyError) as refused:
        queries.run(Question("SELECT 1", snapshot))
    assert refused.value.retryable
    queries._free.release()
    assert queries.run(Question("SELECT 1", snapshot)).rows == [(1,)]


def test_a_collected_version_is_told(service: Live) -> None:
    """By its code; nothing of it is read as if it were empty."""
    snapshot = service.world.controller.snapshots.take("one")
    later = {name: replace(one, version=10**6) for name, one in snapshot.tables.items()}
    with pytest.raises(VersionGoneError):
        Queries(LIMITS).run(Question("FROM sum.sums", replace(snapshot, tables=later)))


def _children() -> set[str]:
    """Return the ids of the processes that this one has started; other tests may have left some."""
    paths = Path("/proc/self/task").glob("*/children")
    return {child for path in paths for child in path.read_text().split()}
