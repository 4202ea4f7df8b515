"""Columns of a file that has types of its own, as Arrow: cast only where no value can change.

Accepted: the declared type, other widths of the same kind when every value fits, and dictionaries
of it. A timestamp without a zone is accepted if the source names a zone. A column that the file
lacks is null. A column that the schema lacks is rejected unless the source ignores these. Anything
else is rejected, with the column and the row.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from cbp.engine.columnar.arrow_types import arrow_schema, arrow_type
from cbp.engine.columnar.value_limits import why_not_held
from cbp.model.flow.schema import DataType, Field, Schema
from controller.ingest.formats.bad_lines import LINES_MAX, BadLines
from controller.ingest.formats.column_builder import note_nulls, unknown_column
from controller.ingest.formats.notes import Notes
from controller.ingest.rejection import FileRejectedError
from controller.values import ValueRules, excerpt

__all__ = ["ArrowColumns"]

_WHY_MAX = 200
_NO_TEXT = "a text is not UTF-8; write UTF-8, or declare the column as BINARY"


class ArrowColumns:
    """Converts batches of a file to batches of the source's schema."""

    def __init__(self, schema: Schema, rules: ValueRules, bad: BadLines) -> None:
        self._schema, self._rules, self._bad = schema, rules, bad
        self._target = arrow_schema(schema)

    def present(self, actual: pa.Schema, notes: Notes) -> list[str]:
        """Check a file's columns; return the declared ones that it has.

        Raises:
            FileRejectedError: `column_missing`, `column_unknown` or `column_type`.
        """
        _check_columns(self._schema, actual, self._rules)
        names = self._schema.names
        notes.extra_columns(set(actual.names) - set(names))
        notes.missing = tuple(name for name in names if name not in actual.names)
        return [name for name in names if name in actual.names]

    def batch(self, part: pa.RecordBatch, lines: Sequence[int]) -> pa.RecordBatch | None:
        """Return a batch; `None` if nothing is to be yielded.

        Wrong rows are reported: `value_range`, `value_missing`, `encoding`.

        Args:
            part: Columns that `present` returned.
            lines: Number of each row, without gaps.

        Raises:
            FileRejectedError: `column_type`.
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
            raise FileRejectedError(rule="column_type", message=message, column=field.name) from exc
        except pa.ArrowInvalid:
            # A cast of a map looks at all entries in memory, those of rows that were cut off too.
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
    """Return whether all texts are UTF-8, however deep: most formats of columns do not check it.

    Raises:
        ArrowInvalid: If the column is damaged otherwise.
    """
    try:
        values.validate(full=True)
    except pa.ArrowInvalid as exc:
        if "UTF8" not in str(exc):
            raise
        return False
    return True


def _text_of(row: pa.RecordBatch) -> str:
    """Return a row as one JSON object, for people."""
    try:
        values = row.to_pylist()[0]
    except (OverflowError, ValueError):  # a time or a text that Python has not
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
    """Return a column in its declared type; fails where a value would change, or is none."""
    array = _cast(actual, target, rules)
    if why := why_not_held(array):
        raise pa.ArrowInvalid(why)
    return array


def _cast(actual: pa.Array, target: pa.DataType, rules: ValueRules) -> pa.Array:
    if actual.type == target:
        return actual
    if pt.is_timestamp(actual.type) and actual.type.tz is None and rules.zone is not UTC:
        assert rules.zone is not None, "checked by _fits"
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
            f"has none of the declared columns {excerpt(', '.join(schema.names))}; it has {has}"
        )
        raise FileRejectedError(rule="column_missing", message=message)
    unknown = next((name for name in actual.names if name not in known), None)
    if unknown is not None and not rules.ignore_unknown:
        message = unknown_column(unknown, schema.names)
        raise FileRejectedError(rule="column_unknown", message=message, column=unknown[:100])
    for field in schema.fields:
        if names[field.name] > 1:
            message = "the file has this column twice"
            raise FileRejectedError(rule="column_type", message=message, column=field.name)
        if field.name not in names:
            if not field.nullable:
                message = f"the file lacks a column that is NOT NULL; it has {has}"
                raise FileRejectedError(rule="column_missing", message=message, column=field.name)
        else:
            type_ = actual.field(field.name).type
            if not _fits(field.type, type_, rules):
                shown = str(type_)[:200]
                message = f"expected {field.type}, got {shown}{_hint(field.type, type_, rules)}"
                raise FileRejectedError(rule="column_type", message=message, column=field.name)


def _hint(declared: DataType, actual: pa.DataType, rules: ValueRules) -> str:
    if not _fits(declared, actual, replace(rules, zone=UTC)):
        return ""
    return (
        ", times without a zone; write them with one, or name it in the source: "
        'options: {timezone: "UTC"}'
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
        return _is_list(actual) and inner(declared.arguments[0], actual.value_type)
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


def _is_text(actual: pa.DataType) -> bool:
    return bool(pt.is_string(actual) or pt.is_large_string(actual) or pt.is_string_view(actual))


def _is_bytes(actual: pa.DataType) -> bool:
    kinds = (pt.is_binary, pt.is_large_binary, pt.is_fixed_size_binary, pt.is_binary_view)
    return any(kind(actual) for kind in kinds)


def _is_list(actual: pa.DataType) -> bool:
    return bool(pt.is_list(actual) or pt.is_large_list(actual) or pt.is_fixed_size_list(actual))


_SAME_KIND: dict[str, Callable[[pa.DataType], bool]] = {
    "STRING": _is_text,
    "BIGINT": pt.is_integer,
    "INT": pt.is_integer,
    "SMALLINT": pt.is_integer,
    "TINYINT": pt.is_integer,
    "DOUBLE": pt.is_floating,
    "FLOAT": lambda actual: bool(pt.is_float32(actual) or pt.is_float16(actual)),
    "BOOLEAN": pt.is_boolean,
    "BINARY": _is_bytes,
    "DATE": pt.is_date32,
    "TIMESTAMP": pt.is_timestamp,
    "DECIMAL": pt.is_decimal,
}
