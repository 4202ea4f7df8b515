"""Tables for the look-ups of a stage that is run alone: each is kept by a stage of its own.

    customers (source: the whole table, and a marker) -> customers_table -> looked up

An increment is the whole table and a marker: a record without data, so that even an empty table is
an increment. The state is outer, so every group is called, and records that the new table lacks
are removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from cbp.model.dataflow.dataflow import SourceNode, StageNode
from cbp.model.dataflow.stage import LookupSpec, TranslatorSpec
from cbp.model.flow.schema import Schema
from cbp.sdk.declare import Input, State, View
from cbp.sdk.translate import Translate, spec_of

_TABLE = "records"


def table_of(lookup: LookupSpec) -> str:
    """Return the table that is kept for a look-up, as `stage.state`."""
    return f"{lookup.name}_table.{_TABLE}"


def table_nodes(lookup: LookupSpec) -> tuple[SourceNode, StageNode]:
    """Return the source of a look-up's table, named like the look-up, and the stage after it."""
    translator = _keeper(lookup)
    source = SourceNode(lookup.name, translator.inputs[0].schema)
    stage, _, _ = table_of(lookup).partition(".")
    return source, StageNode(stage, translator, {"rows": lookup.name})


def increment_of(lookup: LookupSpec, records: Iterable[Any]) -> list[Any]:
    """Return a whole table as an increment of its source: the records, then the marker.

    Args:
        lookup: The look-up.
        records: Each is a dict by column, a tuple, or the bare value of a single column.
    """
    more = [name for name in _arriving(lookup).names if name not in lookup.schema]
    empty = tuple(None for _ in more)
    given = [
        record
        if isinstance(record, Mapping)
        else (*(record if isinstance(record, tuple) else (record,)), *empty)
        for record in records
    ]
    return [*given, {more[0]: True}]


def _arriving(lookup: LookupSpec) -> Schema:
    """Return the table's columns, one that is true in a marker, and a key if it has none."""
    columns = [replace(field, nullable=True) for field in lookup.schema.fields]
    for name, type_ in [("came", "BOOLEAN"), *([] if lookup.by else [("every", "INT")])]:
        while name.lower() in {one.name.lower() for one in columns}:
            name += "_"
        columns.append(Schema.parse(f"{name} {type_}").fields[0])
    return Schema(tuple(columns))


def _keeper(lookup: LookupSpec) -> TranslatorSpec:
    arriving = _arriving(lookup)
    came = arriving.fields[len(lookup.schema)].name
    by = lookup.by or (arriving.fields[-1].name,)
    schema = lookup.schema if lookup.by else Schema((arriving.fields[-1], *lookup.schema.fields))
    names = schema.names
    table = _declared(lookup, schema, by)

    class Keep(Translate):
        """Keeps the table that came last."""

        rows = Input(str(arriving), route_by=", ".join(by))
        records = table

        def translate(self, key: Any, group: Any, out: Any) -> None:
            """Emit the records that the new table has of the key; the others go."""
            for row in group.rows:
                if not getattr(row, came):
                    out.records(*(getattr(row, name) for name in names))

    return spec_of(Keep())


def _declared(lookup: LookupSpec, schema: Schema, by: tuple[str, ...]) -> State:
    """Return the state of a table, or a view if records have a key, or changes are read.

    Where no key is known, the view is a bag; or, with nested columns, which a bag cannot have, the
    other columns are its key.
    """
    if not (lookup.key or lookup.wake):
        return State(str(schema), grouping="outer", route_by=", ".join(by))
    key = lookup.key
    if not key and any(field.type.arguments for field in schema.fields):
        key = tuple(field.name for field in schema.fields if field.type.can_be_key)
    named = ", ".join(key) or None
    return View(str(schema), key=named, grouping="outer", route_by=", ".join(by))
