"""JSON lines reader: one object a line; each line is parsed by itself, and strictly.

Rejected: a line that is not an object, two values on a line, a repeated key, `NaN` and
`Infinity` as bare words, a cut last line, a key that the schema lacks (unless the source ignores
these). Blank lines are skipped. A column that an object lacks is null. No line affects how
another is parsed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal, DecimalException
from typing import Any, NoReturn

import pyarrow as pa

from cbp.model.flow.schema import DataType, Schema
from controller.ingest.bad_lines import BadLines
from controller.ingest.columns import BatchBuilder, unknown_column
from controller.ingest.lines import TextBlock
from controller.ingest.notes import Notes
from controller.ingest.rejection import FileRejectedError
from controller.values import ValueRules, excerpt

__all__ = ["read_jsonl"]


def read_jsonl(
    blocks: Iterable[TextBlock],
    schema: Schema,
    rules: ValueRules,
    *,
    batch_rows: int,
    notes: Notes,
    bad: BadLines,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a file in order, up to the first wrong one.

    Wrong lines go to `bad`: `json_invalid`, `json_no_object`, `column_unknown`, `value_type`,
    `value_missing`.

    Raises:
        FileRejectedError: `column_missing`: no object has any of the columns.
    """
    builder = BatchBuilder(schema, rules, text=False)
    decoder = _decoder(schema)
    names, known = schema.names, set(schema.names)
    keyed: int | None = None
    for block in blocks:
        for start in range(0, len(block.lines), batch_rows):
            lines = block.lines[start : start + batch_rows]
            rows, numbers = _objects(decoder, lines, block.first + start, bad)
            if rows:
                keys = set().union(*rows)
                if keys and keyed != 0:
                    first = next(n for row, n in zip(rows, numbers, strict=True) if row)
                    keyed = 0 if keys & known else keyed or first
                if not keys <= known:
                    notes.extra_columns(keys - known)
                    if not rules.ignore_unknown:
                        _refuse_unknown(rows, numbers, names, bad)
                batch = builder.batch([[row.get(n) for row in rows] for n in names], numbers, bad)
                if batch is not None and not bad:
                    yield batch
            bad.check(len(lines))
    if keyed:
        message = f"no object has any of the declared columns {', '.join(names)}"
        raise FileRejectedError(rule="column_missing", message=message[:1000], line=keyed)


def _refuse_unknown(
    rows: list[dict[str, Any]], numbers: list[int], names: Sequence[str], bad: BadLines
) -> None:
    known = set(names)
    for row, number in zip(rows, numbers, strict=True):
        if not row.keys() <= known and bad.wants(number):
            name = next(name for name in row if name not in known)
            bad.add("column_unknown", unknown_column(name, names), line=number)


def _objects(
    decoder: json.JSONDecoder, lines: list[str], first: int, bad: BadLines
) -> tuple[list[dict[str, Any]], list[int]]:
    rows, numbers = [], []
    for number, line in enumerate(lines, first):
        if not line.strip(" \t\r"):
            continue
        try:
            value = decoder.decode(line)
        except json.JSONDecodeError as exc:
            _note(bad, line, number, f"{exc.msg} at character {exc.pos + 1}")
        except RecursionError:
            _note(bad, line, number, "nested too deeply")
        except (ValueError, DecimalException) as exc:
            _note(bad, line, number, str(exc) or "a number that cannot be read")
        else:
            if type(value) is dict:
                rows.append(value)
                numbers.append(number)
            elif bad.wants(number):
                bad.add("json_no_object", f"expected an object, got {excerpt(line)}", line=number)
    return rows, numbers


def _note(bad: BadLines, line: str, number: int, cause: str) -> None:
    if bad.wants(number):
        message = f"not one JSON value: {cause}; the line is {excerpt(line)}"
        bad.add("json_invalid", message, line=number, cause=cause)


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
        last = {name: at for at, (name, _) in enumerate(pairs)}
        twice = next(name for at, (name, _) in enumerate(pairs) if last[name] != at)
        message = f"key {excerpt(twice)} stands twice in one object"
        raise ValueError(message)
    return value


def _refuse_constant(word: str) -> NoReturn:
    message = f"{word} is no JSON number"
    raise ValueError(message)
