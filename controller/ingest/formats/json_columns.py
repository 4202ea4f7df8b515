"""JSON lines straight to Arrow columns, where that is certainly the same as line by line.

Arrow parses a text of many lines several times as fast as Python, and makes no objects. Its result
is used only if

- each line is one object: it begins with a brace and ends with one, and there are as many objects
  as lines. A line end is in no string (Arrow refuses it there) and in no object (the brace before
  it would end an inner one, which no column takes);
- Arrow found nothing odd. It refuses what the strict way refuses: a key that stands twice or is
  unknown, a value of another type or out of range, a bare control character, half a surrogate
  pair. `tests/controller/ingest/formats/test_json_columns.py` compares them.

What Arrow would take otherwise makes the result `None`: `NaN`, and a zero with a sign (the integer
`-0` is 0). Absent: columns that need the digits of a number or other text than dates and times
(DECIMAL, FLOAT, BINARY), and nested ones. `None` means nothing but "line by line".
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from cbp.model.flow.schema import Schema
from controller.ingest.formats.column_conversion import BatchBuilder
from controller.values import INTEGER_BITS

__all__ = ["JsonColumns"]

_TEXT_MIN = 1 << 14
"""Characters from which on the start of Arrow's parser, 0.1 ms, is worth it."""

_AS_TEXT = ("DATE", "TIMESTAMP")
_KINDS = {*INTEGER_BITS, *_AS_TEXT, "STRING", "DOUBLE", "BOOLEAN"}


class JsonColumns:
    """Parses texts of one file.

    Args:
        schema: The source's.
        builder: Of the source's batches, from parsed JSON.
        text_min: Characters from which on a text is parsed here.
    """

    def __init__(self, schema: Schema, builder: BatchBuilder, *, text_min: int = _TEXT_MIN) -> None:
        self._builder, self._text_min = builder, text_min
        self._tries = all(field.type.kind in _KINDS for field in schema.fields)
        self._parsed_as = pa.schema(
            [
                (field.name, pa.string() if field.type.kind in _AS_TEXT else column.type)
                for field, column in zip(schema.fields, builder.columns, strict=True)
            ]
        )

    def batch(self, text: str, count: int) -> pa.RecordBatch | None:
        """Return the records of some lines; `None` if they are to be parsed one by one.

        Args:
            text: Whole lines; the last one without its LF.
            count: Number of them.
        """
        if not self._tries or len(text) < self._text_min:
            return None
        if not _is_in_braces(text, count):
            return None
        try:
            batch = self._parse(text, count)
        except MemoryError:
            raise
        except pa.ArrowException:
            batch = None
        # Where one text is odd, others of the file are too, and to parse them twice is slow.
        self._tries = batch is not None
        return batch

    def _parse(self, text: str, count: int) -> pa.RecordBatch | None:
        data = f"{text}\n".encode()
        table = pj.read_json(
            pa.BufferReader(data),
            read_options=pj.ReadOptions(use_threads=False, block_size=len(data) + 1),
            parse_options=pj.ParseOptions(
                explicit_schema=self._parsed_as,
                newlines_in_values=False,
                unexpected_field_behavior="error",
            ),
        )
        if table.num_rows != count:
            return None
        arrays = []
        for column, parsed in zip(self._builder.columns, table.columns, strict=True):
            array = parsed.combine_chunks()
            if column.field.type.kind in _AS_TEXT:
                array = column.of_text(array)
            if array is None or (array.null_count and not column.field.nullable):
                return None
            if column.field.type.kind == "DOUBLE" and not _is_plain(array):
                return None
            arrays.append(array)
        return pa.record_batch(arrays, schema=self._builder.schema)


def _is_in_braces(text: str, count: int) -> bool:
    """Return whether each line begins with a brace and ends with one, and there is a key."""
    ends = text[0] == "{" and text[-1] == "}" and text.count("}\n{") == count - 1
    return ends and '"' in text


def _is_plain(doubles: pa.Array) -> bool:
    """Return whether all numbers are finite and no zero has a sign."""
    if not pc.all(pc.is_finite(doubles), min_count=0).as_py():
        return False
    values = doubles.drop_null().to_numpy()
    return not np.any(np.signbit(values) & (values == 0))
