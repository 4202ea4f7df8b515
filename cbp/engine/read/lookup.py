"""Look-ups for people and services: a key's state, all records of a state.

Look-ups that authors declare, and stages make while they run, are in `cbp.sdk.lookups`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from cbp.engine.columnar.key_hash import bucket_of, key_hash
from cbp.engine.columnar.row_codec import decode_table
from cbp.engine.columnar.values import unify
from cbp.engine.state.bucket_state import BucketState, StateTable
from cbp.engine.state.index_cache import IndexCache
from cbp.errors import NotFoundError
from cbp.model.dataflow.dataflow import StageNode
from cbp.model.dataflow.stage import StateSpec
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
    """Return the records of one key; `NotFoundError` if the stage keeps no such state."""
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
    """Return the bucket of a state to which a key belongs; raises as `look_up`."""
    columns = node.translator.key_of(_spec(node, state)).fields
    return bucket_of(_hash_of(columns, key, hash_mask), node.buckets)


def _hash_of(columns: Sequence[Field], key: Mapping[str, Any], hash_mask: int) -> int:
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
    for row in decode_table(part, schema):
        yield dict(zip(schema.names, row, strict=True))


def _spec(node: StageNode, state: str) -> StateSpec:
    for spec in node.translator.states:
        if spec.name == state:
            return spec
    raise NotFoundError(kind="state", name=f"{node.name}.{state}")
