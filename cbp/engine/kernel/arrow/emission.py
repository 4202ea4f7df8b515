"""Emissions of one call of a vectorised translator: checked at once, kept until the state diff.

Every emission is checked where it is made, so that an error's traceback ends in the
author's line. The checks: columns and types (`conform`), and that state is for groups of this
call.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cbp.engine.columnar.row_codes import row_codes
from cbp.engine.kernel.arrow.groups import Outputs, as_table, author_schema
from cbp.engine.kernel.arrow.type_check import conform
from cbp.errors import AuthorMisuse, StateKeyForeignError
from cbp.model.dataflow.stage import StateSpec, TranslatorSpec
from cbp.model.flow.schema import Schema

__all__ = ["Emission"]

Int64s = npt.NDArray[np.int64]


class Emission:
    """Collects what one call emits; holds the `out` that the author calls.

    Args:
        keys: Keys of the groups of the call.
        write_output: Called with an output's name and records, in the types that authors see.
        copies: Whether emitted records are copied. They must be if an author makes them, since
            they can share the memory of a NumPy array or a pandas frame that the author changes
            later. Spark's own records need no copy.
    """

    def __init__(
        self,
        spec: TranslatorSpec,
        keys: pa.Table,
        write_output: Callable[[str, pa.Table], None],
        *,
        copies: bool = True,
    ) -> None:
        self._spec, self._keys, self._write, self._copies = spec, keys, write_output, copies
        self._state: dict[str, list[tuple[pa.Table, Int64s]]] = {s.name: [] for s in spec.states}
        functions: dict[str, Any] = {
            output.name: partial(self._take_output, output.name, output.schema)
            for output in spec.outputs
        }
        functions |= {state.name: partial(self._take_state, state) for state in spec.states}
        self.out = Outputs(functions)

    def state(self, name: str) -> tuple[pa.Table, Int64s]:
        """Return the records emitted for a state, and the group of each record."""
        parts = self._state[name]
        if not parts:
            empty = author_schema(self._spec.state(name).schema).empty_table()
            return empty, np.empty(0, np.int64)
        if len(parts) == 1:
            return parts[0]
        tables, ids = zip(*parts, strict=True)
        return pa.concat_tables(tables), np.concatenate(ids)

    def _take_output(self, name: str, schema: Schema, table: Any) -> None:
        self._write(name, self._conformed(name, table, schema))

    def _take_state(self, state: StateSpec, table: Any) -> None:
        records = self._conformed(state.name, table, state.schema)
        self._state[state.name].append((records, self._groups_of(state, records)))

    def _groups_of(self, state: StateSpec, records: pa.Table) -> Int64s:
        """Return the group of each record, found by its key.

        Raises:
            AuthorMisuse: A key does not belong to a group of this call.
        """
        columns = list(self._spec.key_of(state).names)
        keys = records.select(columns).rename_columns(self._keys.column_names)
        if keys.num_rows == self._keys.num_rows and keys.equals(self._keys):
            return np.arange(keys.num_rows)
        called, emitted = row_codes([self._keys, keys])
        groups = np.full(max(int(called.max(initial=-1)), int(emitted.max(initial=-1))) + 1, -1)
        groups[called] = np.arange(len(called))
        group_indexes: Int64s = groups[emitted]
        unknown = np.flatnonzero(group_indexes < 0)
        if len(unknown):
            key = tuple(keys.slice(int(unknown[0]), 1).to_pylist()[0].values())
            message = (
                f"state {state.name!r} was emitted for the key {key!r}, which is no group of this "
                "call; emit it where that key is called"
            )
            raise AuthorMisuse(StateKeyForeignError, message)
        return group_indexes

    def _conformed(self, flow: str, table: Any, schema: Schema) -> pa.Table:
        try:
            conformed = conform(as_table(table), schema)
        except (TypeError, pa.ArrowException) as exc:
            message = f"out.{flow}: {exc}"
            raise TypeError(message) from exc
        return _own(conformed) if self._copies else conformed


def _own(table: pa.Table) -> pa.Table:
    """Return a table in memory of its own; strings and bytes have it: NumPy lacks these types."""
    columns = [
        column if column.type in (pa.large_string(), pa.large_binary()) else _copied(column)
        for column in table.columns
    ]
    return pa.Table.from_arrays(columns, schema=table.schema)


def _copied(column: pa.ChunkedArray) -> pa.ChunkedArray:
    # Arrow does not copy a single array, so an empty slice is added.
    chunks = [pa.concat_arrays([chunk, chunk.slice(0, 0)]) for chunk in column.chunks]
    return pa.chunked_array(chunks, column.type)
