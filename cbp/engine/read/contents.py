"""Contents of one version of a table, as streams of records; for comparisons of tables.

A state is read bucket by bucket, in the order of the hash; an output in the order of its flow.
Both are read file by file, some thousand records at a time, from the files that the version
names. Nothing is refreshed, so later publications are not seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from cbp.engine.columnar.arrow_types import arrow_schema, conform
from cbp.engine.columnar.row_codec import decode_table
from cbp.engine.columnar.values import Row
from cbp.engine.delta.actions import AddFile
from cbp.engine.delta.live_records import live_batches
from cbp.engine.interface.readers import Contents
from cbp.engine.outputs.output_compaction import in_order
from cbp.engine.state.bucket_state import BucketState, StateTable
from cbp.engine.state.index_cache import IndexCache
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.model.flow.schema import Schema
from cbp.model.verification import Comparison


def state_contents(table: StateTable, schema: Schema, buckets: int, cache: IndexCache) -> Contents:
    """Return the contents of one version of a state table: a part per bucket, by hash."""

    def part(number: int, epochs: bool) -> Iterator[list[Row]]:
        assert not epochs, "epochs were requested for a state, which has none"
        for records in BucketState(table, cache, (number,)).records(schema.names):
            yield list(decode_table(records, schema))

    return Contents(table.rows, buckets, part)


def output_contents(
    folder: str, schema: Schema, live: Sequence[AddFile], limits: EngineLimits
) -> Contents:
    """Return the contents of one version of an output table.

    They are in the order of the flow, in one part, since records of a key can be in any file.
    """

    def part(number: int, epochs: bool) -> Iterator[list[Row]]:
        types = arrow_schema(schema).insert(0, pa.field("_epoch", pa.int64()))
        for file in in_order(live):
            for batch in live_batches(folder, file, types.names, limits=limits):
                # A file that is older than a column of the output lacks this column.
                table = conform(pa.Table.from_batches([batch]), types)
                rows = decode_table(table, schema)
                if epochs:
                    numbers = table.column("_epoch").to_pylist()
                    yield [(epoch, *row) for epoch, row in zip(numbers, rows, strict=True)]
                else:
                    yield list(rows)

    return Contents(sum(file.rows - file.dead for file in live), 1, part)


def listed_contents(listed: Sequence[Sequence[Row]]) -> Contents:
    """Return the contents of records in memory, one list per epoch; a state is a single list."""

    def part(number: int, epochs: bool) -> Iterator[list[Row]]:
        for epoch, rows in enumerate(listed):
            yield [(epoch, *row) for row in rows] if epochs else list(rows)

    return Contents(sum(map(len, listed)), 1, part)


def contents_since(contents: Contents, comparison: Comparison) -> Contents:
    """Return the contents to compare: of an output, those from the first compared epoch on."""
    first = max(comparison.since or 0, comparison.first)

    def part(number: int, epochs: bool) -> Iterator[list[Row]]:
        for rows in contents.part(number, True):
            yield [row if epochs else row[1:] for row in rows if row[0] >= first]

    return replace(contents, part=part) if first and not comparison.carried else contents


def contents_with_gaps(contents: Contents, gaps: Sequence[range]) -> Contents:
    """Return contents with epochs renumbered to skip the numbers in `gaps`, which ascend."""

    def numbered(epoch: int) -> int:
        for gap in gaps:
            if epoch >= gap.start:
                epoch += len(gap)
        return epoch

    def part(number: int, epochs: bool) -> Iterator[list[Row]]:
        for rows in contents.part(number, epochs):
            yield [(numbered(row[0]), *row[1:]) for row in rows] if epochs else rows

    return replace(contents, part=part) if gaps else contents
