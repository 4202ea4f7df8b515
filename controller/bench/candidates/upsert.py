"""DuckDB: one process, a table with a primary key in a file, INSERT ... ON CONFLICT.

What one machine does without Spark. Best settings found: as many threads as Spark has
slots; the increment counted first; the commit durable in the write-ahead log, whose
checkpoints DuckDB makes by itself at its own threshold. The changed rows come back by
RETURNING and are written as one synced Parquet file.
"""

from __future__ import annotations

import os
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cbp.model.schema import Schema
from controller.bench.candidate import Figures, Place
from controller.bench.candidates.counts import COUNTS, TOTALS
from controller.bench.digests import digest_of
from controller.bench.errors import BenchRefusedError
from controller.bench.held import Digest, Totals
from controller.bench.workload import Arrival

__all__ = ["UpsertCandidate"]

_UPSERT = """
    INSERT INTO counts
    SELECT url, count(*) AS n FROM read_parquet($path) GROUP BY url
    ON CONFLICT (url) DO UPDATE SET n = counts.n + excluded.n
    RETURNING url, n
"""
_INITIAL = """
    INSERT INTO counts
    SELECT 'http://site' || (id % 50000) || '.example.com/page/' || upper(to_hex(id)), 1
    FROM range($keys) AS keys(id)
"""
_LAST = """
    SELECT url, arg_max(n, filename) AS n
    FROM read_parquet($files, filename = true) GROUP BY url
"""
_SCHEMA = Schema.parse("url STRING, n BIGINT")
_ROWS = 65_536


class UpsertCandidate:
    """One database file; see `controller.bench.candidate`."""

    name, form = "duckdb", "sql"

    def __init__(self, place: Place) -> None:
        try:
            import duckdb
        except ImportError as exc:
            raise BenchRefusedError(
                "against", "duckdb is not installed: pip install 'cbp[bench]'"
            ) from exc
        self.state_keys = 0
        self._place, self._runs = place, 0
        settings: dict[str, Any] = {"threads": place.slots, "preserve_insertion_order": False}
        self._database = duckdb.connect(str(place.folder / "counts.duckdb"), config=settings)
        self._database.execute("CREATE TABLE counts (url VARCHAR PRIMARY KEY, n BIGINT NOT NULL)")

    def load(self, state_keys: int) -> None:
        """Fill the table, and checkpoint it."""
        self.state_keys = state_keys
        self._database.execute(_INITIAL, {"keys": state_keys})
        self._database.execute("CHECKPOINT")

    def run(self, arrival: Arrival) -> Figures:
        """Upsert one increment, and write what changed."""
        before = _moved()
        answer = self._database.sql(_UPSERT, params={"path": str(arrival.path)})
        changed = answer.to_arrow_table()
        path = self._place.folder / f"totals-{self._runs:06d}.parquet"
        self._runs += 1
        _write_synced(changed, str(path))
        read, written = (after - first for after, first in zip(_moved(), before, strict=True))
        return Figures(bytes_read=read, bytes_written=written)

    def held(self) -> Totals:
        """Digest the table, and the last of the rows that were written per key."""
        states = {COUNTS: self._digest("SELECT url, n FROM counts")}
        files = str(self._place.folder / "totals-*.parquet")
        emitted = {TOTALS: self._digest(_LAST, files=files)} if self._runs else {}
        return Totals(states, emitted)

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def _digest(self, query: str, **params: Any) -> Digest:
        answer = self._database.sql(query, params=params)
        return digest_of(answer.to_arrow_reader(_ROWS), _SCHEMA.fields)


def _write_synced(table: pa.Table, path: str) -> None:
    pq.write_table(table, path, compression="zstd")
    for name in (path, os.path.dirname(path)):
        handle = os.open(name, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _moved() -> tuple[int, int]:
    """Return bytes this process has read and written by system calls; 0 where nobody counts."""
    try:
        with open("/proc/self/io", encoding="ascii") as file:
            found = dict(line.split(": ") for line in file.read().splitlines())
    except OSError:
        return 0, 0
    return int(found["rchar"]), int(found["wchar"])
