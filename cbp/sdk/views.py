"""Checks of a view's declaration, and of inputs that read its changes.

`View` is declared in `cbp.sdk.declare`. What a change is: `cbp.model.flow.changes`; how changes are
made: `cbp.engine.kernel.view_changes`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import get_args

from cbp.model.flow.changes import CHANGE_COLUMNS, ChangesRead
from cbp.model.flow.schema import Schema

__all__ = ["changes_mistakes", "view_mistakes"]

CodedMessage = tuple[str, str]
"""Code and message of a mistake."""


def view_mistakes(
    schema: Schema, key: Sequence[str] | None, route: Sequence[str]
) -> Iterator[CodedMessage]:
    """Yield what is wrong with the columns and the key of a view.

    Args:
        schema: The view's columns.
        key: The columns that name a record; `None` for a bag, in which no column names one.
        route: The columns that hold the stage's key.
    """
    for column in schema.names:
        if column.lower() in CHANGE_COLUMNS:
            message = (
                f"the changes of a view have a column {column!r} of their own; rename this one"
            )
            yield "view_column_reserved", message
    if key is None:
        yield from _bag_mistakes(schema)
        return
    if missing := [column for column in route if column not in key]:
        message = (
            f"key={', '.join(key)!r} lacks {missing[0]!r}, by which the stage groups its records: "
            f"add it, since two groups could otherwise emit records of one key"
        )
        yield "view_key_incomplete", message
    for column in key:
        if not schema[column].type.can_be_key:
            message = f"column {column!r} is {schema[column].type}, which no key can have"
            yield (
                "view_key_type",
                f"{message}; name columns of a type such as STRING, BIGINT or TIMESTAMP",
            )


def _bag_mistakes(schema: Schema) -> Iterator[CodedMessage]:
    """Yield the columns by which the records of a bag cannot be distinguished and ordered."""
    for column in schema.fields:
        if not column.type.can_be_key:
            message = f"column {column.name!r} is {column.type}, which cannot order a bag's records"
            yield (
                "view_bag_type",
                f"{message}; name the columns of a key (key='...'), or keep its parts as columns",
            )


def changes_mistakes(changes: str, schema: Schema) -> Iterator[CodedMessage]:
    """Yield what is wrong with how an input reads changes."""
    choices = get_args(ChangesRead)
    if changes not in choices:
        yield "changes_invalid", f"changes={changes!r}; use 'signed' or 'after'"
    if changes == "after":
        for column in schema.names:
            if column.lower() in CHANGE_COLUMNS:
                message = f"changes='after' gives no {column!r}; leave it out, or use 'signed'"
                yield "changes_columns", message
