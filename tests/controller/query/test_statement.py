"""Which queries may run, as DuckDB's parser reads them: one SELECT over known tables."""

from __future__ import annotations

import pytest

from controller.query.database import open_database, parse
from controller.query.errors import QueryInvalidError, QueryRefusedError
from controller.query.query_limits import QueryLimits
from controller.query.statement import tables_of

KNOWN = ("count.counts", "count.totals", "other.rows")


def tables(sql: str) -> list[str]:
    with open_database([], QueryLimits(threads=1)) as database:
        return sorted(tables_of(parse(database, sql), KNOWN))


@pytest.mark.parametrize(
    ("sql", "read"),
    [
        ("SELECT 1", []),
        ("select * from count.counts;", ["count.counts"]),
        ('SELECT * FROM "count.counts"', ["count.counts"]),
        ("FROM COUNT.Counts", ["count.counts"]),
        ("TABLE count.counts", ["count.counts"]),
        ("VALUES (1), (2)", []),
        (
            "WITH c AS (SELECT * FROM count.totals) SELECT (SELECT max(n) FROM other.rows) "
            "FROM c JOIN count.counts USING (url) WHERE EXISTS (FROM range(3))",
            ["count.counts", "count.totals", "other.rows"],
        ),
        ("SELECT n FROM count.counts UNION ALL SELECT n FROM other.rows", None),
        ("SELECT unnest([1, 2]), count(*) OVER () -- a; comment", []),
        ("WITH RECURSIVE t AS (SELECT 1 x UNION ALL SELECT x + 1 FROM t) SELECT x FROM t", []),
    ],
)
def test_a_select_names_the_tables_that_it_reads(sql: str, read: list[str] | None) -> None:
    """Wherever they stand in it; its own names are none."""
    assert tables(sql) == (["count.counts", "other.rows"] if read is None else read)


REFUSED = [
    "",
    ";",
    "SELECT 1; SELECT 2",
    "SELECT 1; DROP TABLE x",
    "COPY (SELECT 1) TO '/tmp/x'",
    "COPY count.counts TO '/tmp/x'",
    "ATTACH '/tmp/x.db' AS x",
    "DETACH memory",
    "USE memory",
    "PRAGMA database_list",
    "CALL pragma_version()",
    "SET threads = 64",
    "RESET memory_limit",
    "INSTALL httpfs",
    "LOAD httpfs",
    "CREATE TABLE x AS SELECT 1",
    "CREATE MACRO f() AS 1",
    "INSERT INTO count.counts VALUES (1)",
    "DELETE FROM count.counts",
    "EXPLAIN ANALYZE SELECT 1",
    "PREPARE p AS SELECT 1",
    "EXPORT DATABASE '/tmp/x'",
    "CHECKPOINT",
    "VACUUM",
    "BEGIN",
    "SHOW TABLES",
    "SHOW ALL TABLES",
    "DESCRIBE count.counts",
    "SUMMARIZE count.counts",
    "SELECT * FROM (DESCRIBE count.counts)",
    "SELECT ?",
    "SELECT $name",
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM read_csv_auto('/etc/passwd')",
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM read_blob('/etc/passwd')",
    "SELECT * FROM READ_PARQUET('https://example.org/x.parquet')",
    "SELECT (SELECT content FROM read_text('/etc/passwd'))",
    "WITH x AS (FROM read_json('/etc/passwd')) FROM x",
    "SELECT * FROM '/etc/passwd'",
    "SELECT * FROM 'data/*.parquet'",
    'SELECT * FROM "https://example.org/x.csv"',
    "SELECT * FROM glob('/etc/*')",
    "SELECT * FROM sniff_csv('/etc/passwd')",
    "SELECT * FROM parquet_metadata('x')",
    "SELECT * FROM query('SELECT 1')",
    "SELECT * FROM query_table('count.counts')",
    "SELECT * FROM json_execute_serialized_sql('{}')",
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM duckdb_secrets()",
    "SELECT * FROM pragma_table_info('x')",
    "SELECT * FROM pg_catalog.pg_class",
    "SELECT * FROM pg_class",
    "SELECT * FROM information_schema.tables",
    "SELECT * FROM sqlite_master",
    "SELECT * FROM memory.count.counts",
    "SELECT * FROM nobody.counts",
    "SELECT * FROM counts",
    "SELECT getenv('HOME')",
    "SELECT current_setting('memory_limit')",
    "SELECT getvariable('x')",
    "SELECT sleep_ms(1)",
    "SELECT write_log('x')",
]


@pytest.mark.parametrize("sql", REFUSED)
def test_everything_else_is_refused_before_it_runs(sql: str) -> None:
    """Statements, files, addresses, settings, catalogs, and tables of others."""
    with pytest.raises((QueryRefusedError, QueryInvalidError)):
        tables(sql)


def test_what_is_no_sql_is_told_with_the_place() -> None:
    """As the parser says it; it is another error than a refusal."""
    with pytest.raises(QueryInvalidError, match="selec"):
        tables("selec 1")
    with pytest.raises(QueryRefusedError, match=r"count\.counts"):
        tables("SELECT * FROM nobody.counts")
