"""State as one Parquet file that every increment replaces, in one process; two candidates.

    changes := the increment's counts, with the counts of the keys that are in state
    state   := state with the changed counts, and the new keys   -> new file, synced, renamed

- `duckdb-parquet`: DuckDB reads and writes the file; nothing is kept between runs.
- `polars`: Polars reads and writes the file, with its streaming engine.

Best settings found: the increment is the small side of every join; Snappy, which is written
fastest; the order of rows is not kept.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from tests.bench.candidates.candidate import Figures, Place
from tests.bench.candidates.peers.counts import COUNTS, TOTALS
from tests.bench.candidates.peers.duckdb_table import INITIAL, connected
from tests.bench.comparison.changed_counts_files import SCHEMA, Changes, sync
from tests.bench.comparison.digests import digest_of
from tests.bench.comparison.result_comparison import Totals
from tests.bench.workloads.workload import Arrival

__all__ = ["DuckdbParquetCandidate", "PolarsCandidate"]

_CHANGES = """
    CREATE OR REPLACE TEMP TABLE changes AS
    WITH fresh AS MATERIALIZED
        (SELECT url, count(*) AS n FROM read_parquet($path) GROUP BY url)
    SELECT fresh.url, fresh.n + coalesce(counts.n, 0) AS n, counts.n IS NULL AS new
    FROM fresh LEFT JOIN read_parquet($state) AS counts USING (url)
"""
_REWRITTEN = """
    SELECT counts.url, coalesce(changes.n, counts.n) AS n
    FROM read_parquet('{state}') AS counts LEFT JOIN changes USING (url)
    UNION ALL SELECT url, n FROM changes WHERE new
"""


class _ParquetState:
    """Shared code of both candidates: the file, its replacement, and the output."""

    form = "sql"

    def __init__(self, place: Place, name: str) -> None:
        self.name, self.state_keys = name, 0
        self._place, self._changes = place, Changes(place.folder)
        self._state = place.folder / "counts.parquet"
        self._next = place.folder / "counts.parquet.next"

    def _replace(self) -> int:
        """Replace the state by the new file; return the bytes of the old one."""
        before = self._state.stat().st_size
        sync(self._next)
        os.replace(self._next, self._state)
        sync(self._place.folder)
        return before

    def emitted(self) -> Iterator[pa.RecordBatch]:
        """Yield the changes of the latest run."""
        return self._changes.latest()

    def held(self) -> Totals:
        """Digest the file, and the last emitted row per key."""
        rows = ds.dataset(self._state, format="parquet").to_batches(columns=list(SCHEMA.names))
        return Totals({COUNTS: digest_of(rows, SCHEMA.fields)}, {TOTALS: self._changes.digest()})


class DuckdbParquetCandidate(_ParquetState):
    """DuckDB on files; see `tests.bench.candidates.candidate`."""

    def __init__(self, place: Place) -> None:
        super().__init__(place, "duckdb-parquet")
        self._database = connected(place, ":memory:")

    def load(self, state_keys: int) -> None:
        """Write the file."""
        self.state_keys = state_keys
        first = INITIAL.replace("$keys", str(state_keys))
        self._copy(first, self._state, "snappy")

    def run(self, arrival: Arrival) -> Figures:
        """Write the changes, then the whole state."""
        paths = {"path": str(arrival.path), "state": str(self._state)}
        self._database.execute(_CHANGES, paths)
        self._copy("SELECT url, n FROM changes", self._changes.next(), "zstd")
        self._changes.sync()
        self._copy(_REWRITTEN.format(state=self._state), self._next, "snappy")
        return Figures(bytes_read=arrival.bytes + 2 * self._replace())

    def close(self) -> None:
        """Close the database, which holds no data."""
        self._database.close()

    def _copy(self, query: str, path: Path, compression: str) -> None:
        options = f"FORMAT parquet, COMPRESSION {compression}"
        self._database.execute(f"COPY ({query}) TO '{path}' ({options})")


class PolarsCandidate(_ParquetState):
    """Polars on files; see `tests.bench.candidates.candidate`."""

    def __init__(self, place: Place) -> None:
        super().__init__(place, "polars")

    def load(self, state_keys: int) -> None:
        """Write the file with Polars."""
        import polars as pl

        self.state_keys = state_keys
        ids = pl.LazyFrame().select(id=pl.int_range(0, state_keys))
        parts = [pl.lit("http://site"), pl.col("id") % 50_000, pl.lit(".example.com/page/"), _hex()]
        rows = ids.select(url=pl.concat_str(parts), n=pl.lit(1, pl.Int64))
        rows.sink_parquet(self._state, compression="snappy")

    def run(self, arrival: Arrival) -> Figures:
        """Write the changes, then the whole state."""
        import polars as pl

        fresh = pl.scan_parquet(arrival.path).group_by("url").agg(n=pl.len().cast(pl.Int64))
        fresh_rows: Any = fresh.collect(engine="streaming")
        state = pl.scan_parquet(self._state)
        known = state.join(fresh_rows.lazy(), on="url", suffix="_more")
        updated: Any = known.select("url", n=pl.col("n") + pl.col("n_more")).collect(
            engine="streaming"
        )
        added = fresh_rows.join(updated, on="url", how="anti")
        path = self._changes.next()
        pl.concat([updated, added]).write_parquet(path, compression="zstd")
        self._changes.sync()
        joined = state.join(updated.lazy(), on="url", how="left", suffix="_now")
        kept = joined.select("url", n=pl.coalesce("n_now", "n"))
        rows = pl.concat([kept, added.lazy()])
        rows.sink_parquet(
            self._next, compression="snappy", maintain_order=False, engine="streaming"
        )
        return Figures(bytes_read=arrival.bytes + 2 * self._replace())

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


def _hex() -> Any:
    """Return the upper-case hexadecimal digits of `id`, without leading zeros."""
    import polars as pl

    digits = pl.lit("")
    for place in range(7, -1, -1):
        digit = (pl.col("id") // 16**place) % 16
        text = pl.lit("0123456789ABCDEF").str.slice(digit, 1)
        begun = (pl.col("id") >= 16**place) | pl.lit(place == 0)
        digits = digits + pl.when(begun).then(text).otherwise(pl.lit(""))
    return digits
