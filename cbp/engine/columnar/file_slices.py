"""Slices of an increment's files: the rows that one task reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from cbp.engine.columnar.arrow_types import conform
from cbp.engine.storage.checked_parquet import open_parquet, reading_increment
from cbp.errors import IncrementDamagedError
from cbp.model.flow.increment import DataFile

__all__ = ["InputShare", "Share", "share_of", "windows"]


@dataclass(frozen=True, slots=True)
class Share:
    """Rows `start` to `stop` of one file.

    Attributes:
        path: Full path.
        rows: Number of rows that the whole file must have.
        buckets: The number of buckets, if the file holds messages sorted by bucket; else 0.
    """

    path: str
    rows: int
    start: int
    stop: int
    buckets: int = 0


@dataclass(frozen=True, slots=True)
class InputShare:
    """Rows of one file of one input."""

    input: str
    share: Share


def share_of(folder: str, file: DataFile) -> Share:
    """Return the rows of a file that an increment refers to, with the file's full path."""
    buckets = file.buckets if file.whole else 0
    return Share(f"{folder}/{file.path}", file.records, file.start, file.stop, buckets)


def windows(share: Share, columns: pa.Schema, most: int) -> Iterator[pa.Table]:
    """Yield the rows of a share, at most `most` at a time.

    Raises:
        IncrementDamagedError: The file is missing, damaged, or has a different number of rows.
    """
    with reading_increment(share.path, share.rows):
        file = open_parquet(share.path)
    if file.metadata.num_rows != share.rows:
        raise IncrementDamagedError(share.path, expected=share.rows, found=file.metadata.num_rows)
    at = 0
    for group in range(file.num_row_groups):
        rows = file.metadata.row_group(group).num_rows
        first, last = max(share.start - at, 0), min(share.stop - at, rows)
        at += rows
        if first < last:
            with reading_increment(share.path, share.rows):
                group_rows = file.read_row_group(group, columns.names)
                part = conform(group_rows, columns)
            for start in range(first, last, most):
                yield part.slice(start, min(most, last - start))
