"""CSV records straight to Arrow columns, where that is certainly the same as record by record.

Arrow's parser takes a block of records several times as fast as Python's. It refuses a record of
another width, as the strict way does. Such a block is read record by record, which names the line.
So is a block of which Arrow cannot promise the same:

    text behind a closing quote,       Arrow takes both for a part of the cell
    a quote inside an unquoted cell
    a quote that is still open         the record goes on in the next block
    CR without LF                      a line end for Arrow
    a blank line                       Arrow passes over it, or finds a cell, as its options say
    U+FEFF at the begin of a block     Arrow takes it for the mark of a file
    a delimiter or a quote beyond ASCII

All cells are read as text, since Arrow takes more for a number than we do (0x1f, blanks around it).
`tests/controller/ingest/formats/test_csv_columns.py` has each of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.csv as pv

from cbp.model.dataflow.source_options import CsvOptions
from controller.ingest.formats.column_builder import BatchBuilder

__all__ = ["CsvColumns"]

_LF, _CR = b"\n\r"


class CsvColumns:
    """Parses blocks of one file.

    Args:
        options: The source's.
        builder: Of the source's batches, from text.
        places: Position in the file of each declared column; `None` for one that it lacks.
        width: Number of the file's columns.
    """

    def __init__(
        self, options: CsvOptions, builder: BatchBuilder, places: Sequence[int | None], width: int
    ) -> None:
        self._options, self._builder, self._places = options, builder, places
        self._parses = options.delimiter.isascii() and options.quote.isascii()
        names = [str(at) for at in range(width)]
        present = [names[at] for at in places if at is not None]
        self._names = names
        self._convert = pv.ConvertOptions(
            check_utf8=False,
            column_types=dict.fromkeys(present, pa.string()),
            null_values=[options.null],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            include_columns=present,
        )

    def batch(self, text: str) -> pa.RecordBatch | None:
        """Return the records of some lines; `None` if they are to be read one by one.

        Args:
            text: Whole lines, the first of which begins a record; the last one without its LF.
        """
        data = f"{text}\n".encode()
        quote = self._options.quote.encode()
        quoted = bool(quote) and quote in data
        if not self._parses or not _has_plain_lines(data):
            return None
        if quoted and not _has_plain_quotes(data, ord(quote), ord(self._options.delimiter)):
            return None
        try:
            return self._parse(data, quoted=quoted)
        except MemoryError:
            raise
        except (pa.ArrowException, ValueError):
            return None

    def _parse(self, data: bytes, *, quoted: bool) -> pa.RecordBatch | None:
        table = pv.read_csv(
            pa.BufferReader(data),
            pv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=self._names),
            pv.ParseOptions(
                delimiter=self._options.delimiter,
                quote_char=self._options.quote if quoted else False,
                newlines_in_values=quoted,
                ignore_empty_lines=False,
            ),
            self._convert,
        )
        arrays = list[pa.Array]()
        for column, at in zip(self._builder.columns, self._places, strict=True):
            if at is None:
                array = pa.nulls(table.num_rows, column.type)
            else:
                array = column.of_sound_text(table[str(at)].combine_chunks())
            if array.null_count and not column.field.nullable:
                return None
            arrays.append(array)
        return pa.record_batch(arrays, schema=self._builder.schema)


def _has_plain_lines(data: bytes) -> bool:
    """Return whether no line is blank, and an LF follows each CR."""
    if data.startswith((b"\n", b"\r", b"\xef\xbb\xbf")) or b"\n\n" in data:
        return False
    ends = data.count(b"\r")
    return not ends or (ends == data.count(b"\r\n") and b"\n\r" not in data)


def _has_plain_quotes(data: bytes, quote: int, delimiter: int) -> bool:
    """Return whether each quote opens a cell, closes one, or is one of two inside of a cell.

    Two quotes inside of a cell close it and open it anew. So they open and close in turn, and what
    stands before one that opens, and behind one that closes, says whether it may.
    """
    characters = np.frombuffer(data, np.uint8)
    places = np.flatnonzero(characters == quote)
    if len(places) % 2:
        return False
    before = characters[places[::2] - 1]  # of the first character: the LF at the end
    behind = characters[places[1::2] + 1]
    return bool(
        np.isin(before, (_LF, delimiter, quote)).all()
        and np.isin(behind, (_LF, _CR, delimiter, quote)).all()
    )
