"""JSON lines reader: one object a line; each line is parsed by itself, and strictly.

Rejected: a line that is not an object, two values on a line, a repeated key, `NaN` and
`Infinity` as bare words, a cut last line, a key that the schema lacks (unless the source ignores
these). Blank lines are skipped. A column that an object lacks is null. No line affects how
another is parsed.

Arrow parses a block of lines several times as fast as Python, and makes no objects. It refuses what
the strict reader refuses: a duplicate or unknown key, a value of another type or out of range, a
bare control character, half a surrogate pair. Such a block is then read line by line, which names
the line. So is a block for which Arrow might differ from the strict reader:

    a line that is not one object      Arrow reads objects over several lines, and two on one line.
                                       No JSON value contains `}` LF `{`: if it is between all
                                       lines, and there are as many objects, each line is one
    NaN, Infinity                      Arrow reads these words as numbers
    -0 in a DOUBLE                     the strict reader reads an integer, so 0; Arrow reads -0.0
    a DECIMAL without room             Arrow checks a number's digits before it adds zeros
    nested values that are ignored     Arrow ignores a duplicate key in them
    a MAP, or another type than        Arrow reads a map from a list of pairs
    BIGINT, STRING ... in a nested one
    a column that no object has        the file may have none of the columns

`tests/controller/ingest/formats/test_jsonl.py` has each of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal, DecimalException
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
import pyarrow.types as pt

from cbp.engine.columnar.value_limits import inner_arrays
from cbp.model.flow.schema import DataType, Schema
from controller.ingest.formats.bad_lines import BadLines, Reading
from controller.ingest.formats.columns import BatchBuilder, ColumnBuilder, refuse_column
from controller.ingest.formats.text import TextBlock, line_batches
from controller.ingest.rejection import FileRejectedError
from controller.value_conversion import INTEGER_BITS, excerpt

_AS_TEXT = ("DATE", "TIMESTAMP", "BINARY")
_AS_THEY_ARE = {*INTEGER_BITS, "STRING", "DOUBLE", "BOOLEAN"}
_KINDS = {*_AS_THEY_ARE, *_AS_TEXT, "FLOAT", "DECIMAL"}


def read_jsonl(blocks: Iterable[TextBlock], reading: Reading) -> Iterator[pa.RecordBatch]:
    """Yield the records of a file in order, up to the first wrong one; `bad` notes it."""
    bad, limits, names = reading.bad, reading.limits, reading.schema.names
    builder = BatchBuilder(reading.schema, reading.options.rules, text=False)
    columns, decoder = JsonColumns(reading, builder), _decoder(reading.schema)
    known, has_known, first_keyed = set(names), False, 0

    def parse(lines: list[str], first: int) -> tuple[list[dict[str, Any]], list[int]]:
        nonlocal has_known, first_keyed
        rows, numbers = _objects(decoder, lines, first, bad)
        keys = set[str]().union(*rows)
        has_known = has_known or bool(keys & known)
        if keys and not first_keyed:
            first_keyed = next(n for row, n in zip(rows, numbers, strict=True) if row)
        if not keys <= known:
            reading.notes.extra_columns(keys - known)
            if not reading.options.rules.ignore_unknown:
                for row, number in zip(rows, numbers, strict=True):
                    if not row.keys() <= known:
                        refuse_column(next(n for n in row if n not in known), number, reading)
        return rows, numbers

    def build(rows: Sequence[dict[str, Any]], numbers: Sequence[int]) -> pa.RecordBatch | None:
        return builder.batch([[row.get(n) for row in rows] for n in names], numbers, bad)

    for block in blocks:
        # After a wrong line no record is yielded, but each further wrong line is named.
        is_large = len(block.text) >= limits.fast_block_bytes_min
        whole = columns.batch(block.text, block.count) if is_large and not bad.refuses else None
        if whole is None:
            yield from line_batches(block, reading, parse, build)
            continue
        has_known, rows = True, limits.batch_rows
        bad.lines.add(range(block.first, block.first + len(whole)))
        yield from (whole.slice(at, rows) for at in range(0, len(whole), rows))
    if first_keyed and not has_known:
        message = f"no object has any of the declared columns {', '.join(names)}"
        raise FileRejectedError("column_missing", message[:1000], line=first_keyed)


def _objects(
    decoder: json.JSONDecoder, lines: list[str], first: int, bad: BadLines
) -> tuple[list[dict[str, Any]], list[int]]:
    rows, numbers = list[dict[str, Any]](), list[int]()
    for number, line in enumerate(lines, first):
        if not line.strip(" \t\r"):
            continue
        try:
            value = decoder.decode(line)
        except json.JSONDecodeError as exc:
            _note(bad, line, number, f"{exc.msg} at character {exc.pos + 1}")
        except RecursionError:
            _note(bad, line, number, "the value is nested too deeply")
        except (ValueError, DecimalException) as exc:
            _note(bad, line, number, str(exc) or "a number cannot be parsed")
        else:
            if type(value) is dict:
                rows.append(value)
                numbers.append(number)
            elif bad.wants(number):
                bad.add("json_no_object", f"expected an object, got {excerpt(line)}", line=number)
    return rows, numbers


def _note(bad: BadLines, line: str, number: int, cause: str) -> None:
    if bad.wants(number):
        message = f"the line is not exactly one JSON value: {cause}; got {excerpt(line)}"
        bad.add("json_invalid", message, line=number, cause=cause)


def _decoder(schema: Schema) -> json.JSONDecoder:
    """Return a decoder that refuses a duplicate key; it keeps all digits if a column needs them."""
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
        message = f"duplicate key {excerpt(twice)} in one object"
        raise ValueError(message)
    return value


def _refuse_constant(word: str) -> NoReturn:
    message = f"{word} is not a JSON number"
    raise ValueError(message)


class JsonColumns:
    """Parses blocks of one file; `builder` makes batches of its source from parsed JSON."""

    def __init__(self, reading: Reading, builder: BatchBuilder) -> None:
        self._builder, self._notes = builder, reading.notes
        self._parses = all(_is_parsed(field.type) for field in reading.schema.fields)
        self._ignores = reading.options.rules.ignore_unknown
        self._schema = pa.schema([(c.field.name, _parsed_type(c)) for c in builder.columns])

    def batch(self, text: str, count: int) -> pa.RecordBatch | None:
        """Return the records of some lines; `None` if they must be parsed one by one."""
        if not self._parses:
            return None
        if "\r" in text:
            text = text.removesuffix("\r").replace("\r\n", "\n")
        if not _is_in_braces(text, count) or (self._ignores and not _is_flat(text, count)):
            return None
        try:
            return self._parse(text, count)
        except MemoryError:
            raise
        except (pa.ArrowException, ValueError):
            return None

    def _parse(self, text: str, count: int) -> pa.RecordBatch | None:
        data = f"{text}\n".encode()
        table = pj.read_json(
            pa.BufferReader(data),
            read_options=pj.ReadOptions(use_threads=False, block_size=len(data) + 1),
            parse_options=pj.ParseOptions(
                explicit_schema=self._schema,
                newlines_in_values=False,
                unexpected_field_behavior="infer" if self._ignores else "error",
            ),
        )
        parsed = [column.combine_chunks() for column in table.columns]
        known, others = parsed[: len(self._schema)], parsed[len(self._schema) :]
        if table.num_rows != count or not all(map(_has_no_odd_number, parsed)):
            return None
        if all(array.null_count == count for array in known):
            return None
        arrays = list(map(_converted, self._builder.columns, known))
        if any(array is None for array in arrays):
            return None
        if others:
            self._notes.extra_columns(table.column_names[len(self._schema) :])
        return pa.record_batch(arrays, schema=self._builder.schema)


def _is_parsed(type_: DataType, *, inside: bool = False) -> bool:
    """Return whether Arrow reads values of a type as we do."""
    if type_.kind in ("ARRAY", "STRUCT"):
        return all(_is_parsed(argument, inside=True) for argument in type_.arguments)
    return type_.kind in (_AS_THEY_ARE if inside else _KINDS)


def _parsed_type(column: ColumnBuilder) -> pa.DataType:
    kind = column.field.type.kind
    if kind in _AS_TEXT:
        return pa.string()
    return pa.float64() if kind == "FLOAT" else column.type


def _is_in_braces(text: str, count: int) -> bool:
    return text[:1] == "{" and text[-1:] == "}" and text.count("}\n{") == count - 1


def _is_flat(text: str, count: int) -> bool:
    """Return whether no object can hold another one, or an array."""
    return text.count("{") == count and "[" not in text


def _converted(column: ColumnBuilder, parsed: pa.Array) -> pa.Array | None:
    """Return a column in its type; `None` if a value is missing, or out of range."""
    if parsed.null_count and not column.field.nullable:
        return None
    kind = column.field.type.kind
    if kind in _AS_TEXT:
        return column.of_sound_text(parsed)
    if kind == "DECIMAL":
        parsed.validate(full=True)
    return column.of_numbers(parsed) if kind == "FLOAT" else parsed


def _has_no_odd_number(array: pa.Array) -> bool:
    """Return whether all doubles, however deep, are finite, and no zero is negative."""
    if not pt.is_floating(array.type):
        return all(map(_has_no_odd_number, inner_arrays(array)))
    if not pc.all(pc.is_finite(array), min_count=0).as_py():
        return False
    values = array.drop_null().to_numpy()
    return not np.any(np.signbit(values) & (values == 0))
