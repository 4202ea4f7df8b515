"""Look-ups for people and services: a key's state, a page of a flow, all records of a state.

What stages look up while they run, as authors declare it, is `cbp.sdk.lookups`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cbp.engine.columnar.key_hash import bucket_of, key_hash
from cbp.engine.columnar.row_codec import decode_columns
from cbp.engine.columnar.values import unify
from cbp.engine.delta.actions import AddFile
from cbp.engine.delta.live_records import page_of, read_batches
from cbp.engine.state.bucket_state import BucketState, StateTable
from cbp.engine.state.index_cache import IndexCache
from cbp.engine.storage.checked_parquet import open_parquet
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.engine.storage.table_names import flow_table
from cbp.errors import FileLostError, NotFoundError
from cbp.model.dataflow.dataflow import StageNode
from cbp.model.dataflow.stage import StateSpec
from cbp.model.flow.increment import DataFile, Increment
from cbp.model.flow.schema import Field, Schema


def look_up(
    table: StateTable,
    node: StageNode,
    state: str,
    key: Mapping[str, Any],
    cache: IndexCache,
    *,
    hash_mask: int,
) -> list[dict[str, Any]]:
    """Return a state's records of one key; `key` has a value for each key column.

    Raises:
        NotFoundError: If the stage keeps no such state.
    """
    spec = _spec(node, state)
    schema, columns = spec.schema, node.translator.key_of(spec).fields
    hash_ = _hash_of(columns, key, hash_mask)
    bucket = BucketState(table, cache, (bucket_of(hash_, node.buckets),))
    matching = bucket.find(np.array([hash_], np.int64))
    if not len(matching.hashes):
        return []
    wanted = unify([key[c.name] for c in columns])
    rows = state_rows(bucket.take(matching, schema.names), schema)
    return [row for row in rows if unify([row[c.name] for c in columns]) == wanted]


def key_bucket(node: StageNode, state: str, key: Mapping[str, Any], *, hash_mask: int) -> int:
    """Return the bucket of a state that holds a key; raises as `look_up`."""
    columns = node.translator.key_of(_spec(node, state)).fields
    return bucket_of(_hash_of(columns, key, hash_mask), node.buckets)


def _hash_of(columns: Sequence[Field], key: Mapping[str, Any], hash_mask: int) -> int:
    """Return the signed hash of a key."""
    hash_ = key_hash([key[c.name] for c in columns], [c.type for c in columns]) & hash_mask
    return hash_ - (1 << 64) if hash_ >= 1 << 63 else hash_


def read_state_rows(
    table: StateTable, node: StageNode, state: str, cache: IndexCache
) -> Iterator[dict[str, Any]]:
    """Yield every record, bucket by bucket, in the order of the hash."""
    schema = _spec(node, state).schema
    for number in sorted(table.live):
        for part in BucketState(table, cache, (number,)).records(schema.names):
            yield from state_rows(part, schema)


def state_rows(part: pa.Table, schema: Schema) -> Iterator[dict[str, Any]]:
    """Yield records of a state as dicts by column name."""
    types = [f.type for f in schema.fields]
    for row in decode_columns(part, schema.names, types):
        yield dict(zip(schema.names, row, strict=True))


def _spec(node: StageNode, state: str) -> StateSpec:
    for spec in node.translator.states:
        if spec.name == state:
            return spec
    raise NotFoundError(kind="state", name=f"{node.name}.{state}")


LiveOf = Callable[[str, Increment], Sequence[AddFile]]
"""Takes the dataflow's folder and an increment; returns its table's files that hold its records."""


def read_records(
    folder: str,
    increments: Sequence[Increment],
    *,
    offset: int,
    limit: int,
    live_of: LiveOf,
    limits: EngineLimits,
) -> list[dict[str, Any]]:
    """Return at most `limit` records from `offset` on, over all increments in order.

    If an increment's own files were compacted and collected, it is read from its table:
    the same records in the same order, selected by `_epoch`.
    """
    records: list[dict[str, Any]] = []
    for increment in increments:
        wanted = limit - len(records)
        if wanted <= 0:
            break
        if offset >= increment.records:
            offset -= increment.records
            continue
        try:
            records += _of_files(folder, increment, offset, wanted, limits)
        except FileLostError:
            records += _of_table(folder, increment, offset, wanted, live_of, limits)
        offset = 0
    return records


def recalled(folder: str, increment: Increment, live: Sequence[AddFile]) -> Increment:
    """Return an increment with the number of its records, counted in its table.

    Its only file does not exist, so that `read_records` reads the table instead.
    """
    stage, _, output = increment.flow.partition(".")
    table = flow_table(stage, output)
    records = 0
    for file in live:
        path = f"{folder}/{table}/{file.path}"
        epochs = open_parquet(path).read(["_epoch"])
        records += pc.sum(pc.equal(epochs.column(0), increment.index)).as_py() or 0
    all_of_it = DataFile(f"{table}/_epoch={increment.index}", records, 0)
    return replace(increment, files=(all_of_it,) if records else ())


def _of_files(
    folder: str, increment: Increment, offset: int, limit: int, limits: EngineLimits
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for file in increment.files:
        if len(rows) >= limit:
            break
        if offset >= file.rows:
            offset -= file.rows
            continue
        wanted = min(limit - len(rows), file.rows - offset)
        batches = read_batches(f"{folder}/{file.path}", limits=limits)
        rows += page_of(batches, file.start + offset, wanted)
        offset = 0
    return rows


def _of_table(
    folder: str,
    increment: Increment,
    offset: int,
    limit: int,
    live_of: LiveOf,
    limits: EngineLimits,
) -> list[dict[str, Any]]:
    stage, _, output = increment.flow.partition(".")
    table = f"{folder}/{flow_table(stage, output)}"
    batches = (
        batch.filter(pc.equal(batch.column("_epoch"), increment.index))
        for file in live_of(folder, increment)
        for batch in read_batches(f"{table}/{file.path}", limits=limits)
    )
    return page_of(batches, offset, limit)
