"""Parses keys in query parameters by the declared types of the columns.

Numbers are decimal, booleans are `true` or `false`, dates and times are ISO 8601 (without a zone:
UTC), BINARY is base64, and `_null=column` is a null column.

Invariant: a value of a key column that the API returns (`controller.api.answers.json_values`) is
parsed to the same value (tests/controller/api/requests/test_keys.py).
"""

from __future__ import annotations

import base64
import binascii
import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Context, Decimal, InvalidOperation
from typing import Any

from cbp.errors import NotFoundError
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.flow.schema import DataType, Field, Schema
from controller.api.answers.request_errors import RequestInvalidError

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
"""What the OpenAPI document says of a key in the query."""

# Wide enough for DECIMAL(38,38); the default context has 28 digits.
_DECIMALS = Context(prec=80)
_INTEGER_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}


def schemas_of(dataflow: Dataflow, stage: str, state: str) -> tuple[Schema, Schema]:
    """Return the key columns of a state, and all its columns.

    Raises:
        NotFoundError: If there is no such stage, or it keeps no such state.
    """
    node = dataflow.stages.get(stage)
    if node is None:
        raise NotFoundError(kind="stage", name=f"{dataflow.name}.{stage}")
    for spec in node.translator.states:
        if spec.name == state:
            return node.translator.key_of(spec), spec.schema
    raise NotFoundError(kind="state", name=f"{dataflow.name}/{stage}.{state}")


def second_key_of(dataflow: Dataflow, stage: str, state: str) -> Schema:
    """Return the columns that name a record of a view or a kept state within its group."""
    spec = dataflow.stages[stage].translator.state(state)
    return spec.schema.select(spec.second_key)


def parse_key(
    schema: Schema, parameters: Sequence[tuple[str, str]], *, optional: Schema | None = None
) -> dict[str, Any]:
    """Parse the columns of a key from query parameters.

    Args:
        schema: The key's columns; each must be given.
        parameters: Name and text; `_null=column` is a null column.
        optional: More columns that may be given.

    Raises:
        RequestInvalidError: Lists every parameter that is missing, unknown, repeated or wrong.
    """
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
            expected = f"{text!r} is no {column.type}: {error}"
            mistakes.append(_mistake("key_column_invalid", column.name, expected))
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
    """Parse one value; raises `ValueError` that says what was expected."""
    kind = column.type.kind
    if kind in _INTEGER_BITS:
        return _integer(text, _INTEGER_BITS[kind])
    if kind == "DECIMAL":
        return _decimal(text, column.type)
    return _PARSERS[kind](text)


def _integer(text: str, bits: int) -> int:
    value = int(text) if text.lstrip("+-").isdecimal() and len(text) <= bits else None
    if value is None:
        message = "expected a whole number"
        raise ValueError(message)
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        message = f"out of the range of {bits} bits"
        raise ValueError(message)
    return value


def _decimal(text: str, type_: DataType) -> Decimal:
    message = f"expected a number with at most {type_.scale} decimal places"
    try:
        value = Decimal(text)
    except InvalidOperation as error:
        raise ValueError(message) from error
    if not value.is_finite():
        raise ValueError(message)
    try:
        fitted = value.quantize(Decimal(1).scaleb(-type_.scale), context=_DECIMALS)
    except InvalidOperation as error:
        raise ValueError(message) from error
    if fitted != value or fitted.adjusted() + type_.scale >= type_.precision:
        raise ValueError(message)
    return fitted


def _float(text: str) -> float:
    if "_" in text:  # Python accepts this between thousands
        message = "expected a number"
        raise ValueError(message)
    return float(text)


def _single(text: str) -> float:
    """Parse a number of 32 bits, as the nearest one, which is what is stored."""
    value = _float(text)
    nearest = ctypes.c_float(value).value
    if math.isinf(nearest) and not math.isinf(value):
        message = "out of the range of 32 bits"
        raise ValueError(message)
    return nearest


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        message = "expected true or false"
        raise ValueError(message)
    return text == "true"


def _timestamp(text: str) -> datetime:
    value = datetime.fromisoformat(text)
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _binary(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        message = f"expected base64: {error}"
        raise ValueError(message) from error


_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "STRING": str,
    "BOOLEAN": _boolean,
    "DOUBLE": _float,
    "FLOAT": _single,
    "BINARY": _binary,
    "DATE": date.fromisoformat,
    "TIMESTAMP": _timestamp,
}
