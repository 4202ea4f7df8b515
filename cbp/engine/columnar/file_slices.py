"""Slices of an increment's files: the rows that one task reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cbp.engine.columnar.arrow_types import arrow_schema, conform
from cbp.engine.columnar.key_index import GroupKey, IndexBits, index_bits, index_width
from cbp.engine.storage.checked_parquet import CheckedFile, open_parquet, reading_increment
from cbp.errors import IncrementDamagedError
from cbp.model.dataflow.stage import InputSpec
from cbp.model.flow.increment import DataFile
from cbp.model.flow.signed_changes import AFTER, CHANGE_TYPE


@dataclass(frozen=True, slots=True)
class Share:
    """Rows `start` to `stop` of a file that has `rows` rows.

    `buckets` is the number of buckets if the file holds messages sorted by bucket; otherwise 0.
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


def file_columns(input_: InputSpec) -> pa.Schema:
    """Return the columns of a flow's files from which an input reads its records."""
    columns = arrow_schema(input_.schema)
    if input_.changes == "after":
        return columns.append(pa.field(CHANGE_TYPE, pa.string()))
    return columns


def records_read(table: pa.Table, input_: InputSpec) -> pa.Table:
    """Return the rows that an input reads from a table with its `file_columns`.

    The direct engine drops rows of an input only here; a Spark job does it in `bucket_shuffle`.
    """
    if input_.changes != "after":
        return table
    types = table.column(CHANGE_TYPE)
    # Null is one of the values, so that a record without a type is read, too.
    after = pc.is_in(types, pa.array([*AFTER, None], types.type))
    return table.filter(after).drop_columns([CHANGE_TYPE])


def records_expected(share: Share, input_: InputSpec) -> int:
    """Return how many records of a share an input reads; reads a column only if needed."""
    if input_.changes != "after":
        return share.stop - share.start
    with reading_increment(share.path, share.rows):
        file = open_parquet(share.path)
        if CHANGE_TYPE not in file.schema_arrow.names:  # written before the flow had changes
            return share.stop - share.start
        types = file.read([CHANGE_TYPE])
    return int(records_read(types.slice(share.start, share.stop - share.start), input_).num_rows)


@dataclass(frozen=True, slots=True)
class RowGroup:
    """The rows of a share that are in one row group of its file."""

    share: Share
    file: CheckedFile
    number: int
    start: int
    rows: int

    def read(self, columns: Sequence[str]) -> pa.Table:
        """Return some columns of the rows."""
        with reading_increment(self.share.path, self.share.rows):
            return self.file.read_row_group(self.number, columns).slice(self.start, self.rows)

    def index_width(self, key: GroupKey) -> int | None:
        """Return how many bits of each hash the file's index of a key has; `None` without one."""
        schema = self.file.schema_arrow
        at = schema.get_field_index(key.index)
        return index_width(schema.field(at)) if at >= 0 else None

    def index(self, key: GroupKey) -> IndexBits | None:
        """Return the file's index of a key; `None` if there is none, or if it is invalid."""
        width = self.index_width(key)
        return None if width is None else index_bits(self.read([key.index]).column(0), width)

    def statistics(self, column: str) -> Any:
        """Return the file's statistics of a column; `None` if there is no such column."""
        at = self.file.schema_arrow.get_field_index(column)
        metadata = self.file.metadata.row_group(self.number)
        for number in range(at, metadata.num_columns) if at >= 0 else ():
            chunk = metadata.column(number)  # later than `at` if a column before it is nested
            if chunk.path_in_schema == column:
                return chunk.statistics
        return None


def row_groups(share: Share) -> Iterator[RowGroup]:
    """Yield a share's row groups; `IncrementDamagedError` if the file is not as recorded."""
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
            yield RowGroup(share, file, group, first, last - first)


def windows(share: Share, input_: InputSpec, most: int) -> Iterator[pa.Table]:
    """Yield records of a share of an input, at most `most` at a time; raises as `row_groups`."""
    columns = file_columns(input_)
    for group in row_groups(share):
        with reading_increment(share.path, share.rows):
            part = conform(group.read(columns.names), columns)
        for start in range(0, group.rows, most):
            yield records_read(part.slice(start, most), input_)
