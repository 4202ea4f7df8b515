"""`Lookup`: a table of another stage that the called groups look up by their key.

`cbp.model.dataflow.node_mistakes` checks its wiring. In a run, `cbp.engine.task.bucket_work` finds
the records of groups, and `cbp.engine.task.writers` those for all groups (`by=()`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cbp.model.dataflow.stage import CHANGES_OF, InputSpec, LookupSpec
from cbp.model.flow.schema import Schema
from cbp.model.flow.signed_changes import changes_schema


@dataclass(frozen=True)
class Lookup:
    """A view or a state of another stage; a called group reads the records of its key.

        customers = Lookup("customer STRING, name STRING, country STRING", by="customer")

    It is wired like an input, to a view or a state of the dataflow: `customers=keep.current`. But
    it brings no increments: it calls no group, no run waits for it, and only the records of the
    called groups are read, by the table's own index.

        for customer in group.customers: ...        # its records, any number of times
        customer = group.customers.one()            # the only one, or None

    With `key` the records are read as those of a kept state, without reading the others:

        orders = Lookup("customer STRING, id BIGINT", by="customer", key="customer, id")
        group.orders.get(id=7)                      # the record, or None
        group.orders.range(id=(1, 10))              # in order; reverse=True: from the last on

    With `by=()` every group gets all records, such as settings. They are read once per task, so
    use it for at most some thousand records.

    A run sees the table as of the newest epoch that the table shows when the run begins. The record
    of the run names that epoch, so that `cbp verify` reads the same. A later change, a correction
    or a roll-back of the table does not change earlier results. With `wake=True` the groups
    whose records change are called again; this needs a view. `group.<name>_changes` then has
    the changes of the group, as with `Input(..., changes="signed")`: the columns of the
    look-up, `change_type` and `sign`.

    Args:
        schema: DDL; the table can have more columns.
        by: The columns, separated by commas, that hold the key: those of the table's key, with
            the types of the stage's key. `()` gives every group all records.
        key: Columns that identify a record, as declared by the table: those of `by`, and others.
        wake: Whether groups are called when their records change.
    """

    schema: str
    by: str | tuple[()]
    key: str | None = None
    wake: bool = False


def _columns(value: Any) -> tuple[str, ...]:
    return tuple(part.strip() for part in value.split(",")) if isinstance(value, str) else ()


def lookup_spec(name: str, declared: Lookup, schema: Schema) -> LookupSpec:
    """Return the plain values of a checked declaration."""
    return LookupSpec(name, schema, _columns(declared.by), _columns(declared.key), declared.wake)


def lookup_mistakes(
    declared: Lookup, schema: Schema, key: Schema | None
) -> Iterator[tuple[str, str]]:
    """Yield code and message of each mistake in a declaration.

    `key` is the stage's; `None` if it has no groups.
    """
    if key is None:
        message = "only groups can look up records: declare route_by at every input of the stage"
        yield "route_by_missing", message
        return
    by, columns = _columns(declared.by), _columns(declared.key)
    if not by and declared.by != ():
        message = f"got by={declared.by!r}; expected names of columns, such as 'a, b', or ()"
        yield "lookup_by_invalid", message
        return
    if not columns and declared.key is not None:
        message = f"got key={declared.key!r}; expected names of columns, such as 'a, b'"
        yield "lookup_key_invalid", message
    for option, names in (("by", by), ("key", columns)):
        for column in names:
            if column not in schema:
                has = ", ".join(schema.names)
                yield f"lookup_{option}_unknown", f"the schema has no column {column!r}; use {has}"
                return
    if not by and (columns or declared.wake):
        yield "lookup_by_invalid", "with by=() every group gets all records: remove key= and wake="
    elif columns and not set(by) <= set(columns):
        message = f"key={declared.key!r} must have all columns of by={declared.by!r}"
        yield "lookup_key_invalid", message
    elif by and (types := [schema[c].type for c in by]) != [f.type for f in key.fields]:
        came = ", ".join(map(str, types))
        message = f"the columns of by={declared.by!r} have the types ({came})"
        yield "lookup_key_mismatch", f"{message}, but the stage's key is ({key})"


def changes_input(spec: LookupSpec) -> InputSpec:
    """Return the input that reads the changes of a looked-up table, so that they call groups."""
    name, schema = CHANGES_OF.format(spec.name), changes_schema(spec.schema)
    return InputSpec(name, schema, spec.by, changes="signed")
