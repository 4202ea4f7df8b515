"""Reads the state of one large group for the author: in the state's order, in chunks.

The records lie in ranges of mapped files. At the first request they are sorted on disk, together
with the place of each, so that records that are not emitted again can be marked as deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from cbp.engine.columnar.group_keys import positive_zeros
from cbp.engine.columnar.row_codec import Row, decode_columns
from cbp.engine.state.bucket_state import RecordPositions
from cbp.engine.state.large_groups import LargeGroup
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.engine.storage.external_sort import sorted_tables
from cbp.model.dataflow.stage import StateSpec


class StateStream:
    """The records of one large group of a state; see the module header."""

    def __init__(
        self,
        spec: StateSpec,
        group: LargeGroup,
        make: Callable[[Iterable[Row]], list[Row]],
        limits: EngineLimits,
    ) -> None:
        self._spec, self._group, self._make, self._limits = spec, group, make, limits
        self._rows_max = limits.large_group_rows
        self._names, self._types = spec.schema.names, [f.type for f in spec.schema.fields]

    def keys(self, columns: Sequence[str]) -> pa.Table:
        """Return the distinct keys of the records.

        Reads no further chunk once it has found more than one key: the caller asks whether all
        records have the same one.
        """
        distinct = None
        for table, _ in self._group.tables(columns):
            # For Arrow, the two zeros are two keys: without this, the search would stop at them.
            keys = positive_zeros(table).group_by(list(columns)).aggregate([])
            distinct = keys if distinct is None else pa.concat_tables([distinct, keys])
            distinct = distinct.group_by(list(columns)).aggregate([])
            if len(distinct) > 1:
                break
        assert distinct is not None, "a large group has records"
        return distinct.select(list(columns))

    def first(self, rows: int) -> list[Row]:
        """Return some records, for error messages."""
        table, _ = next(self._group.tables(self._names))
        return self.decoded(table.slice(0, rows))

    def chunks(self) -> Iterator[list[Row]]:
        """Yield the records in order, in chunks."""
        return (self.decoded(table) for table, _ in self.tables())

    def tables(self) -> Iterator[tuple[pa.Table, RecordPositions]]:
        """Yield the records in order as Arrow tables, each with the places of its records."""
        for table in sorted_tables(self._located(), self._spec.order, limits=self._limits):
            for start in range(0, table.num_rows, self._rows_max):
                part = table.slice(start, self._rows_max)
                yield part, self._places(part)

    def unordered(self) -> Iterator[tuple[pa.Table, RecordPositions]]:
        """Yield the same in any order, which is cheaper."""
        for table, positions in self._group.tables(self._names):
            for start in range(0, table.num_rows, self._rows_max):
                stop = start + self._rows_max
                yield table.slice(start, self._rows_max), positions.part(start, stop)

    def positions(self) -> Iterator[RecordPositions]:
        """Yield the places of the records, in any order."""
        return self._group.positions()

    def decoded(self, table: pa.Table) -> list[Row]:
        """Return the records of a table as the author reads them."""
        return self._make(decode_columns(table, self._names, self._types))

    def _located(self) -> Iterator[pa.Table]:
        for table, positions in self._group.tables(self._names):
            self._group.state.bytes_read += table.nbytes
            located = table.append_column("_file", pa.array(positions.file))
            yield located.append_column("_position", pa.array(positions.position))

    def _places(self, part: pa.Table) -> RecordPositions:
        hashes = np.full(part.num_rows, self._group.hash, np.int64)
        file, position = (part.column(name).to_numpy() for name in ("_file", "_position"))
        return RecordPositions(hashes, file, position)
