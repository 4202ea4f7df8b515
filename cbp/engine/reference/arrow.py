"""One epoch of a vectorised (Arrow) translator in the reference engine.

The author is called once. Its tables are built from Python records, and the emitted tables are
split into records again, which are checked and settled as those of any other translator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import accumulate, chain
from typing import Any

import numpy as np
import pyarrow as pa

from cbp.engine.columnar.kept_records import Deletion, kept_shape
from cbp.engine.columnar.values import Row, typed_row, unify
from cbp.engine.kernel.arrow.groups import Groups, Outputs, as_table, author_schema
from cbp.engine.kernel.arrow.kept_tables import (
    conformed_table,
    kept_key,
    kept_tables,
    refuse_foreign_key,
)
from cbp.engine.reference.call import AuthorCall
from cbp.engine.reference.views import OutputKeys, ViewKeys
from cbp.errors import AuthorMisuse, StateKeyForeignError
from cbp.model.dataflow.call_rules import refuse_returned
from cbp.model.dataflow.run_context import RunContext
from cbp.model.dataflow.stage import StateSpec, TranslatorSpec
from cbp.model.flow.schema import Schema

Emitted = dict[str, list[Any]]


def call_arrow(
    stage: str,
    spec: TranslatorSpec,
    groups: Mapping[Row, Mapping[str, Sequence[Row]]],
    context: RunContext,
) -> tuple[Emitted, dict[Row, Emitted]]:
    """Call the author once, with all groups in order: their records by key and flow.

    Returns the records emitted to each output and state, and the records of states again, by key.
    By key, a kept state also has its deletions (`Deletion`).
    """
    assert spec.key is not None, "a vectorised translator has a key"
    schemas = {i.name: i.schema for i in spec.inputs} | {s.name: s.schema for s in spec.replaced}
    schemas |= {one.name: one.schema for one in spec.lookups if one.by}
    whole_tables = {
        one.name: table_of(list(next(iter(groups.values()))[one.name]), one.schema)
        for one in spec.looked_up_whole
        if groups
    }
    flows = {}
    for name, schema in schemas.items():
        records = [list(group[name]) for group in groups.values()]
        offsets = np.array(list(accumulate(map(len, records), initial=0)), np.int64)
        flows[name] = (table_of(list(chain(*records)), schema), offsets)
    shown = {name: list(chain(*(group[name] for group in groups.values()))) for name in schemas}
    emitter = _Emitter(spec, groups)
    with AuthorCall(stage, spec, inputs=shown):
        given = Groups(table_of(list(groups), spec.key), flows, whole_tables)
        readers = {state.name: _Kept(state, groups) for state in spec.kept}
        given = Groups.with_kept(given, kept_tables(spec, readers))
        given = Groups.of_run(given, context, spec)
        refuse_returned(spec.translate(given, emitter.out))
    return emitter.emitted, emitter.by_key


def table_of(rows: Sequence[Row], schema: Schema) -> pa.Table:
    """Return records as a table in the types that authors see."""
    types = author_schema(schema)
    arrays = [pa.array([row[at] for row in rows], field.type) for at, field in enumerate(types)]
    return pa.Table.from_arrays(arrays, schema=types)


class _Kept:
    """The records of a kept state of all called groups; a `KeptTableReader`."""

    def __init__(self, spec: StateSpec, groups: Mapping[Row, Mapping[str, Sequence[Row]]]) -> None:
        self._spec, self._groups = spec, groups

    def get(self, keys: pa.Table) -> pa.Table:
        many = keys.num_columns - len(self._spec.second_key)
        rows: list[Any] = []
        for values in zip(*(column.to_pylist() for column in keys.columns), strict=True):
            key = unify(values[:many])
            if key not in self._groups:
                refuse_foreign_key(self._spec.name, keys.slice(len(rows), 1), np.array([-1]))
            rows.append(self._of(key).get(*values[many:]))
        return table_of([row for row in rows if row is not None], self._spec.schema)

    def all(self) -> pa.Table:
        return table_of(list(chain(*map(self._of, self._groups))), self._spec.schema)

    def _of(self, key: Row) -> Any:
        return self._groups[key][self._spec.name]


class _Emitter:
    """Collects the emissions of the call, record by record."""

    def __init__(self, spec: TranslatorSpec, keys: Mapping[Row, Any]) -> None:
        self._states = {state.name: spec.key_of(state).names for state in spec.states}
        self._view_keys, self._kept = ViewKeys(spec), {state.name for state in spec.kept}
        self._output_keys = OutputKeys(spec)
        flows = {o.name: o.schema for o in spec.emitted}
        flows |= {s.name: s.schema for s in spec.states}
        self.emitted: Emitted = {name: [] for name in flows}
        self.by_key: dict[Row, Emitted] = {key: {n: [] for n in self._states} for key in keys}
        functions = {name: self._function(name, schema) for name, schema in flows.items()}
        for state in spec.kept:
            functions[state.name].delete = partial(self._delete, state, kept_key(spec, state))
        self.out = Outputs(functions)

    def _function(self, flow: str, schema: Schema) -> Any:
        def emit(value: Any) -> None:
            table = as_table(value)
            if sorted(table.column_names) != sorted(schema.names):
                came, names = ", ".join(table.column_names), ", ".join(schema.names)
                message = f"out.{flow}: expected the columns {names}, got {came}"
                raise TypeError(message)
            columns = [table.column(n).to_pylist(maps_as_pydicts="strict") for n in schema.names]
            for values in zip(*columns, strict=True):
                self._take(flow, typed_row(values, schema), schema)

        return emit

    def _delete(self, state: StateSpec, schema: Schema, given: Any) -> None:
        keys = conformed_table(f"out.{state.name}.delete", given, schema)
        shape, many = kept_shape(state), len(schema) - len(state.second_key)
        for values in zip(*(column.to_pylist() for column in keys.columns), strict=True):
            second = shape.given(values[many:], {})
            self._of_group(state.name, unify(values[:many])).append(Deletion(second))

    def _of_group(self, state: str, key: Row) -> list[Any]:
        if key not in self.by_key:
            message = f"state {state!r}: a record was emitted for the key {key!r}"
            message += ", but no group of this call has that key"
            raise AuthorMisuse(StateKeyForeignError, message)
        return self.by_key[key][state]

    def _take(self, flow: str, row: Row, schema: Schema) -> None:
        self.emitted[flow].append(row)
        self._output_keys.take(flow, row, self.by_key)
        if flow in self._states:
            key = unify([row[schema.index(name)] for name in self._states[flow]])
            records = self._of_group(flow, key)
            if flow not in self._kept:
                self._view_keys.take(flow, row)
            records.append(row)
