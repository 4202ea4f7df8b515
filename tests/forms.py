"""Any groupwise translator in the other forms, for tests that hold the forms equal.

They live in a module of their own, so that worker processes can import them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from cbp import Schema
from cbp.engine.kernel.arrow.groups import author_schema
from cbp.model.dataflow.stage import TranslatorSpec
from cbp.model.flow.attributes import record_class

__all__ = ["arrow_form"]


def arrow_form(spec: TranslatorSpec) -> TranslatorSpec:
    """Return a vectorised translator that does what a groupwise one does, group by group.

    State goes out in two pieces, the second half of the groups first.
    """
    return replace(spec, form="arrow", translate=_ArrowForm(spec).translate)


class _ArrowForm:
    def __init__(self, spec: TranslatorSpec) -> None:
        self._spec = spec

    def translate(self, groups: Any, out: Any) -> None:
        emitted = [self._called(groups, g) for g in range(len(groups))]
        for output in self._spec.outputs:
            every = [row for group in emitted for row in group[output.name]]
            getattr(out, output.name)(_table(every, output.schema))
        half = len(emitted) // 2
        for state in self._spec.states:
            for part in (emitted[half:], emitted[:half]):
                rows = [row for group in part for row in group[state.name]]
                getattr(out, state.name)(_table(rows, state.schema))

    def _called(self, groups: Any, number: int) -> dict[str, list[Any]]:
        spec = self._spec
        assert spec.key is not None
        flows = {}
        for flow in [*(i.name for i in spec.inputs), *(s.name for s in spec.states)]:
            start, stop = groups.offsets(flow)[number : number + 2]
            flows[flow] = iter(_records(getattr(groups, flow).slice(start, stop - start), flow))
        (key,) = _records(groups.keys.slice(number, 1), "key")
        out = _Collected(spec)
        spec.translate(key, record_class("group", tuple(flows))(**flows), out)
        return out.rows


class _Collected:
    def __init__(self, spec: TranslatorSpec) -> None:
        self.rows: dict[str, list[Any]] = {}
        schemas = {o.name: o.schema for o in spec.outputs} | {s.name: s.schema for s in spec.states}
        for name, schema in schemas.items():
            self.rows[name] = []
            setattr(self, name, _emitter(record_class(name, schema.names), self.rows[name]))


def _emitter(record: Any, rows: list[Any]) -> Any:
    def emit(*args: Any, **kwargs: Any) -> None:
        rows.append(record(*args, **kwargs))

    return emit


def _records(table: pa.Table, name: str) -> list[Any]:
    columns = [column.to_pylist(maps_as_pydicts="strict") for column in table.columns]
    make = record_class(name, tuple(table.column_names))
    return [make(*row) for row in zip(*columns, strict=True)]


def _table(rows: list[Any], schema: Schema) -> pa.Table:
    types = author_schema(schema)
    arrays = [pa.array([row[at] for row in rows], field.type) for at, field in enumerate(types)]
    return pa.Table.from_arrays(arrays, schema=types)
