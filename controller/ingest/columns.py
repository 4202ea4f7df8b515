"""Columns of a batch: many values to one Arrow array, or the first value that is wrong.

Values are converted in bulk where that is exact for certain, and one by one
otherwise; the bulk way accepts nothing that `values` would reject and gives the
same result (tests/controller/ingest/test_columns.py compares them).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cbp.engine.arrow import arrow_schema, arrow_type
from cbp.model.schema import Field, Schema
from controller.ingest.rejection import FileRejectedError
from controller.values import INTEGER_BITS, Converter, from_json, from_text

__all__ = ["BatchBuilder", "ColumnBuilder", "check_not_null"]

_NONE = type(None)
_EXACT_TYPES: dict[str, set[type]] = {
    **{kind: {int, _NONE} for kind in INTEGER_BITS},
    "STRING": {str, _NONE},
    "DOUBLE": {float, _NONE},
    "BOOLEAN": {bool, _NONE},
}
# Arrow knows a year 0 and other spellings: what is not plain goes the exact way.
_DAY = "[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}"
_TEXT_PATTERNS = {
    **dict.fromkeys(INTEGER_BITS, r"\A-?[0-9]+\z"),
    "DOUBLE": r"\A-?[0-9]+(\.[0-9]+)?\z",
    "BOOLEAN": r"\A(true|false)\z",
    "DATE": rf"\A{_DAY}\z",
    "TIMESTAMP": rf"\A{_DAY}[T ][0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(\.[0-9]{{1,6}})?Z\z",
}


class ColumnBuilder:
    """Builds the arrays of one column.

    Args:
        text: Whether values are CSV cells; otherwise they are parsed JSON.
    """

    def __init__(self, field: Field, *, text: bool) -> None:
        self.field = field
        self.type = arrow_type(field.type)
        self._kind = field.type.kind
        self._one: Converter = (from_text if text else from_json)(field.type)
        self._bulk: Callable[[Sequence[Any]], pa.Array | None] = (
            self._bulk_text if text else self._bulk_json
        )

    def array(self, values: Sequence[Any], lines: Sequence[int]) -> pa.Array:
        """Return the values as one array; null where a value is `None`.

        Raises:
            FileRejectedError: `value_type` or `value_missing`, with line and column.
        """
        try:
            array = self._bulk(values)
        except (pa.ArrowException, ValueError, OverflowError):
            array = None
        if array is None:
            array = self._exact(values, lines)
        check_not_null(self.field, array, lines)
        return array

    def _exact(self, values: Sequence[Any], lines: Sequence[int]) -> pa.Array:
        converted = []
        for value, line in zip(values, lines, strict=True):
            try:
                converted.append(None if value is None else self._one(value))
            except ValueError as exc:
                raise FileRejectedError(
                    rule="value_type", message=str(exc), line=line, column=self.field.name
                ) from exc
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
        text = pa.array(values, type=pa.string())
        if self._kind == "STRING":
            return text
        pattern = _TEXT_PATTERNS.get(self._kind)
        if pattern is None or not pc.all(pc.match_substring_regex(text, pattern)).as_py():
            return None
        array = text.cast(self.type)
        if self._kind == "DOUBLE" and not pc.all(pc.is_finite(array)).as_py():
            return None
        return array


def check_not_null(field: Field, array: pa.Array, lines: Sequence[int]) -> None:
    """Raise `value_missing` at the first null of a column that is NOT NULL."""
    if field.nullable or not array.null_count:
        return
    at = pc.index(array.is_null(), pa.scalar(value=True)).as_py()
    message = f"expected {field.type} NOT NULL, got nothing"
    raise FileRejectedError(
        rule="value_missing", message=message, line=lines[at], column=field.name
    )


class BatchBuilder:
    """Builds record batches with a flow's schema."""

    def __init__(self, schema: Schema, *, text: bool) -> None:
        self.schema = arrow_schema(schema)
        self.columns = [ColumnBuilder(field, text=text) for field in schema.fields]

    def batch(self, values: Sequence[Sequence[Any]], lines: Sequence[int]) -> pa.RecordBatch:
        """Return one batch.

        Args:
            values: Per column of the schema, in its order.
            lines: Line of each row.

        Raises:
            FileRejectedError: Of the earliest line that is wrong.
        """
        arrays, earliest = [], None
        for column, column_values in zip(self.columns, values, strict=True):
            try:
                arrays.append(column.array(column_values, lines))
            except FileRejectedError as error:
                if earliest is None or (error.line or 0) < (earliest.line or 0):
                    earliest = error
        if earliest is not None:
            raise earliest
        return pa.record_batch(arrays, schema=self.schema)
