"""Looked-up tables of which every group is given all records: read once per task."""

from __future__ import annotations

import pyarrow as pa

from cbp.engine.columnar.arrow_types import arrow_schema
from cbp.engine.columnar.looked_up import WholeTable
from cbp.engine.columnar.row_codec import copies_maker, decode_columns, rows_maker
from cbp.engine.state.bucket_state import BucketState
from cbp.engine.state.index_cache import IndexCache
from cbp.engine.storage.external_sort import order_by_columns
from cbp.engine.task.task_plan import LookupTable
from cbp.model.dataflow.stage import StateSpec


def read_whole_table(spec: StateSpec, one: LookupTable, cache: IndexCache) -> pa.Table:
    """Return all records of a table, in their order."""
    schema, names = arrow_schema(spec.schema), spec.schema.names
    parts = [
        part.select(list(names)).cast(schema)
        for bucket in sorted(one.table.live)
        for part in BucketState(one.table, cache, (bucket,), one.buckets).records(names)
    ]
    table = pa.concat_tables(parts) if parts else schema.empty_table()
    return table.take(pa.array(order_by_columns(table, list(spec.order))))


def read_whole_records(spec: StateSpec, one: LookupTable, cache: IndexCache) -> WholeTable:
    """Return all records of a table as an author reads them."""
    table, schema = read_whole_table(spec, one, cache), spec.schema
    decoded = decode_columns(table, schema.names, [f.type for f in schema.fields])
    rows = rows_maker(spec.name, schema.names)(decoded)
    return WholeTable(rows, copies_maker(spec.name, schema))
