"""Text reader: each line is a record, and becomes the value of one column.

A line ends with LF or CR LF. An empty line is a record with an empty text; a CR elsewhere is part
of the text. A last line without its end is rejected, unless the source says that its files have
none, since a file that was cut looks the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from cbp.engine.columnar.arrow_types import arrow_schema
from cbp.model.dataflow.source_options import ReadOptions
from cbp.model.flow.schema import Schema
from controller.ingest.formats.bad_lines import BadLines
from controller.ingest.formats.column_builder import OriginColumns
from controller.ingest.formats.notes import Notes
from controller.ingest.formats.text_blocks import TextBlock, check_last_line

__all__ = ["read_text"]


def read_text(
    blocks: Iterable[TextBlock],
    schema: Schema,
    options: ReadOptions,
    *,
    file: str,
    batch_rows: int,
    notes: Notes,
    bad: BadLines,
) -> Iterator[pa.RecordBatch]:
    """Yield the lines of a file in order, up to the first wrong one.

    Raises:
        FileRejectedError: `line_end`: the last line has no end.
    """
    origin, target = OriginColumns(schema, options.lines, file), arrow_schema(schema)
    (column,) = origin.others

    def build(lines: Sequence[str], numbers: Sequence[int]) -> pa.RecordBatch | None:
        return origin.batch({column.name: pa.array(lines, pa.string())}, numbers, target, bad)

    for block in blocks:
        for start in range(0, len(block.lines), batch_rows):
            lines = [line.removesuffix("\r") for line in block.lines[start : start + batch_rows]]
            first = block.first + start
            batch = bad.sound(build, lines, range(first, first + len(lines)))
            if batch is not None:
                yield batch
            for number in bad.textless():
                bad.keep_text(number, lines[number - first])
            bad.check(len(lines))
        check_last_line(block, options.lines, notes)
