"""Columns that say where a record comes from: the name of its file, the number of its line."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from cbp.model.dataflow.source_options import LineOptions
from cbp.model.flow.schema import Field, Schema
from controller.ingest.formats.bad_lines import BadLines
from controller.ingest.formats.column_conversion import ColumnBuilder

__all__ = ["OriginColumns"]


class OriginColumns:
    r"""Fills the columns that the options `file_name` and `line_number` name.

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
