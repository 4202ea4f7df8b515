"""Converts the values of a column to one Arrow array, or reports the wrong values.

Values are converted in bulk where that is certainly exact, and one by one otherwise. The bulk
conversion accepts nothing that `values` would reject, and gives the same result
(tests/controller/ingest/formats/test_column_builder.py compares them).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC
from difflib import get_close_matches
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cbp.engine.columnar.arrow_types import arrow_schema, arrow_type
from cbp.model.dataflow.source_options import LineOptions
from cbp.model.flow.schema import Field, Schema
from controller.ingest.formats.bad_lines import LINES_MAX, BadLines
from controller.values import (
    INTEGER_BITS,
    STRICT,
    Converter,
    ValueRules,
    excerpt,
    from_json,
    from_text,
)

__all__ = [
    "BatchBuilder",
    "ColumnBuilder",
    "OriginColumns",
    "note_nulls",
    "unknown_column",
]

_NONE = type(None)
_COLUMN = re.compile(r"[A-Za-z_][A-Za-z_0-9]{0,62}")
_EXACT_TYPES: dict[str, set[type]] = {
    **{kind: {int, _NONE} for kind in INTEGER_BITS},
    "STRING": {str, _NONE},
    "DOUBLE": {float, _NONE},
    "BOOLEAN": {bool, _NONE},
}
# Arrow also reads other spellings, such as 0x1f, inf and a date for a time, and a year 0. What has
# another character, or another form, is converted one by one.
_CHARACTERS = {
    **dict.fromkeys(INTEGER_BITS, b"-0123456789"),
    **dict.fromkeys(("DOUBLE", "FLOAT", "DECIMAL"), b"-.0123456789"),
}
_DAY = "[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}"
_MOMENT = rf"{_DAY}[T ][0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(\.[0-9]{{1,6}})?"
_TEXT_PATTERNS = {
    "BOOLEAN": "(true|false)",
    "DATE": _DAY,
    "TIMESTAMP": f"{_MOMENT}Z",
}


class ColumnBuilder:
    """Builds the arrays of one column.

    Args:
        text: Whether values are CSV cells; otherwise they are parsed JSON.
    """

    def __init__(self, field: Field, rules: ValueRules = STRICT, *, text: bool) -> None:
        self.field, self._rules = field, rules
        self.type = arrow_type(field.type)
        self._kind = field.type.kind
        self._one: Converter = (from_text if text else from_json)(field.type, rules)
        self._bulk: Callable[[Sequence[Any]], pa.Array | None] = (
            self._bulk_text if text else self._bulk_json
        )

    def array(self, values: Sequence[Any], lines: Sequence[int], bad: BadLines) -> pa.Array | None:
        """Return the values as one array; null where a value is `None`.

        Returns `None` if a value is wrong; `bad` then has the lines, as `value_type` or
        `value_missing`.
        """
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
        """Return strings as one array, or `None` if they have to be converted one by one.

        Raises:
            pa.ArrowException: The same.
        """
        if self._kind == "STRING":
            return text
        if characters := _CHARACTERS.get(self._kind):
            return None if _bytes(text).translate(None, characters) else self._number(text)
        if self._kind == "TIMESTAMP" and self._rules.zone is UTC and _are(text, _MOMENT):
            return text.cast(pa.timestamp("us")).cast(self.type)
        pattern = _TEXT_PATTERNS.get(self._kind)
        return text.cast(self.type) if pattern and _are(text, pattern) else None

    def of_sound_text(self, text: pa.Array) -> pa.Array:
        """Return strings as one array.

        Raises:
            pa.ArrowException, ValueError: A value may be wrong; which one, `array` says.
        """
        try:
            array = self.of_text(text)
        except pa.ArrowException:
            array = None
        if array is None:
            values = text.to_pylist()
            array = pa.array([None if v is None else self._one(v) for v in values], type=self.type)
        return array

    def of_numbers(self, numbers: pa.Array) -> pa.Array | None:
        """Return doubles in this column's type; `None` if one of them is infinite or none."""
        array = numbers.cast(self.type, safe=False)
        return array if _all(pc.is_finite(array)) else None

    def _number(self, text: pa.Array) -> pa.Array | None:
        if self._kind in ("DOUBLE", "FLOAT"):
            return self.of_numbers(text.cast(pa.float64()))
        return text.cast(self.type)


def _bytes(text: pa.Array) -> bytes:
    """Return the characters of all strings of an array, one string behind the other."""
    _, ends, data = text.buffers()
    if not len(text) or data is None:
        return b""
    first, last = np.frombuffer(ends, np.int32)[[text.offset, text.offset + len(text)]].tolist()
    return bytes(memoryview(data)[first:last])


def _all(tests: pa.Array) -> bool:
    """Return whether no value is false; nulls are not."""
    return bool(pc.all(tests, min_count=0).as_py())


def _are(text: pa.Array, pattern: str) -> bool:
    return _all(pc.match_substring_regex(text, rf"\A{pattern}\z"))


def note_nulls(field: Field, array: pa.Array, lines: Sequence[int], bad: BadLines) -> bool:
    """Report the nulls of a column that is NOT NULL to `bad`; return whether there are none."""
    if field.nullable or not array.null_count:
        return True
    for at in pc.indices_nonzero(array.is_null())[:LINES_MAX].to_pylist():
        bad.add("value_missing", _nothing(field), line=lines[at], column=field.name)
    return False


def _nothing(field: Field) -> str:
    return f"expected {field.type} NOT NULL, got nothing"


def unknown_column(name: str, columns: Sequence[str]) -> str:
    """Return the message for a key or column that the schema lacks."""
    near = get_close_matches(name[:50].lower(), [column.lower() for column in columns[:200]], 1)
    meant = next((f"; is it {c!r}?" for c in columns if near and c.lower() == near[0]), "")
    return (
        f"{excerpt(name)} is no column of the schema, which has {_listed(columns)}{meant}. "
        f"To take it in, add `{_spelled(name)} TYPE` to the source's schema and register the new "
        "version (`cbp infer FILE` prints the type). To leave out what the schema lacks, say "
        'options: {unknown: "ignore"} in the source'
    )


def _spelled(name: str) -> str:
    """Return a column's name as a schema has it, or a placeholder."""
    return name if _COLUMN.fullmatch(name) else "NAME"


def _listed(names: Sequence[str]) -> str:
    text = ", ".join(names[:20])
    return f"{text[:200]}, ..." if len(names) > 20 or len(text) > 200 else text


class BatchBuilder:
    """Builds record batches with a flow's schema."""

    def __init__(self, schema: Schema, rules: ValueRules = STRICT, *, text: bool) -> None:
        self.schema = arrow_schema(schema)
        self.columns = [ColumnBuilder(field, rules, text=text) for field in schema.fields]

    def batch(
        self, values: Sequence[Sequence[Any]], lines: Sequence[int], bad: BadLines
    ) -> pa.RecordBatch | None:
        """Return one batch, or `None` if a row is wrong; `bad` then has the lines.

        Args:
            values: Per column of the schema, in its order.
            lines: Line of each row.
            bad: Collects the wrong lines.
        """
        arrays = [
            column.array(column_values, lines, bad)
            for column, column_values in zip(self.columns, values, strict=True)
        ]
        if any(array is None for array in arrays):
            return None
        return pa.record_batch(arrays, schema=self.schema)


class OriginColumns:
    r"""Columns that say where a record comes from: `file_name` and `line_number` name them.

    Args:
        schema: The source's.
        options: The source's.
        file: Name of the file as it was dropped; bytes that are not UTF-8 become `\xff`.
    """

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
        """Return a batch of `arrays` by column and of these columns.

        Args:
            arrays: One for each of `others`; `None` where a value is wrong.
            numbers: Line of each row.
            schema: The source's.
            bad: Collects line numbers that the column cannot hold.

        Returns:
            `None` if a row is wrong.
        """
        if self._file_name:
            names = pa.repeat(pa.scalar(self._file, pa.string()), len(numbers))
            arrays[self._file_name] = names
        if self._numbers is not None:
            arrays[self._line_number] = self._numbers.array(numbers, numbers, bad)
        ordered = [arrays[name] for name in self._names]
        if any(array is None for array in ordered):
            return None
        return pa.record_batch(ordered, schema=schema)
