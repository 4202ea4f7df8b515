"""JSON lines: one object a line, each parsed by itself and strictly.

Rejected: a line that is no object, two values on a line, a key that stands twice,
`NaN` and `Infinity` as bare words, a cut last line. Blank lines are skipped. A
column that an object lacks is null; keys that the schema lacks are left out and
noted. Nothing is inferred from one line for another.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from decimal import Decimal, DecimalException
from typing import Any, NoReturn

import pyarrow as pa

from cbp.model.schema import DataType, Schema
from controller.ingest.columns import BatchBuilder
from controller.ingest.lines import TextBlock
from controller.ingest.notes import Notes
from controller.ingest.rejection import FileRejectedError
from controller.values import excerpt

__all__ = ["read_jsonl"]


def read_jsonl(
    blocks: Iterable[TextBlock], schema: Schema, *, batch_rows: int, notes: Notes
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a file in order.

    Raises:
        FileRejectedError: `json_invalid`, `json_no_object`, `value_type`, `value_missing`.
    """
    builder = BatchBuilder(schema, text=False)
    decoder = _decoder(schema)
    names = schema.names
    for block in blocks:
        for start in range(0, len(block.lines), batch_rows):
            first = block.first + start
            rows, numbers = _objects(decoder, block.lines[start : start + batch_rows], first)
            if rows:
                notes.extra_columns(set().union(*rows).difference(names))
                yield builder.batch([[row.get(name) for row in rows] for name in names], numbers)


def _objects(
    decoder: json.JSONDecoder, lines: list[str], first: int
) -> tuple[list[dict[str, Any]], list[int]]:
    rows, numbers = [], []
    for number, line in enumerate(lines, first):
        if not line.strip(" \t\r"):
            continue
        try:
            value = decoder.decode(line)
        except json.JSONDecodeError as exc:
            _invalid(line, number, f"{exc.msg} at character {exc.pos + 1}")
        except RecursionError:
            _invalid(line, number, "nested too deeply")
        except (ValueError, DecimalException) as exc:
            _invalid(line, number, str(exc) or "a number that cannot be read")
        if type(value) is not dict:
            message = f"expected an object, got {excerpt(line)}"
            raise FileRejectedError(rule="json_no_object", message=message, line=number)
        rows.append(value)
        numbers.append(number)
    return rows, numbers


def _invalid(line: str, number: int, cause: str) -> NoReturn:
    message = f"not one JSON value: {cause}; the line is {excerpt(line)}"
    raise FileRejectedError(rule="json_invalid", message=message, line=number, cause=cause)


def _decoder(schema: Schema) -> json.JSONDecoder:
    """Return a strict decoder; numbers keep their digits where a decimal needs them."""
    exact = any(_has_decimal(field.type) for field in schema.fields)
    return json.JSONDecoder(
        object_pairs_hook=_unique,
        parse_constant=_refuse_constant,
        parse_float=Decimal if exact else None,
    )


def _has_decimal(type_: DataType) -> bool:
    return type_.kind == "DECIMAL" or any(map(_has_decimal, type_.arguments))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        message = f"key {excerpt(twice)} stands twice in one object"
        raise ValueError(message)
    return value


def _refuse_constant(word: str) -> NoReturn:
    message = f"{word} is no JSON number"
    raise ValueError(message)
