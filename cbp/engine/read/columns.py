"""Records of an increment as columns, batch by batch: what sinks copy to their targets.

An increment is read from its own files. If compaction replaced one of them and it was collected,
the whole increment is read from its table, by `_epoch`: the same records in the same order.

Guaranteed: the number of records is that of the increment, or an error is raised after the last
batch (tests/cbp/engine/read/test_columns.py).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from cbp.engine.columnar.arrow_types import arrow_schema, conform
from cbp.engine.delta.actions import AddFile
from cbp.engine.delta.live_records import read_batches
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.engine.storage.files import local_path
from cbp.engine.storage.table_names import flow_table
from cbp.errors import IncrementDamagedError
from cbp.model.flow.increment import Increment
from cbp.model.flow.schema import Schema

LiveOf = Callable[[str, Increment], Sequence[AddFile]]


def column_schema(schema: Schema) -> pa.Schema:
    """Return the Arrow schema of the batches of a flow; every column may be null."""
    return pa.schema([pa.field(one.name, one.type) for one in arrow_schema(schema)])


def read_columns(
    folder: str, increment: Increment, schema: Schema, *, live_of: LiveOf, limits: EngineLimits
) -> Iterator[pa.RecordBatch]:
    """Yield the records of an increment in order; see `IncrementReader.batches`."""
    columns, records = column_schema(schema), 0
    there = all(os.path.exists(local_path(f"{folder}/{file.path}")) for file in increment.files)
    read = _of_files(folder, increment, limits) if there else None
    for batch in read or _of_table(folder, increment, live_of, limits):
        records += batch.num_rows
        table = conform(pa.Table.from_batches([batch]), columns)
        yield from table.cast(columns).combine_chunks().to_batches()
    if records != increment.records:
        raise IncrementDamagedError(increment.name, expected=increment.records, found=records)


def _of_files(folder: str, increment: Increment, limits: EngineLimits) -> Iterator[pa.RecordBatch]:
    for file in increment.files:
        at = 0
        for batch in read_batches(f"{folder}/{file.path}", limits=limits):
            first, last = max(file.start - at, 0), min(file.stop - at, batch.num_rows)
            at += batch.num_rows
            if first < last:
                yield batch.slice(first, last - first)


def _of_table(
    folder: str, increment: Increment, live_of: LiveOf, limits: EngineLimits
) -> Iterator[pa.RecordBatch]:
    stage, _, output = increment.flow.partition(".")
    table = f"{folder}/{flow_table(stage, output)}"
    for file in live_of(folder, increment):
        for batch in read_batches(f"{table}/{file.path}", limits=limits):
            yield batch.filter(pc.equal(batch.column("_epoch"), increment.index))
