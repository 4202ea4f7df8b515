"""How a look-up reads a data file: the choice by cost; pure.

Two questions, each with the figures that answer it. They were measured on one core of
two, warm pages, 1.25 M rows of (url of 31 characters, BIGINT, hash), 17 MB of Parquet;
`tests/bench/test_lookups.py` measures them again.

1. *Where the rows come from.* A mapped copy sorted by hash (0.5 ms to open), the row
   groups of the Parquet file whose range of hashes is asked for (8 ms each), or the whole
   Parquet file (74 ms; 93 ms when the copy is made of it on the way). Without a copy, a
   look-up of a few keys costs a tenth of making one, which pays only when it is used
   again: so groups are read directly until that has cost a part of the copy, as one
   rents before one buys. A file that Parquet reads as fast as a copy is mapped gets none.
2. *Which side is searched.* `wanted` and `rows` both ascend. Searching each wanted hash
   among the rows costs 30 ns per wanted hash (1,250 of 1.25 M: 0.15 ms); scanning the
   rows, each searched among the wanted, costs 25 ns per row (31 ms). The shorter side is
   searched in the longer: 200 k rows and 2 M wanted take 13 ms so, 70 ms the other way.

A full scan has to read all rows and test each: 31 ms and more at any rate. The index costs
as much only where every row is wanted, and from there on the scan is chosen.
"""

from __future__ import annotations

from typing import Literal

__all__ = ["RowsFrom", "choose_rows", "choose_search", "is_small"]

RowsFrom = Literal["copy", "groups"]

SMALL_ROWS = 4_096
SMALL_BYTES = 256 << 10
"""Up to here Parquet is read in 0.6 ms, a copy mapped in 0.3 and written in 0.5; files of
this size are merged away after a few runs (tier zero of `cbp.engine.state.compaction`)."""

_GROUPS_SHARE_MAX = 0.25
"""Part of a file that may be read directly, over all look-ups, before its copy is made."""

_SCAN_FROM = 0.85
"""Wanted hashes per row from which scanning the rows costs less than searching them."""


def choose_rows(*, rows: int, touched: int, spent: int) -> RowsFrom:
    """Choose where a look-up in a large file without a copy takes its rows from.

    Args:
        rows: Of the file.
        touched: Rows of the row groups that may hold what is wanted.
        spent: Rows of this file that look-ups read directly before.
    """
    return "groups" if spent + touched <= rows * _GROUPS_SHARE_MAX else "copy"


def choose_search(*, rows: int, wanted: int) -> Literal["index", "scan"]:
    """Choose the side to search: `index` searches the wanted hashes among the rows."""
    return "index" if wanted < rows * _SCAN_FROM else "scan"


def is_small(*, rows: int, size: int) -> bool:
    """Tell whether a file is read as fast as a copy of it."""
    return rows <= SMALL_ROWS and size <= SMALL_BYTES
