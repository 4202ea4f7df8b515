"""The product without the choice by cost: every look-up reads the whole file and tests every row.

It keeps no index copies, so that each run reads the Parquet files of the touched buckets from
start to end. Compared with it, `--hit-rates` shows what the choice between index and scan saves at
each rate, and that this choice never costs more than the scan.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from cbp.engine.columnar.arrow_types import Int64s
from cbp.engine.state.index_cache import IndexCache
from cbp.engine.state.lookup import IndexedFile, StateRows
from cbp.engine.task.stage_task import StageTask

__all__ = ["ScanTask"]


class ScanTask(StageTask):
    """A task without index look-ups."""

    def open_cache(self, folder: str) -> IndexCache:
        """Return a cache that keeps nothing."""
        return _NoCache(folder)


class _NoCache(IndexCache):
    """Reads every file again."""

    def reader(
        self,
        table: str,
        table_id: str,
        path: str,
        *,
        size: int,
        rows: int,
        wanted: Int64s | None,
    ) -> StateRows:
        """Return all rows of a file."""
        indexed_file = self.open(table, table_id, path, size=size, rows=rows, copy=False)
        return _Scanned(indexed_file)

    def put(self, table_id: str, path: str, *, size: int, content: pa.Table) -> None:
        """Keep no copy."""

    def _hold(self, name: str, rows: IndexedFile) -> IndexedFile:
        """Keep no rows."""
        return rows


class _Scanned:
    """All rows of a file; each is tested. See `cbp.engine.state.lookup.StateRows`."""

    def __init__(self, rows: IndexedFile) -> None:
        self._rows = rows

    @property
    def memory(self) -> int:
        """Bytes of all rows."""
        return self._rows.memory

    def find(self, wanted: Int64s | None) -> tuple[Int64s, Int64s]:
        """Return positions and hashes of the wanted rows."""
        positions, hashes = self._rows.find(None)
        if wanted is None:
            return positions, hashes
        if not len(wanted):
            return positions[:0], hashes[:0]
        nearest = np.minimum(np.searchsorted(wanted, hashes), len(wanted) - 1)
        hit = wanted[nearest] == hashes
        return positions[hit], hashes[hit]

    def take(self, positions: Int64s, columns: Sequence[str]) -> pa.Table:
        """Return some rows."""
        return self._rows.take(positions, columns)

    def repeated(self, stride: int, wanted: Int64s | None) -> set[int]:
        """Return no large groups: all rows are in memory anyway."""
        return set()

    def way(self, wanted: Int64s | None) -> str:
        """Return how rows are found."""
        return "scan"
