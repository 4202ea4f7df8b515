"""DuckDB: a table in a database file, in one process; two forms of the same upsert.

    changes := the increment's counts LEFT JOIN counts   (url, n after, is it new)
    counts  <- changes;  changes -> one synced Parquet file;  COMMIT

- `duckdb-key`: `url` is a primary key; `INSERT ... ON CONFLICT DO UPDATE`.
- `duckdb-update`: no index; `UPDATE` by the row numbers that the join found, and `INSERT` of the
  new keys. No index has to be maintained, and such a table loads four times as fast.

Best settings found: as many threads as Spark has slots; insertion order not kept; the increment
counted first. Changes come from a join, since `RETURNING` costs a second copy of every changed
row. The commit is durable in the write-ahead log; DuckDB makes checkpoints by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from tests.bench.candidates.candidate import Figures, Place
from tests.bench.candidates.peers.counts import COUNTS, TOTALS
from tests.bench.comparison.changed_counts_files import SCHEMA, Changes, sync
from tests.bench.comparison.digests import digest_of
from tests.bench.comparison.result_comparison import Totals
from tests.bench.errors import BenchRefusedError
from tests.bench.workloads.workload import Arrival

__all__ = ["INITIAL", "DuckdbTableCandidate", "connected"]

INITIAL = """
    SELECT 'http://site' || (id % 50000) || '.example.com/page/' || upper(to_hex(id)) AS url,
           1::BIGINT AS n
    FROM range($keys) AS keys(id)
"""
_CHANGES = """
    CREATE OR REPLACE TEMP TABLE changes AS
    WITH fresh AS MATERIALIZED
        (SELECT url, count(*) AS n FROM read_parquet($path) GROUP BY url)
    SELECT fresh.url, fresh.n + coalesce(counts.n, 0) AS n, counts.rowid AS row
    FROM fresh LEFT JOIN counts USING (url)
"""
_APPLY = {
    "duckdb-key": (
        "INSERT INTO counts SELECT url, n FROM changes "
        "ON CONFLICT (url) DO UPDATE SET n = excluded.n",
    ),
    "duckdb-update": (
        "UPDATE counts SET n = changes.n FROM changes WHERE counts.rowid = changes.row",
        "INSERT INTO counts SELECT url, n FROM changes WHERE row IS NULL",
    ),
}
_KEY = {"duckdb-key": "PRIMARY KEY", "duckdb-update": "NOT NULL"}
_ROWS = 65_536


class DuckdbTableCandidate:
    """One database file; see `tests.bench.candidates.candidate`."""

    form = "sql"

    def __init__(self, place: Place, name: str) -> None:
        self.name, self.state_keys = name, 0
        self._changes = Changes(place.folder)
        self._folder = place.folder
        self._database = connected(place, str(place.folder / "counts.duckdb"))
        columns = f"url VARCHAR {_KEY[name]}, n BIGINT NOT NULL"
        self._database.execute(f"CREATE TABLE counts ({columns})")

    def load(self, state_keys: int) -> None:
        """Fill the table, and checkpoint it."""
        self.state_keys = state_keys
        self._database.execute(f"INSERT INTO counts {INITIAL}", {"keys": state_keys})
        self._database.execute("CHECKPOINT")

    def run(self, arrival: Arrival) -> Figures:
        """Upsert one increment and write its changes, in one transaction."""
        before = _moved()
        path = self._changes.next()
        self._database.execute("BEGIN")
        self._database.execute(_CHANGES, {"path": str(arrival.path)})
        for statement in _APPLY[self.name]:
            self._database.execute(statement)
        copied = f"COPY (SELECT url, n FROM changes) TO '{path}' (FORMAT parquet, COMPRESSION zstd)"
        self._database.execute(copied)
        self._changes.sync()
        self._database.execute("COMMIT")
        sync(self._folder)
        read, written = (after - first for after, first in zip(_moved(), before, strict=True))
        return Figures(bytes_read=read, bytes_written=written)

    def emitted(self) -> Iterator[pa.RecordBatch]:
        """Yield the changes of the latest run."""
        return self._changes.latest()

    def held(self) -> Totals:
        """Digest the table, and the last emitted row per key."""
        answer = self._database.sql("SELECT url, n FROM counts").to_arrow_reader(_ROWS)
        return Totals({COUNTS: digest_of(answer, SCHEMA.fields)}, {TOTALS: self._changes.digest()})

    def close(self) -> None:
        """Close the file."""
        self._database.close()


def connected(place: Place, file: str) -> Any:
    """Return a connection to a database with the best settings found.

    Raises:
        BenchRefusedError: DuckDB is not installed.
    """
    try:
        import duckdb
    except ImportError as exc:
        why = "duckdb is not installed: pip install 'cbp[bench]'"
        raise BenchRefusedError("against", why) from exc
    settings: dict[str, Any] = {"threads": place.slots, "preserve_insertion_order": False}
    database = duckdb.connect(file, config=settings)
    database.execute("SET enable_progress_bar = false")  # else it would appear in the results
    return database


def _moved() -> tuple[int, int]:
    """Return the bytes that this process has read and written by system calls; 0 where unknown."""
    try:
        with open("/proc/self/io", encoding="ascii") as file:
            counters = dict(line.split(": ") for line in file.read().splitlines())
    except OSError:
        return 0, 0
    return int(counters["rchar"]), int(counters["wchar"])
