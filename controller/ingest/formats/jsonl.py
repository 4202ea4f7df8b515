"""JSON lines reader: one object a line; each line is parsed by itself, and strictly.

Rejected: a line that is not an object, two values on a line, a repeated key, `NaN` and
`Infinity` as bare words, a cut last line, a key that the schema lacks (unless the source ignores
these). Blank lines are skipped. A column that an object lacks is null. No line affects how
another is parsed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal, DecimalException
from typing import Any, NoReturn, cast

import pyarrow as pa

from cbp.model.flow.schema import DataType, Schema
from controller.ingest.formats.bad_lines import BadLines
from controller.ingest.formats.column_conversion import BatchBuilder, unknown_column
from controller.ingest.formats.json_columns import JsonColumns
from controller.ingest.formats.lines import TextBlock
from controller.ingest.formats.notes import Notes
from controller.ingest.rejection import FileRejectedError
from controller.values import ValueRules, excerpt

__all__ = ["read_jsonl"]

_AT_ONCE = 1_000
"""Lines that are parsed together; among so many, an odd one costs the others their speed."""

_BETWEEN = "}\n{"


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
    decoders = _Decoders.of(schema)
    names, known = schema.names, set(schema.names)
    keyed: int | None = None

    def build(rows: Sequence[dict[str, Any]], numbers: Sequence[int]) -> pa.RecordBatch | None:
        return builder.batch([[row.get(n) for row in rows] for n in names], numbers, bad)

    columns = JsonColumns(schema, builder)
    for block in blocks:
        # Behind a wrong line no record is yielded, and each further wrong one is to be told.
        whole = None if bad.refuses else columns.batch(block.text, block.count)
        if whole is not None:
            keyed = 0
            bad.lines.add(range(block.first, block.first + len(whole)))
            yield from (whole.slice(at, batch_rows) for at in range(0, len(whole), batch_rows))
            continue
        for start in range(0, block.count, batch_rows):
            lines = block.lines[start : start + batch_rows]
            rows, numbers = _objects(decoders, lines, block.first + start, bad)
            if rows:
                keys = set().union(*rows)
                if keys and keyed != 0:
                    first = next(n for row, n in zip(rows, numbers, strict=True) if row)
                    keyed = 0 if keys & known else keyed or first
                if not keys <= known:
                    notes.extra_columns(keys - known)
                    if not rules.ignore_unknown:
                        _refuse_unknown(rows, numbers, names, bad)
                batch = bad.sound(build, rows, numbers)
                if batch is not None:
                    yield batch
            for number in bad.textless():
                bad.keep_text(number, lines[number - block.first - start])
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
    decoders: _Decoders, lines: list[str], first: int, bad: BadLines
) -> tuple[list[dict[str, Any]], list[int]]:
    rows, numbers = list[dict[str, Any]](), list[int]()
    for start in range(0, len(lines), _AT_ONCE):
        some = lines[start : start + _AT_ONCE]
        plain = _plain_objects(decoders.quick, some)
        if plain is not None:
            rows += plain
            numbers += range(first + start, first + start + len(some))
        else:
            made = _objects_by_line(decoders.strict, some, first + start, bad)
            rows += made[0]
            numbers += made[1]
    return rows, numbers


def _plain_objects(decoder: json.JSONDecoder, lines: list[str]) -> list[dict[str, Any]] | None:
    """Parse lines together, at several times the speed; `None`: parse them one by one.

    Certainly the same as one by one, since a result is returned only if
    - every line begins with a brace and ends with one, there are no others, and there are as many
      objects as lines: so each brace is one of these objects', and each line is one of them;
    - there are as many keys as quotes or white space before a colon. There cannot be more keys,
      so none was there twice (a key that is repeated is one key of the result).
    """
    text = "\n".join(lines)
    count = len(lines)
    braces = (text.count("{"), text.count("}"), text.count("}\n{") + 1)
    if braces != (count, count, count) or text[0] != "{" or text[-1] != "}":
        return None
    try:
        rows = decoder.decode(f"[{text.replace(_BETWEEN, '},{')}]")
    except (ValueError, RecursionError, DecimalException):
        return None
    keys = sum(text.count(before) for before in ('":', " :", "\t:", "\r:"))
    if len(rows) != count or set(map(type, rows)) != {dict} or sum(map(len, rows)) != keys:
        return None
    return cast("list[dict[str, Any]]", rows)


def _objects_by_line(
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


@dataclass(frozen=True, slots=True)
class _Decoders:
    """Decoders of a schema; numbers keep their digits where a decimal needs them.

    Attributes:
        strict: Refuses a key that stands twice.
        quick: Does not, and calls nothing for an object.
    """

    strict: json.JSONDecoder
    quick: json.JSONDecoder

    @classmethod
    def of(cls, schema: Schema) -> _Decoders:
        exact = any(_has_decimal(field.type) for field in schema.fields)
        number = Decimal if exact else None
        return cls(
            json.JSONDecoder(
                object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_float=number
            ),
            json.JSONDecoder(parse_constant=_refuse_constant, parse_float=number),
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
