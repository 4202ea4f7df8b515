"""Records of increments: a page of them, or all as columns, batch by batch, as sinks copy them.

An increment is read from its own files. If one of these was replaced by compaction and collected,
the increment is read from its table, by `_epoch`: the same records in the same order.

A merge keeps the records of an output table in the order of the flow, with complete epochs next to
each other (`cbp.engine.outputs.output_compaction`). So the records of an increment whose own files
are gone are slices of merged files (`located`). Nothing is written, and only `_epoch` is read:

    totals/7   _runs/7-0.parquet                          gone
               _runs/merged-15.parquet, rows 210 to 240   found

Guaranteed: a complete increment is read with as many records as were recorded, or an error is
raised after the last batch; an increment is not relocated unless all of its records are found
(tests/cbp/engine/outputs/test_locate.py).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cbp.engine.columnar.arrow_types import arrow_schema, conform
from cbp.engine.delta.actions import AddFile
from cbp.engine.delta.deletion_vectors import read_vector, rows_of
from cbp.engine.delta.live_records import page_of, read_batches
from cbp.engine.outputs.output_compaction import epochs_of, in_order
from cbp.engine.storage.checked_parquet import open_parquet
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.engine.storage.files import local_path
from cbp.engine.storage.table_names import flow_table
from cbp.errors import FileLostError, IncrementDamagedError
from cbp.model.flow.increment import DataFile, Increment
from cbp.model.flow.schema import Schema

LiveOf = Callable[[str, Increment], Sequence[AddFile]]
"""Takes a dataflow's folder and an increment; returns the files of its table with its records."""

_NONE = np.empty(0, np.int64)


def read_records(
    folder: str,
    increments: Sequence[Increment],
    *,
    offset: int,
    limit: int,
    live_of: LiveOf,
    limits: EngineLimits,
) -> list[dict[str, Any]]:
    """Return at most `limit` records from `offset` on, over all increments in order."""
    records: list[dict[str, Any]] = []
    for increment in increments:
        wanted = limit - len(records)
        if wanted <= 0:
            break
        if offset >= increment.records:
            offset -= increment.records
            continue
        try:
            records += page_of(_of_files(folder, increment, limits, offset), 0, wanted)
        except FileLostError:
            records += page_of(_of_table(folder, increment, live_of, limits), offset, wanted)
        offset = 0
    return records


def recalled(folder: str, increment: Increment, live: Sequence[AddFile]) -> Increment:
    """Return an increment with the number of its records, counted in its table.

    The increment names one file that does not exist, so that `read_records` reads the table.
    """
    table, records = _table_of(increment.flow), 0
    for file in live:
        epochs = open_parquet(f"{folder}/{table}/{file.path}").read(["_epoch"])
        records += pc.sum(pc.equal(epochs.column(0), increment.index)).as_py() or 0
    all_of_it = DataFile(f"{table}/_epoch={increment.index}", records, 0)
    return replace(increment, files=(all_of_it,) if records else ())


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


def _of_files(
    folder: str, increment: Increment, limits: EngineLimits, offset: int = 0
) -> Iterator[pa.RecordBatch]:
    """Yield the records of an increment from `offset` on, from its own files."""
    for file in increment.files:
        if offset >= file.rows:
            offset -= file.rows
            continue
        at = 0
        for batch in read_batches(f"{folder}/{file.path}", limits=limits):
            first, last = max(file.start + offset - at, 0), min(file.stop - at, batch.num_rows)
            at += batch.num_rows
            if first < last:
                yield batch.slice(first, last - first)
        offset = 0


def _of_table(
    folder: str, increment: Increment, live_of: LiveOf, limits: EngineLimits
) -> Iterator[pa.RecordBatch]:
    table = f"{folder}/{_table_of(increment.flow)}"
    for file in live_of(folder, increment):
        for batch in read_batches(f"{table}/{file.path}", limits=limits):
            yield batch.filter(pc.equal(batch.column("_epoch"), increment.index))


def located(
    folder: str, flow: str, increments: Sequence[Increment], live: Sequence[AddFile]
) -> list[Increment]:
    """Return increments with the files of their table that have their records now."""
    table, located = _table_of(flow), list[Increment]()
    parts_by_index: dict[int, list[DataFile]] = {increment.index: [] for increment in increments}
    for file in in_order(live):
        first, last = epochs_of(file)
        wanted = [index for index in parts_by_index if first <= index <= last]
        for index, part in _parts(folder, table, file, wanted):
            parts_by_index[index].append(part)
    for increment in increments:
        files = parts_by_index[increment.index]
        is_whole = sum(file.rows for file in files) == increment.records
        located.append(replace(increment, files=tuple(files)) if is_whole else increment)
    return located


def _parts(
    folder: str, table: str, file: AddFile, wanted: Sequence[int]
) -> Iterator[tuple[int, DataFile]]:
    """Yield the slices of a file by epoch, without the epochs that lost rows."""
    if not wanted:
        return
    path = f"{folder}/{table}/{file.path}"
    with open_parquet(path) as source:
        epochs = source.read(["_epoch"]).column(0).to_numpy()
    vector = file.deletion_vector
    dead = rows_of(read_vector(f"{folder}/{table}", vector)) if vector else _NONE
    for index in wanted:
        start = int(np.searchsorted(epochs, index, "left"))
        stop = int(np.searchsorted(epochs, index, "right"))
        if stop > start and not ((dead >= start) & (dead < stop)).any():
            whole = DataFile(f"{table}/{file.path}", len(epochs), file.size)
            yield index, whole.slice(start, stop)


def _table_of(flow: str) -> str:
    stage, _, output = flow.partition(".")
    return flow_table(stage, output)
