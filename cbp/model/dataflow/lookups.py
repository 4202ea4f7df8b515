"""Checks of look-ups: what they are wired to, and whether they are by its key. Pure.

A look-up reads the state of another stage, or its own, by the key of the called group. It is no
input: it brings no increments, so nothing waits for it, and a cycle through it is none.

The changes by which one with `wake` calls groups are an input, wired in `cbp.model.dataflow.nodes`.
The records are found in `cbp.engine.task.bucket_work`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cbp.errors import Mistake
from cbp.errors.message_limits import listed
from cbp.model.dataflow.stage import LookupSpec, StateSpec, TranslatorSpec

__all__ = ["lookup_mistakes"]

Tables = Mapping[str, tuple[TranslatorSpec, StateSpec]]


def lookup_mistakes(
    stage: str, spec: TranslatorSpec, wired: Mapping[str, str], tables: Tables
) -> Iterator[Mistake]:
    """Yield what is wrong with the look-ups of a stage.

    Args:
        stage: Name of the stage.
        spec: Its translator.
        wired: Look-up to the table that it reads.
        tables: Every state that can be looked up, with its translator, by `stage.state`.
    """
    for one in spec.lookups:
        table = wired.get(one.name)
        mistake = _mistake(spec, one, table, tables)
        if mistake is not None:
            code, message = mistake
            yield Mistake(code, f"stages.{stage}.inputs.{one.name}", message, spec.place)


def _mistake(
    spec: TranslatorSpec, lookup: LookupSpec, table: str | None, tables: Tables
) -> tuple[str, str] | None:
    """Return the code and the message of the first mistake; `None` if there is none."""
    if table is None:
        return "input_unwired", f"{spec.name} looks up {lookup.name!r}: wire a view or a state"
    if table not in tables:
        message = (
            f"{table!r} is not a view or state of a stage, which a look-up reads by key; known are "
            f"{listed(sorted(tables)) or 'none'}. A static table is a source behind a stage that "
            "keeps it, such as `latest`"
        )
        return "lookup_table_unknown", message
    writer, state = tables[table]
    route = writer.key_of(state)
    if lookup.by and (difference := _key_difference(spec, lookup, writer, state)):
        return "lookup_key_mismatch", f"{difference}; {table!r} is kept by ({route})"
    if wrong := _schema_difference(lookup, state):
        return "schema_mismatch", f"table {table!r} does not fit {spec.name}.{lookup.name}: {wrong}"
    if lookup.wake and not state.changes:
        message = f"wake=True calls groups for changes, and {table!r} has none: declare it as View"
        return "lookup_wake_needs_view", message
    return None


def _key_difference(
    spec: TranslatorSpec, lookup: LookupSpec, writer: TranslatorSpec, state: StateSpec
) -> str:
    """Return a text that says how the keys differ; `""` if they are the same."""
    assert spec.key is not None, "a stage with look-ups has groups"
    route = writer.key_of(state)
    types, own = ([column.type for column in key.fields] for key in (route, spec.key))
    if types != own:
        return f"the groups of {spec.name} have the key ({spec.key})"
    if route.names != lookup.by:
        return f"by={', '.join(lookup.by)!r} must name the columns of the table's key, in its order"
    key = (*route.names, *state.second_key)
    if lookup.key and (state.bag or not (state.keep or state.changes)):
        return f"key={', '.join(lookup.key)!r}, but its records have no key: leave key= out"
    if lookup.key and lookup.records.second_key != state.second_key:
        return f"key={', '.join(lookup.key)!r}, but its records have the key ({', '.join(key)})"
    return ""


def _schema_difference(lookup: LookupSpec, state: StateSpec) -> str:
    wrong = []
    for column in lookup.schema.fields:
        if column.name not in state.schema:
            wrong.append(f"column {column.name!r} ({column.type}) is missing")
        elif state.schema[column.name].type != column.type:
            wrong.append(
                f"column {column.name!r} is {state.schema[column.name].type}, "
                f"expected {column.type}"
            )
    return "; ".join(wrong)
