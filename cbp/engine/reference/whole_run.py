"""One call of a translator of whole runs in the reference engine.

Its tables are built from Python records. Tables that were put and deleted are split into records
again, which are checked and settled as those of any other translator.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from cbp.engine.columnar.kept_records import Deletion, kept_shape
from cbp.engine.columnar.values import Row, typed_row, unify
from cbp.engine.kernel.arrow.reached_state import ReachedOperation
from cbp.engine.kernel.arrow.whole_run import call_once
from cbp.engine.reference.arrow import table_of
from cbp.engine.storage.held_records import Room
from cbp.model.dataflow.run_context import RunContext
from cbp.model.dataflow.stage import StateSpec, TranslatorSpec

ByKey = dict[Row, list[Any]]


def call_run(
    stage: str,
    spec: TranslatorSpec,
    inputs: Mapping[str, Sequence[Row]],
    states: Mapping[str, Mapping[Row, Sequence[Row]]],
    context: RunContext,
) -> dict[str, ByKey]:
    """Call the author once; return the puts and deletions of each state, by key, in order."""
    tables = {one.name: table_of(inputs[one.name], one.schema) for one in spec.inputs}
    readers = {one.name: _Reached(one, spec, states[one.name]) for one in spec.kept}
    called = call_once(stage, spec, tables, readers, context, Room(stage, sys.maxsize))
    return {one.name: _by_key(one, spec, called.operations[one.name]) for one in spec.kept}


class _Reached:
    """The records of a kept state; a `ReachedReader`."""

    def __init__(
        self, state: StateSpec, spec: TranslatorSpec, records: Mapping[Row, Sequence[Row]]
    ) -> None:
        self._state, self._records, self._many = state, records, len(spec.key_of(state))
        self._shape = kept_shape(state)

    @property
    def size(self) -> int:
        return sum(map(len, self._records.values()))

    def find(self, keys: pa.Table) -> tuple[Any, pa.Table]:
        """Return the rows of `keys` whose record exists, and these records."""
        found: dict[int, Row] = {}
        for at, values in enumerate(_rows(keys)):
            second = unify(values[self._many :])
            for row in self._records.get(unify(values[: self._many]), ()):
                if self._shape.second_of(row) == second:
                    found[at] = row
        return np.array([*found], np.int64), table_of([*found.values()], self._state.schema)

    def of(self, keys: pa.Table) -> pa.Table:
        rows = chain(*(self._records.get(unify(values), ()) for values in _rows(keys)))
        return table_of(list(rows), self._state.schema)

    def all(self) -> pa.Table:
        return table_of(list(chain(*self._records.values())), self._state.schema)


def _by_key(
    state: StateSpec, spec: TranslatorSpec, operations: Sequence[ReachedOperation]
) -> ByKey:
    by_key: ByKey = {}
    many = len(spec.key_of(state))
    for one in operations:
        keys = list(_rows(one.keys))
        if one.puts is None:
            what: list[Any] = [Deletion(unify(values[many:])) for values in keys]
        else:
            what = [typed_row(row, state.schema) for row in _rows(one.puts)]
        for values, record in zip(keys, what, strict=True):
            by_key.setdefault(unify(values[:many]), []).append(record)
    return by_key


def _rows(table: pa.Table) -> list[Row]:
    columns = [column.to_pylist(maps_as_pydicts="strict") for column in table.columns]
    return list(zip(*columns, strict=True)) if columns else [()] * table.num_rows
