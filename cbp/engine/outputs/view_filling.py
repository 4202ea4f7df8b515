"""View filling: the first records of a view that was an output in the version before.

    files of the flow, in order -> sorted by (hash, key, place) -> the last record of each key

Memory: that of the external sort, whatever the size of the flow. A record of the flow is read once
and sorted once, also where its key came often.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cbp.engine.columnar.arrow_types import arrow_schema, conform
from cbp.engine.columnar.key_hash import hash_columns
from cbp.engine.columnar.row_codes import row_codes
from cbp.engine.delta.live_records import live_batches
from cbp.engine.delta.tables import ManagedTable
from cbp.engine.outputs.compaction import epochs_of, in_order
from cbp.engine.outputs.table_specs import EPOCH, HASH
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.engine.storage.external_sort import sorted_tables
from cbp.model.dataflow.stage import StateSpec
from cbp.model.flow.schema import Schema

_UNSIGNED, _PLACE = "_unsigned", "_place"
"""The hash as buckets are ordered by it; the place of a record in its flow."""


@dataclass(frozen=True, slots=True)
class ViewFilling:
    """The last record of each key of a flow.

    Attributes:
        view: The view; the flow has its columns.
        route: The view's columns that hold the stage's key, with the types of the key.
        flow: The table of the flow; all recorded runs are published.
        first: The first increment that counts.
    """

    view: StateSpec
    route: Schema
    flow: ManagedTable
    first: int
    limits: EngineLimits
    hash_mask: int

    def records(self) -> Iterator[pa.Table]:
        """Yield the records, ascending by unsigned hash, then by key; with `_hash`."""
        key = [*self.route.names, *self.view.second_key]
        names = [*self.view.schema.names, HASH[0]]
        held: pa.Table | None = None
        order = [_UNSIGNED, *key, _PLACE]
        for table in sorted_tables(self._placed(), order, limits=self.limits):
            rows = table if held is None else pa.concat_tables([held, table])
            (codes,) = row_codes([rows.select(key)])
            last = np.flatnonzero(codes[1:] != codes[:-1])
            if len(last):
                yield rows.take(pa.array(last)).select(names)
            # More records of this key may follow.
            held = rows.slice(rows.num_rows - 1)
        if held is not None:
            yield held.select(names)

    def _placed(self) -> Iterator[pa.Table]:
        """Yield all records that count, with their hashes and places."""
        schema = arrow_schema(self.view.schema, wide=True)
        place = 0
        for file in in_order(self.flow.refresh().live.values()):
            if epochs_of(file)[1] < self.first:
                continue
            columns = [*schema.names, EPOCH[0]]
            for batch in live_batches(self.flow.path, file, columns, limits=self.limits):
                table = pa.Table.from_batches([batch])
                table = table.filter(pc.greater_equal(table.column(EPOCH[0]), self.first))
                rows = conform(table, schema).cast(schema)
                keys = rows.select(self.route.names).columns
                hashes = hash_columns(keys, [field.type for field in self.route.fields])
                hashes = hashes & np.int64(self.hash_mask)
                places = np.arange(place, place + rows.num_rows)
                place += rows.num_rows
                rows = rows.append_column(HASH[0], pa.array(hashes))
                rows = rows.append_column(_UNSIGNED, pa.array(hashes.view(np.uint64)))
                yield rows.append_column(_PLACE, pa.array(places))
