"""What one call of a vectorised translator emits: checked at once, kept until it is settled.

Every emission is checked where it is made, so that an error's traceback ends in the
author's line: columns and types (`conform`), and that state is for groups of this call.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cbp.engine.vectorised.codes import row_codes
from cbp.engine.vectorised.conform import conform
from cbp.engine.vectorised.groups import Outputs, as_table, author_schema
from cbp.model.schema import Schema
from cbp.model.stage import StateSpec, TranslatorSpec

__all__ = ["Emission"]

Int64s = npt.NDArray[np.int64]


class Emission:
    """The `out` of one call.

    Args:
        keys: Of the groups of the call.
        write_output: Takes an output's name and records, in the types that authors see.
    """

    def __init__(
        self,
        spec: TranslatorSpec,
        keys: pa.Table,
        write_output: Callable[[str, pa.Table], None],
    ) -> None:
        self._spec, self._keys, self._write = spec, keys, write_output
        self._state: dict[str, list[tuple[pa.Table, Int64s]]] = {s.name: [] for s in spec.states}
        functions: dict[str, Any] = {
            output.name: partial(self._take_output, output.name, output.schema)
            for output in spec.outputs
        }
        functions |= {state.name: partial(self._take_state, state) for state in spec.states}
        self.out = Outputs(functions)

    def state(self, name: str) -> tuple[pa.Table, Int64s]:
        """Return what was emitted for a state, and the group of each record."""
        parts = self._state[name]
        if not parts:
            empty = author_schema(self._spec.state(name).schema).empty_table()
            return empty, np.empty(0, np.int64)
        if len(parts) == 1:
            return parts[0]
        tables, ids = zip(*parts, strict=True)
        return pa.concat_tables(tables), np.concatenate(ids)

    def _take_output(self, name: str, schema: Schema, table: Any) -> None:
        self._write(name, _conformed(name, table, schema))

    def _take_state(self, state: StateSpec, table: Any) -> None:
        records = _conformed(state.name, table, state.schema)
        self._state[state.name].append((records, self._groups_of(state, records)))

    def _groups_of(self, state: StateSpec, records: pa.Table) -> Int64s:
        """Return the group of each record, found by its key.

        Raises:
            ValueError: A key is none of this call's.
        """
        columns = list(self._spec.key_of(state).names)
        keys = records.select(columns).rename_columns(self._keys.column_names)
        if keys.num_rows == self._keys.num_rows and keys.equals(self._keys):
            return np.arange(keys.num_rows)
        called, emitted = row_codes([self._keys, keys])
        groups = np.full(max(int(called.max(initial=-1)), int(emitted.max(initial=-1))) + 1, -1)
        groups[called] = np.arange(len(called))
        found: Int64s = groups[emitted]
        unknown = np.flatnonzero(found < 0)
        if len(unknown):
            key = tuple(keys.slice(int(unknown[0]), 1).to_pylist()[0].values())
            message = (
                f"state {state.name!r} was emitted for the key {key!r}, which is no group of this "
                "call; emit it where that key is called"
            )
            raise ValueError(message)
        return found


def _conformed(flow: str, table: Any, schema: Schema) -> pa.Table:
    try:
        return conform(as_table(table), schema)
    except (TypeError, pa.ArrowException) as exc:
        message = f"out.{flow}: {exc}"
        raise TypeError(message) from exc
