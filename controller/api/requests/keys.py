"""Parses keys in query parameters by the declared types of the columns.

A text is parsed as in a CSV file (`controller.value_conversion`), and a time without a zone is in
UTC. BINARY is base64, and `_null=column` makes a column null.

Invariant: a value of a key column that the API returns (`controller.api.answers.json_values`) is
parsed to the same value (tests/controller/api/requests/test_keys.py).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from datetime import UTC
from typing import Any

from cbp.errors import NotFoundError
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.flow.schema import Field, Schema
from controller.api.answers.request_errors import RequestInvalidError
from controller.value_conversion import ValueRules, excerpt, from_json, from_text

NULL_PARAMETER = "_null"

KEY_PARAMETERS = {
    "parameters": [
        {
            "name": "key",
            "in": "query",
            "required": True,
            "style": "form",
            "explode": True,
            "description": f"One parameter per key column; `{NULL_PARAMETER}=column` for null.",
            "schema": {"type": "object", "additionalProperties": {"type": "string"}},
        }
    ]
}
"""What the OpenAPI document says about a key in the query."""

_IN_UTC = ValueRules(zone=UTC)
_REALS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def schemas_of(dataflow: Dataflow, stage: str, state: str) -> tuple[Schema, Schema]:
    """Return the key columns of a state, and all its columns. Raises `NotFoundError`."""
    node = dataflow.stages.get(stage)
    if node is None:
        raise NotFoundError(kind="stage", name=f"{dataflow.name}.{stage}")
    for spec in node.translator.states:
        if spec.name == state:
            return node.translator.key_of(spec), spec.schema
    raise NotFoundError(kind="state", name=f"{dataflow.name}/{stage}.{state}")


def second_key_of(dataflow: Dataflow, stage: str, state: str) -> Schema:
    """Return the columns that identify a record of a view or a kept state within its group."""
    spec = dataflow.stages[stage].translator.state(state)
    return spec.schema.select(spec.second_key)


def parse_key(
    schema: Schema, parameters: Sequence[tuple[str, str]], *, optional: Schema | None = None
) -> dict[str, Any]:
    """Parse the columns of a key, and optional columns, from the names and texts of a query."""
    mistakes: list[dict[str, str]] = []
    more = () if optional is None else optional.fields
    columns = Schema((*schema.fields, *more))
    texts = _texts_by_column(columns, parameters, mistakes)
    key: dict[str, Any] = {}
    for column in columns.fields:
        if column.name not in texts and column in more:
            continue
        if column.name not in texts:
            expected = f"is missing; the key is {schema}"
            mistakes.append(_mistake("key_column_missing", column.name, expected))
            continue
        text = texts[column.name]
        try:
            key[column.name] = None if text is None else _parse(column, text)
        except ValueError as error:
            mistakes.append(_mistake("key_column_invalid", column.name, str(error)))
    if mistakes:
        raise RequestInvalidError(mistakes)
    return key


def _texts_by_column(
    schema: Schema, parameters: Sequence[tuple[str, str]], mistakes: list[dict[str, str]]
) -> dict[str, str | None]:
    texts: dict[str, str | None] = {}
    for name, text in parameters:
        column = text if name == NULL_PARAMETER else name
        if column not in schema:
            expected = f"is not a column of the key, which is {schema}"
            mistakes.append(_mistake("key_column_unknown", column, expected))
        elif column in texts:
            mistakes.append(_mistake("key_column_twice", column, "is given twice"))
        else:
            texts[column] = None if name == NULL_PARAMETER else text
    return texts


def _mistake(code: str, column: str, message: str) -> dict[str, str]:
    return {"code": code, "where": f"query.{column}", "message": message}


def _parse(column: Field, text: str) -> Any:
    """Return the value of a text; raises `ValueError`, which says what was expected."""
    kind = column.type.kind
    if kind == "BINARY":
        return from_json(column.type)(text)
    if kind == "BOOLEAN" and text != text.lower():
        message = f"expected true or false, got {excerpt(text)}"
        raise ValueError(message)
    if kind == "TIMESTAMP" and len(text) == len("2026-11-21"):
        text = f"{text}T00:00"
    if kind in ("DOUBLE", "FLOAT"):
        text = _REALS.get(text.lower(), text)
    value = from_text(column.type, _IN_UTC)(text)
    # The table contains the nearest number of 32 bits.
    return ctypes.c_float(value).value if kind == "FLOAT" else value
