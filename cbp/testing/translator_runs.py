"""Run one translator in memory, epoch by epoch, as a stage between sources.

A table that it looks up is kept by a stage of its own:

    customers (source: the whole table, and a marker) -> customers_table -> looked up

An increment is the whole table and a marker: a record without data, so that even an empty table is
an increment. The state has outer grouping, so every group is called, and records that the new table
lacks are removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType
from typing import Any

from cbp.engine.reference.stage import whole
from cbp.errors import NotFoundError
from cbp.model.dataflow.dataflow import Dataflow, SourceNode, StageNode
from cbp.model.dataflow.stage import CHANGES_OF, LookupSpec, TranslatorSpec
from cbp.model.flow.schema import Schema
from cbp.sdk.declare import Input, State, View
from cbp.sdk.translate import Declared, Translate, spec_of
from cbp.testing.dataflow_runs import run_dataflow
from cbp.testing.result import Result

_STAGE = "stage"

Author = Declared | type[Declared]

Tables = Mapping[str, Iterable[Any]]
"""Maps each look-up to the records of its table."""

NO_TABLES: Tables = MappingProxyType({})


def run_epochs(
    translator: Author,
    epochs: Iterable[Any],
    *,
    at_once: bool = False,
    close: bool = False,
    parts_of: Callable[[list[Any]], list[list[Any]]] = whole,
    times: Sequence[datetime] = (),
    lookups: Tables = NO_TABLES,
) -> Result:
    """Run one translator over some epochs, one increment per input and epoch.

    Args:
        translator: An instance, or a class whose constructor needs no arguments.
        epochs: For each epoch the records of the only input; or, with several inputs, a
            dict from input to records (an input left out gets an empty increment). A
            record is a dict by column, a tuple, or the bare value of a single column. The name
            of a look-up maps to its whole table from this epoch on.
        at_once: If true, all increments arrive before the first run, so that input and the
            messages of loopbacks mix. If false, each increment arrives once the stage has
            nothing left to do.
        close: Whether a close follows the last increment, so that framed inputs read it.
        parts_of, times: As in `run_dataflow`.
        lookups: Maps look-ups to the records of their tables before the first epoch; other
            tables are empty.

    Outputs and state have their declared names; the stage is named `stage` in the figures.

    Raises:
        NotFoundError: An epoch names an input that does not exist, or `lookups` a look-up.
        TypeError: A record does not fit its input.
    """
    spec = spec_of(translator() if isinstance(translator, type) else translator)
    increments = increments_of(spec, epochs, lookups)
    result = run_dataflow(
        _one_stage(spec), increments, at_once=at_once, close=close, parts_of=parts_of, times=times
    )
    return result.of_stage(_STAGE)


def increments_of(
    spec: TranslatorSpec, epochs: Iterable[Any], lookups: Tables
) -> dict[str, list[Iterable[Any] | None]]:
    """Return the arrivals of each input and look-up, epoch by epoch; see `run_epochs`."""
    by_name = {one.name: one for one in spec.lookups}
    for name in lookups:
        if name not in by_name:
            raise NotFoundError(kind="look-up", name=name)
    increments: dict[str, list[Iterable[Any] | None]] = {name: [] for name in outside(spec)}
    tables: dict[str, list[Iterable[Any] | None]] = {name: [] for name in by_name}
    for epoch in epochs:
        given = by_input(epoch, spec)
        for name, records in increments.items():
            records.append(given.get(name, ()))
        for name, records in tables.items():
            records.append(increment_of(by_name[name], given[name]) if name in given else None)
    for name, table in lookups.items():
        if not tables[name] or tables[name][0] is None:
            tables[name][:1] = [increment_of(by_name[name], table)]
    return {**tables, **increments}


def by_input(epoch: Any, spec: TranslatorSpec) -> Mapping[str, Iterable[Any]]:
    """Return the records of an epoch by input, and by look-up."""
    names = outside(spec)
    if not isinstance(epoch, Mapping):
        if len(names) > 1:
            message = (
                f"{spec.name} has the inputs {', '.join(names)}: give each epoch as a dict of "
                "input names to records"
            )
            raise TypeError(message)
        return {names[0]: epoch}
    for name in epoch:
        if name not in (*names, *(one.name for one in spec.lookups)):
            raise NotFoundError(kind="input", name=name)
    return epoch


def outside(spec: TranslatorSpec) -> list[str]:
    """Return the inputs that are fed from outside: no loopbacks, and no changes of look-ups."""
    woken = {CHANGES_OF.format(one.name) for one in spec.lookups}
    return [one.name for one in spec.inputs if not one.loopback and one.name not in woken]


def _one_stage(spec: TranslatorSpec) -> Dataflow:
    """Return a dataflow with one stage, and one source per input or look-up, named like it.

    The table of a look-up is kept by another stage, which reads the source of the look-up.
    """
    sources = {name: SourceNode(name, spec.input(name).schema) for name in outside(spec)}
    stages: dict[str, StageNode] = {}
    wiring = {name: name for name in sources}
    for lookup in spec.lookups:
        keeper, stage = _keeper(lookup), f"{lookup.name}_table"
        sources[lookup.name] = SourceNode(lookup.name, keeper.inputs[0].schema)
        stages[stage] = StageNode(stage, keeper, {"rows": lookup.name})
        wiring[lookup.name] = f"{stage}.records"
    stages[_STAGE] = StageNode(_STAGE, spec, MappingProxyType(wiring))
    return Dataflow("in_memory", sources, stages)


def increment_of(lookup: LookupSpec, records: Iterable[Any]) -> list[Any]:
    """Return a whole table as an increment of its source: the records, then the marker."""
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
        """Keeps the last table."""

        rows = Input(str(arriving), route_by=", ".join(by))
        records = table

        def translate(self, key: Any, group: Any, out: Any) -> None:
            """Emit the key's records in the new table; its other records are removed."""
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
    return View(str(schema), key=", ".join(key) or None, grouping="outer", route_by=", ".join(by))
