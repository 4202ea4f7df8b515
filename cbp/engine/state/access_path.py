"""Access path of a look-up in a data file: index copy or Parquet, index or scan, by cost; pure.

Two questions, each with the figures that answer it. They were measured on one core of
two, warm pages, 1.25 M rows of (url of 31 characters, BIGINT, hash), 17 MB of Parquet;
`tests/bench/test_lookups.py` measures them again.

1. *Where the rows come from.* The choices are a mapped copy sorted by hash (0.5 ms to open),
   the row groups of the Parquet file whose range of hashes is wanted (8 ms each), or the whole
   Parquet file (74 ms; 93 ms if it is copied on the way). Without a copy, a look-up of a few
   keys costs a tenth of making one. A copy pays only if it is used again, so row groups are read
   directly until that has cost a part of the copy, as one rents before one buys. A file that
   Parquet reads as fast as a copy is mapped gets no copy.
2. *Which side is searched.* `wanted` and `rows` both ascend. Searching each wanted hash
   among the rows costs 30 ns per wanted hash (1,250 of 1.25 M: 0.15 ms). Scanning the
   rows, each searched among the wanted hashes, costs 25 ns per row (31 ms). The shorter side is
   searched in the longer: 200 k rows and 2 M wanted take 13 ms so, 70 ms the other way.

A full scan reads and tests all rows: at least 31 ms in any case. The index costs as much only
if every row is wanted; from there on the scan is chosen.
"""

from __future__ import annotations

from typing import Literal

RowsFrom = Literal["copy", "groups"]

SMALL_BYTES = 256 << 10
"""Up to this size, and `EngineLimits.small_file_rows`, Parquet is read in 0.6 ms; a copy is mapped
in 0.3 ms and written in 0.5 ms. Files of this size are merged away after a few runs (tier zero
of `cbp.engine.state.compaction`)."""

_GROUPS_SHARE_MAX = 0.25
"""Share of a file that all look-ups together may read directly before its copy is made."""

_SCAN_FROM = 0.85
"""Wanted hashes per row; from here on scanning the rows costs less than searching them."""


def choose_rows(*, rows: int, touched: int, spent: int) -> RowsFrom:
    """Choose the source of the rows for a look-up in a large file without a copy.

    Args:
        touched: Rows of the row groups that may hold wanted rows.
        spent: Rows of this file that earlier look-ups read directly.
    """
    return "groups" if spent + touched <= rows * _GROUPS_SHARE_MAX else "copy"


def choose_search(*, rows: int, wanted: int) -> Literal["index", "scan"]:
    """Choose the side to search: `index` searches the wanted hashes among the rows."""
    return "index" if wanted < rows * _SCAN_FROM else "scan"


def is_small(*, rows: int, size: int, rows_max: int) -> bool:
    """Return whether reading a file is as fast as mapping a copy of it."""
    return rows <= rows_max and size <= SMALL_BYTES
