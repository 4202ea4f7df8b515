"""One epoch of a vectorised (Arrow) translator in the reference engine.

The author is called once. Its tables are built from Python records, and the emitted tables are
taken apart into records again, so that they are checked and settled as for any other translator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, chain
from typing import Any

import numpy as np
import pyarrow as pa

from cbp.engine.columnar.values import Row, typed_row, unify
from cbp.engine.kernel.arrow.groups import Groups, Outputs, as_table, author_schema
from cbp.engine.reference.call import AuthorCall
from cbp.errors import AuthorMisuse, StateKeyForeignError
from cbp.model.dataflow.call_rules import refuse_returned
from cbp.model.dataflow.stage import TranslatorSpec
from cbp.model.flow.schema import Schema

__all__ = ["call_vectorised"]

Emitted = dict[str, list[Row]]


def call_vectorised(
    stage: str, spec: TranslatorSpec, groups: Mapping[Row, Mapping[str, Sequence[Row]]]
) -> tuple[Emitted, dict[Row, Emitted]]:
    """Call the author once, with all groups.

    Args:
        groups: Key to flow to records; in order.

    Returns:
        The records emitted to each output and state, and those of states by key.
    """
    assert spec.key is not None, "a vectorised translator has a key"
    schemas = {i.name: i.schema for i in spec.inputs} | {s.name: s.schema for s in spec.states}
    flows = {name: _flow(name, schema, groups) for name, schema in schemas.items()}
    shown = {name: list(chain(*(group[name] for group in groups.values()))) for name in schemas}
    emitter = _Emitter(spec, groups)
    with AuthorCall(stage, spec, inputs=shown):
        given = Groups(_table(list(groups), spec.key), flows)
        refuse_returned(spec.translate(given, emitter.out))
    return emitter.emitted, emitter.by_key


def _flow(
    name: str, schema: Schema, groups: Mapping[Row, Mapping[str, Sequence[Row]]]
) -> tuple[pa.Table, Any]:
    records = [group[name] for group in groups.values()]
    offsets = np.array(list(accumulate(map(len, records), initial=0)), np.int64)
    return _table(list(chain(*records)), schema), offsets


def _table(rows: Sequence[Row], schema: Schema) -> pa.Table:
    types = author_schema(schema)
    arrays = [pa.array([row[at] for row in rows], field.type) for at, field in enumerate(types)]
    return pa.Table.from_arrays(arrays, schema=types)


class _Emitter:
    """Collects what the call emits, record by record."""

    def __init__(self, spec: TranslatorSpec, keys: Mapping[Row, Any]) -> None:
        self._states = {state.name: spec.key_of(state).names for state in spec.states}
        flows = {o.name: o.schema for o in spec.outputs}
        flows |= {s.name: s.schema for s in spec.states}
        self.emitted: Emitted = {name: [] for name in flows}
        self.by_key: dict[Row, Emitted] = {key: {n: [] for n in self._states} for key in keys}
        self.out = Outputs({name: self._function(name, schema) for name, schema in flows.items()})

    def _function(self, flow: str, schema: Schema) -> Any:
        def emit(value: Any) -> None:
            table = as_table(value)
            if sorted(table.column_names) != sorted(schema.names):
                came, names = ", ".join(table.column_names), ", ".join(schema.names)
                message = f"out.{flow}: the columns are {names}; got {came}"
                raise TypeError(message)
            columns = [table.column(n).to_pylist(maps_as_pydicts="strict") for n in schema.names]
            for values in zip(*columns, strict=True):
                self._take(flow, typed_row(values, schema), schema)

        return emit

    def _take(self, flow: str, row: Row, schema: Schema) -> None:
        self.emitted[flow].append(row)
        if flow in self._states:
            key = unify([row[schema.index(name)] for name in self._states[flow]])
            if key not in self.by_key:
                message = f"state {flow!r}: a record of key {key!r} was emitted, which is no group"
                raise AuthorMisuse(StateKeyForeignError, message)
            self.by_key[key][flow].append(row)
