"""Any groupwise translator in the other forms, for tests that hold the forms equal.

They live in a module of their own, so that worker processes can import them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from cbp import Schema
from cbp.engine.columnar.kept_records import Deletion, KeptRecords, changes_of, kept_shape
from cbp.engine.columnar.looked_up import LookedUp
from cbp.engine.kernel.arrow.groups import author_schema, group_numbers
from cbp.engine.kernel.arrow.kept_tables import kept_key
from cbp.engine.reference.call import ListedRecords
from cbp.model.dataflow.expiry import authored
from cbp.model.dataflow.stage import StateSpec, TranslatorSpec
from cbp.model.flow.attributes import record_class

__all__ = ["arrow_form"]


def arrow_form(spec: TranslatorSpec) -> TranslatorSpec:
    """Return a vectorised translator that does what a groupwise one does, group by group.

    State goes out in two pieces, the second half of the groups first. What is put into kept state
    is deleted before, and what is deleted is put before: the last one counts.
    """
    return replace(spec, form="arrow", translate=_ArrowForm(authored(spec)).translate)


class _ArrowForm:
    def __init__(self, spec: TranslatorSpec) -> None:
        self._spec = spec

    def translate(self, groups: Any, out: Any) -> None:
        emitted = [self._called(groups, g) for g in range(len(groups))]
        for output in self._spec.emitted:
            every = [row for group in emitted for row in group[output.name]]
            getattr(out, output.name)(_table(every, output.schema))
        half = len(emitted) // 2
        for part in (emitted[half:], emitted[:half]):
            for state in self._spec.replaced:
                rows = [row for group in part for row in group[state.name]]
                getattr(out, state.name)(_table(rows, state.schema))
            for state in self._spec.kept:
                key = kept_key(self._spec, state)
                puts = [row for group in part for row in group[state.name].puts]
                deletes = [row for group in part for row in group[state.name].deletes]
                at = [state.schema.index(name) for name in key.names]
                emit = getattr(out, state.name)
                emit.delete(_table([tuple(row[place] for place in at) for row in puts], key))
                emit(_table(puts, state.schema))
                emit.delete(_table(deletes, key))

    def _called(self, groups: Any, number: int) -> dict[str, Any]:
        spec = self._spec
        assert spec.key is not None
        flows: dict[str, Any] = {}
        for flow in [*(i.name for i in spec.inputs), *(s.name for s in spec.replaced)]:
            start, stop = groups.offsets(flow)[number : number + 2]
            flows[flow] = iter(_records(getattr(groups, flow).slice(start, stop - start), flow))
        for state in spec.kept:
            flows[state.name] = self._kept_records(groups, number, state)
        for lookup in spec.lookups:
            table = getattr(groups, lookup.name)
            if lookup.by:
                start, stop = groups.offsets(lookup.name)[number : number + 2]
                table = table.slice(start, stop - start)
            rows = _records(table, lookup.name)
            flows[lookup.name] = (
                KeptRecords(kept_shape(lookup.records), ListedRecords(lookup.records, rows))
                if lookup.key
                else LookedUp(rows, lookup.name)
            )
        (key,) = _records(groups.keys.slice(number, 1), "key")
        out = _Collected(spec, tuple(key))
        flows |= {"run": groups.run} if spec.reads_run else {}
        spec.translate(key, record_class("group", tuple(flows))(**flows), out)
        return out.rows

    def _kept_records(self, groups: Any, number: int, state: StateSpec) -> KeptRecords:
        """Return the records of one group, which are read once they are asked for."""
        reader = _KeptOfGroup(self._spec, state, groups, number)
        return KeptRecords(kept_shape(state), reader)


class _KeptOfGroup:
    """Reads one group's kept records by the vectorised interface; a `KeptReader`."""

    def __init__(self, spec: TranslatorSpec, state: StateSpec, groups: Any, number: int) -> None:
        self._spec, self._state, self._groups, self._number = spec, state, groups, number

    def get(self, second: Any) -> Any:
        key = self._groups.keys.slice(self._number, 1)
        columns = kept_key(self._spec, self._state)
        wanted = _table([(*_records(key, "key")[0], *second)], columns)
        rows = _records(getattr(self._groups, self._state.name).get(wanted), self._state.name)
        return rows[0] if rows else None

    def between(self, low: Any, high: Any, *, reverse: bool = False) -> Any:
        every = getattr(self._groups, self._state.name).all()
        names = list(self._spec.key_of(self._state).names)
        mine = group_numbers(self._groups.keys, every.select(names)) == self._number
        rows = _records(every.filter(pa.array(mine)), self._state.name)
        orders = [
            kept_shape(self._state).order_of(kept_shape(self._state).second_of(row)) for row in rows
        ]
        assert orders == sorted(orders)
        return ListedRecords(self._state, rows).between(low, high, reverse=reverse)


class _Kept:
    """What a call put into a kept state, and deleted; the last one of a key counts."""

    def __init__(self, spec: TranslatorSpec, state: StateSpec, key: Any) -> None:
        self._shape, self._key = kept_shape(state), key
        self._operations: list[Any] = []

    def take(self, row: Any) -> None:
        self._operations.append(row)

    def delete(self, *args: Any, **named: Any) -> None:
        self._operations.append(Deletion(self._shape.given(args, named)))

    @property
    def puts(self) -> list[Any]:
        return [row for row in self._changes.values() if row is not None]

    @property
    def deletes(self) -> list[Any]:
        return [(*self._key, *second) for second, row in self._changes.items() if row is None]

    @property
    def _changes(self) -> dict[Any, Any]:
        return changes_of(self._shape, self._operations)


class _Collected:
    def __init__(self, spec: TranslatorSpec, key: Any) -> None:
        self.rows: dict[str, Any] = {}
        schemas = {o.name: o.schema for o in spec.emitted} | {
            s.name: s.schema for s in spec.replaced
        }
        for state in spec.kept:
            kept = self.rows[state.name] = _Kept(spec, state, key)
            emit: Any = _emitter(record_class(state.name, state.schema.names), kept.take)
            emit.delete = kept.delete
            setattr(self, state.name, emit)
        for name, schema in schemas.items():
            self.rows[name] = []
            setattr(self, name, _emitter(record_class(name, schema.names), self.rows[name].append))


def _emitter(record: Any, take: Any) -> Any:
    def emit(*args: Any, **kwargs: Any) -> None:
        take(record(*args, **kwargs))

    return emit


def _records(table: pa.Table, name: str) -> list[Any]:
    columns = [column.to_pylist(maps_as_pydicts="strict") for column in table.columns]
    make = record_class(name, tuple(table.column_names))
    return [make(*row) for row in zip(*columns, strict=True)]


def _table(rows: list[Any], schema: Schema) -> pa.Table:
    types = author_schema(schema)
    arrays = [pa.array([row[at] for row in rows], field.type) for at, field in enumerate(types)]
    return pa.Table.from_arrays(arrays, schema=types)
