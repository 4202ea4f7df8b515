"""The columns of a source's schema, from text, from parsed JSON, and from files with types.

Text and JSON (`ColumnBuilder`) are converted in bulk where that is certainly exact, and one by one
otherwise. The bulk conversion accepts nothing that `value_conversion` would reject, and gives the
same result (tests/controller/ingest/formats/test_column_builder.py compares them).

Arrow columns (`ArrowColumns`) are cast only where no value can change. Accepted: the declared type,
other widths of the same kind when every value fits, and dictionaries of it; a timestamp without a
zone, if the source names a zone. A column that the file lacks is null. A column that the schema
lacks is rejected unless the source ignores these. Anything else is rejected, with column and row.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC
from difflib import get_close_matches
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from cbp.engine.columnar.arrow_types import arrow_schema, arrow_type
from cbp.engine.columnar.value_limits import why_not_held
from cbp.errors.message_limits import listed, shortened
from cbp.model.flow.schema import DataType, Field, Schema
from cbp.model.source.options import LineOptions
from controller.ingest.formats.bad_lines import LINES_MAX, BadLines, Reading
from controller.ingest.rejection import FileRejectedError
from controller.value_conversion import (
    INTEGER_BITS,
    STRICT,
    Converter,
    ValueRules,
    excerpt,
    from_json,
    from_text,
)

_NONE = type(None)
_COLUMN = re.compile(r"[A-Za-z_][A-Za-z_0-9]{0,62}")
_COLUMNS_LENGTH_MAX = 150
"""Most characters of a list of columns; after a longer list `BadLines` would cut the advice."""
_EXACT_TYPES: dict[str, set[type]] = {
    **{kind: {int, _NONE} for kind in INTEGER_BITS},
    "STRING": {str, _NONE},
    "DOUBLE": {float, _NONE},
    "BOOLEAN": {bool, _NONE},
}
# Arrow also reads other spellings, such as 0x1f, inf and a date for a time, and a year 0. Values
# with another character, or of another form, are converted one by one.
_CHARACTERS = {
    **dict.fromkeys(INTEGER_BITS, b"-0123456789"),
    **dict.fromkeys(("DOUBLE", "FLOAT", "DECIMAL"), b"-.0123456789"),
}
_DAY = "[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}"
_MOMENT = rf"{_DAY}[T ][0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(\.[0-9]{{1,6}})?"
_TEXT_PATTERNS = {"BOOLEAN": "(true|false)", "DATE": _DAY, "TIMESTAMP": f"{_MOMENT}Z"}


class ColumnBuilder:
    """Builds the arrays of one column from CSV cells (`text`) or from parsed JSON."""

    def __init__(self, field: Field, rules: ValueRules = STRICT, *, text: bool) -> None:
        self.field, self._rules = field, rules
        self.type = arrow_type(field.type)
        self._kind = field.type.kind
        self._one: Converter = (from_text if text else from_json)(field.type, rules)
        self._bulk: Callable[[Sequence[Any]], pa.Array | None] = (
            self._bulk_text if text else self._bulk_json
        )

    def array(self, values: Sequence[Any], lines: Sequence[int], bad: BadLines) -> pa.Array | None:
        """Return the values as one array; `None` if one is wrong; `bad` notes its line."""
        try:
            array = self._bulk(values)
        except MemoryError:
            raise
        except (pa.ArrowException, ValueError, OverflowError):
            array = None
        if array is None:
            array = self._exact(values, lines, bad)
        if array is None or not note_nulls(self.field, array, lines, bad):
            return None
        return array

    def _exact(self, values: Sequence[Any], lines: Sequence[int], bad: BadLines) -> pa.Array | None:
        converted, wrong = [], 0
        for value, line in zip(values, lines, strict=True):
            try:
                converted.append(None if value is None else self._one(value))
            except ValueError as exc:
                bad.add("value_type", str(exc), line=line, column=self.field.name)
                wrong += 1
            if value is None and not self.field.nullable:
                bad.add("value_missing", _nothing(self.field), line=line, column=self.field.name)
                wrong += 1
            if wrong == LINES_MAX:
                break
        if wrong:
            return None
        return pa.array(converted, type=self.type)

    def _bulk_json(self, values: Sequence[Any]) -> pa.Array | None:
        if self._kind in ("DATE", "TIMESTAMP"):
            return self._bulk_text(values) if set(map(type, values)) <= {str, _NONE} else None
        exact = _EXACT_TYPES.get(self._kind)
        if exact is None or not set(map(type, values)) <= exact:
            return None
        if self._kind == "DOUBLE" and not all(v is None or math.isfinite(v) for v in values):
            return None
        return pa.array(values, type=self.type)

    def _bulk_text(self, values: Sequence[Any]) -> pa.Array | None:
        return self.of_text(pa.array(values, type=pa.string()))

    def of_text(self, text: pa.Array) -> pa.Array | None:
        """Return strings as one array; `None` if they must be converted one by one."""
        if self._kind == "STRING":
            return text
        if characters := _CHARACTERS.get(self._kind):
            if _bytes(text).translate(None, characters):
                return None
            is_real = self._kind in ("DOUBLE", "FLOAT")
            return self.of_numbers(text.cast(pa.float64())) if is_real else text.cast(self.type)
        if self._kind == "TIMESTAMP" and self._rules.zone is UTC and _are(text, _MOMENT):
            return text.cast(pa.timestamp("us")).cast(self.type)
        pattern = _TEXT_PATTERNS.get(self._kind)
        return text.cast(self.type) if pattern and _are(text, pattern) else None

    def of_sound_text(self, text: pa.Array) -> pa.Array:
        """Return strings as one array; raises if a value may be wrong: `array` finds out which."""
        try:
            array = self.of_text(text)
        except pa.ArrowException:
            array = None
        if array is None:
            values = text.to_pylist()
            array = pa.array([None if v is None else self._one(v) for v in values], type=self.type)
        return array

    def of_numbers(self, numbers: pa.Array) -> pa.Array | None:
        """Return doubles in this column's type; `None` if one is infinite or not a number."""
        array = numbers.cast(self.type, safe=False)
        return array if _all(pc.is_finite(array)) else None


def _bytes(text: pa.Array) -> bytes:
    """Return the characters of all strings of an array, one string after the other."""
    _, ends, data = text.buffers()
    if not len(text) or data is None:
        return b""
    first, last = np.frombuffer(ends, np.int32)[[text.offset, text.offset + len(text)]].tolist()
    return bytes(memoryview(data)[first:last])


def _all(tests: pa.Array) -> bool:
    """Return whether no value is false; a null does not count as false."""
    return bool(pc.all(tests, min_count=0).as_py())


def _are(text: pa.Array, pattern: str) -> bool:
    return _all(pc.match_substring_regex(text, rf"\A{pattern}\z"))


def note_nulls(field: Field, array: pa.Array, lines: Sequence[int], bad: BadLines) -> bool:
    """Report nulls of a NOT NULL column to `bad`; return whether there are none."""
    if field.nullable or not array.null_count:
        return True
    for at in pc.indices_nonzero(array.is_null())[:LINES_MAX].to_pylist():
        bad.add("value_missing", _nothing(field), line=lines[at], column=field.name)
    return False


def _nothing(field: Field) -> str:
    return f"expected {field.type} NOT NULL, got no value"


def unknown_column(name: str, columns: Sequence[str]) -> str:
    """Return the message for a key or column that the schema lacks."""
    near = get_close_matches(name[:50].lower(), [column.lower() for column in columns[:200]], 1)
    meant = next((f" (did you mean {c!r}?)" for c in columns if near and c.lower() == near[0]), "")
    spelled = name if _COLUMN.fullmatch(name) else "NAME"
    has = shortened(listed([*columns]), _COLUMNS_LENGTH_MAX)
    return (
        f"{excerpt(name)} is not a column of the schema, which has {has}{meant}. "
        f"To take in this column, add `{spelled} TYPE` to the source's schema and register "
        "the new version (`cbp infer FILE` prints the type). To ignore columns that the schema "
        'lacks, declare options: {unknown: "ignore"} in the source; with {unknown: "add"} the '
        "service adds such columns to the schema"
    )


def refuse_column(name: str, line: int, reading: Reading) -> None:
    """Note a column that the schema lacks; raise `column_unknown` if the source adds it."""
    bad = reading.bad
    if bad.rejects_rows and reading.options.rules.add_unknown:
        message = unknown_column(name, reading.schema.names)
        raise FileRejectedError("column_unknown", message, line=line)
    if bad.wants(line):
        bad.add("column_unknown", unknown_column(name, reading.schema.names), line=line)


class BatchBuilder:
    """Builds record batches with a flow's schema."""

    def __init__(self, schema: Schema, rules: ValueRules = STRICT, *, text: bool) -> None:
        self.schema = arrow_schema(schema)
        self.columns = [ColumnBuilder(field, rules, text=text) for field in schema.fields]

    def batch(
        self, values: Sequence[Sequence[Any]], lines: Sequence[int], bad: BadLines
    ) -> pa.RecordBatch | None:
        """Return a batch of each column's values; `None` if a row is wrong; `bad` notes it."""
        arrays = [
            column.array(column_values, lines, bad)
            for column, column_values in zip(self.columns, values, strict=True)
        ]
        if any(array is None for array in arrays):
            return None
        return pa.record_batch(arrays, schema=self.schema)


class OriginColumns:
    r"""Columns for the origin of a record; the options `file_name` and `line_number` name them."""

    def __init__(self, schema: Schema, options: LineOptions, file: str) -> None:
        self._file_name, self._line_number = options.file_name, options.line_number
        self._file = file.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        self.others: tuple[Field, ...] = tuple(
            field
            for field in schema.fields
            if field.name not in (options.file_name, options.line_number)
        )
        self._numbers = (
            ColumnBuilder(schema[options.line_number], text=False) if options.line_number else None
        )
        self._names = schema.names

    def batch(
        self,
        arrays: dict[str, pa.Array | None],
        numbers: Sequence[int],
        schema: pa.Schema,
        bad: BadLines,
    ) -> pa.RecordBatch | None:
        """Return a batch of these columns and of arrays for `others`; `None` if a row is wrong."""
        if self._file_name:
            names = pa.repeat(pa.scalar(self._file, pa.string()), len(numbers))
            arrays[self._file_name] = names
        if self._numbers is not None:
            arrays[self._line_number] = self._numbers.array(numbers, numbers, bad)
        ordered = [arrays[name] for name in self._names]
        if any(array is None for array in ordered):
            return None
        return pa.record_batch(ordered, schema=schema)


_WHY_MAX = 200
_NO_TEXT = "a string is not UTF-8; write UTF-8, or declare the column as BINARY"


class ArrowColumns:
    """Converts batches of a file to batches of the source's schema."""

    def __init__(self, reading: Reading) -> None:
        self._schema, self._rules = reading.schema, reading.options.rules
        self._bad, self._notes = reading.bad, reading.notes
        self._target = arrow_schema(reading.schema)

    def present(self, actual: pa.Schema) -> list[str]:
        """Return the declared columns that a file has; raises a `column_...` rule."""
        _check_columns(self._schema, actual, self._rules)
        names = self._schema.names
        self._notes.extra_columns(set(actual.names) - set(names))
        self._notes.missing = tuple(name for name in names if name not in actual.names)
        return [name for name in names if name in actual.names]

    def batch(self, part: pa.RecordBatch, lines: Sequence[int]) -> pa.RecordBatch | None:
        """Return a batch of the columns of `present`; `None` if there is nothing to yield.

        Wrong rows are reported (`value_range`, `value_missing`, `encoding`). `lines` has the number
        of each row, without gaps. Raises `column_type`.
        """

        def build(rows: Sequence[int], numbers: Sequence[int]) -> pa.RecordBatch | None:
            some = part if len(rows) == part.num_rows else part.take(pa.array(rows, pa.int64()))
            arrays = [self._column(some, field, numbers) for field in self._schema.fields]
            if any(array is None for array in arrays):
                return None
            return pa.record_batch(arrays, schema=self._target)

        batch = self._bad.sound(build, range(part.num_rows), lines)
        for line in self._bad.textless():
            self._bad.keep_text(line, _text_of(part.slice(line - lines[0], 1)))
        return batch

    def _column(self, part: pa.RecordBatch, field: Field, lines: Sequence[int]) -> pa.Array | None:
        target = arrow_type(field.type)
        if field.name not in part.schema.names:
            return pa.nulls(part.num_rows, target)
        values = part.column(field.name)
        if not _is_all_text(values):
            self._note_texts(values, field, target, lines)
            return None
        try:
            array = _converted(values, target, self._rules)
        except pa.ArrowNotImplementedError as exc:
            message = f"expected {field.type}, got {values.type}"
            raise FileRejectedError("column_type", message, column=field.name) from exc
        except pa.ArrowInvalid:
            # A cast of a map examines all entries in memory, even those of rows that were cut off.
            values = values.take(pa.array(range(len(values)), pa.int64()))
            try:
                array = _converted(values, target, self._rules)
            except pa.ArrowInvalid as exc:
                self._note_rows(values, field, target, lines, exc)
                return None
        return array if note_nulls(field, array, lines, self._bad) else None

    def _note_texts(
        self, values: pa.Array, field: Field, target: pa.DataType, lines: Sequence[int]
    ) -> None:
        """Report the rows that hold a text which is not UTF-8."""
        noted = 0
        for at, line in enumerate(lines):
            # In the declared type, as a dictionary holds the texts of other rows, too.
            if not _is_all_text(_cast(values.take(pa.array([at])), target, self._rules)):
                self._bad.add("encoding", _NO_TEXT, line=line, column=field.name)
                noted += 1
                if noted == LINES_MAX:
                    return

    def _note_rows(
        self,
        actual: pa.Array,
        field: Field,
        target: pa.DataType,
        lines: Sequence[int],
        error: Exception,
    ) -> None:
        """Report the rows that do not fit; if each row fits alone, report the first one."""
        cause, noted = excerpt(str(error)), 0
        for at, line in enumerate(lines):
            one = actual.take(pa.array([at], pa.int64()))
            try:
                _converted(one, target, self._rules)
            except pa.ArrowInvalid as exc:
                shown = excerpt(_text_of_value(one))
                why = str(exc)[:_WHY_MAX]
                message = (
                    f"expected {field.type}, got {shown} ({actual.type}), which does not fit: {why}"
                )
                self._bad.add("value_range", message, line=line, column=field.name, cause=cause)
                noted += 1
                if noted == LINES_MAX:
                    return
        if not noted:
            message = f"expected {field.type}, got a value ({actual.type}) that does not fit"
            self._bad.add("value_range", message, line=lines[0], column=field.name, cause=cause)


def _is_all_text(values: pa.Array) -> bool:
    """Return whether all texts are UTF-8, however deep: most columnar formats do not check it.

    Raises `ArrowInvalid` if the column is damaged otherwise.
    """
    try:
        values.validate(full=True)
    except pa.ArrowInvalid as exc:
        if "UTF8" not in str(exc):
            raise
        return False
    return True


def _text_of(row: pa.RecordBatch) -> str:
    try:
        values = row.to_pylist()[0]
    except (OverflowError, ValueError):  # a time that Python cannot represent
        names = row.schema.names
        values = {name: _text_of_value(row.column(name)) for name in names}
    return json.dumps(values, ensure_ascii=False, default=str)


def _text_of_value(one: pa.Array) -> str:
    """Return the only value of an array for people, as Arrow shows it if Python cannot."""
    try:
        return str(one[0])
    except (OverflowError, ValueError):
        return " ".join(one.to_string().split())


def _converted(actual: pa.Array, target: pa.DataType, rules: ValueRules) -> pa.Array:
    """Return a column in its declared type; fails where a value would change or does not fit."""
    array = _cast(actual, target, rules)
    if why := why_not_held(array):
        raise pa.ArrowInvalid(why)
    return array


def _cast(actual: pa.Array, target: pa.DataType, rules: ValueRules) -> pa.Array:
    if actual.type == target:
        return actual
    if pt.is_timestamp(actual.type) and actual.type.tz is None and rules.zone is not UTC:
        assert rules.zone is not None, "a time without a zone passed _fits, but no zone is declared"
        if isinstance(rules.zone, ZoneInfo):
            actual = pc.assume_timezone(actual, rules.zone.key)
        else:
            exact = actual.cast(pa.timestamp("us"), safe=True)
            actual = pc.subtract_checked(exact, pa.scalar(rules.zone.utcoffset(None)))
    return actual.cast(target, safe=True)


def _check_columns(schema: Schema, actual: pa.Schema, rules: ValueRules) -> None:
    names, known = Counter(actual.names), set(schema.names)
    has = excerpt(", ".join(actual.names[:100]))
    if not names.keys() & known:
        message = (
            f"the file has none of the declared columns {excerpt(', '.join(schema.names))}; it "
            f"has the columns {has}"
        )
        raise FileRejectedError("column_missing", message)
    unknown = next((name for name in actual.names if name not in known), None)
    if unknown is not None and not rules.ignore_unknown:
        message = unknown_column(unknown, schema.names)
        raise FileRejectedError("column_unknown", message, column=unknown[:100])
    for field in schema.fields:
        if names[field.name] > 1:
            message = "the file has this column more than once"
            raise FileRejectedError("column_type", message, column=field.name)
        if field.name not in names:
            if not field.nullable:
                message = (
                    f"the file lacks this column, which is NOT NULL; the file has the columns {has}"
                )
                raise FileRejectedError("column_missing", message, column=field.name)
        else:
            type_ = actual.field(field.name).type
            if not _fits(field.type, type_, rules):
                shown = str(type_)[:200]
                message = f"expected {field.type}, got {shown}{_hint(field.type, type_, rules)}"
                raise FileRejectedError("column_type", message, column=field.name)


def _hint(declared: DataType, actual: pa.DataType, rules: ValueRules) -> str:
    if not _fits(declared, actual, replace(rules, zone=UTC)):
        return ""
    return (
        ", which is a time without a zone; write times with a zone, or name the zone in the "
        'source: options: {timezone: "UTC"}'
    )


def _fits(declared: DataType, actual: pa.DataType, rules: ValueRules, *, top: bool = True) -> bool:
    """Return whether a column of this Arrow type may hold values of the declared type."""

    def inner(declared: DataType, actual: pa.DataType) -> bool:
        return _fits(declared, actual, rules, top=False)

    if pt.is_null(actual):
        return True
    if pt.is_dictionary(actual):
        return inner(declared, actual.value_type)
    if isinstance(actual, pa.BaseExtensionType):  # such as a UUID, or JSON
        return inner(declared, actual.storage_type)
    if declared.kind == "ARRAY":
        lists = (pt.is_list(actual), pt.is_large_list(actual), pt.is_fixed_size_list(actual))
        return any(lists) and inner(declared.arguments[0], actual.value_type)
    if declared.kind == "MAP":
        return (
            pt.is_map(actual)
            and inner(declared.arguments[0], actual.key_type)
            and inner(declared.arguments[1], actual.item_type)
        )
    if declared.kind == "STRUCT":
        return (
            pt.is_struct(actual)
            and all(
                actual.get_field_index(name) >= 0 and inner(type_, actual.field(name).type)
                for name, type_ in zip(declared.names, declared.arguments, strict=True)
            )
            and (rules.ignore_unknown or actual.num_fields == len(declared.names))
        )
    if declared.kind == "TIMESTAMP" and pt.is_timestamp(actual) and actual.tz is None:
        return rules.zone is UTC or (top and rules.zone is not None)
    return _SAME_KIND[declared.kind](actual)


def _any_of(*kinds: Callable[[pa.DataType], bool]) -> Callable[[pa.DataType], bool]:
    return lambda actual: any(kind(actual) for kind in kinds)


_SAME_KIND: dict[str, Callable[[pa.DataType], bool]] = {
    "STRING": _any_of(pt.is_string, pt.is_large_string, pt.is_string_view),
    **dict.fromkeys(INTEGER_BITS, pt.is_integer),
    "DOUBLE": pt.is_floating,
    "FLOAT": _any_of(pt.is_float32, pt.is_float16),
    "BOOLEAN": pt.is_boolean,
    "BINARY": _any_of(pt.is_binary, pt.is_large_binary, pt.is_fixed_size_binary, pt.is_binary_view),
    "DATE": pt.is_date32,
    "TIMESTAMP": pt.is_timestamp,
    "DECIMAL": pt.is_decimal,
}
