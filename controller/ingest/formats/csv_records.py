"""CSV reader by RFC 4180: fields between delimiters, quoted where needed (`options`).

Rejected:
- a record with too few or too many fields, an open quote, text after a closing quote, a bare CR
- a header that names a column twice, or none of the declared columns, or undeclared ones
  (unless the source ignores these)
- a last line without a line end (unless the source says that its files have none)

A blank line is skipped, but in a file with one column it is a record with an empty cell. Blank
lines before the header are always skipped. An empty quoted field is an empty string.

Arrow parses a block of records several times as fast as Python, with the same result
(`CsvColumns`). It refuses a record of another width, as the strict reader does. Such a block is
then read record by record, which names the line. So is a block for which Arrow might differ:

    text after a closing quote,       Arrow takes both as a part of the cell
    a quote inside an unquoted cell
    a quote that is still open         the record continues in the next block
    CR without LF                      a line end for Arrow
    a blank line                       Arrow skips it, or finds a cell, as its options say
    U+FEFF at the start of a block     Arrow takes it for a byte-order mark
    a delimiter or a quote beyond ASCII

All cells are read as text, since Arrow takes more for a number than we do (0x1f, blanks around it).
`tests/controller/ingest/formats/test_csv_columns.py` has each of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.csv as pv

from cbp.model.source.options import CsvOptions
from controller.ingest.formats.bad_lines import BadLines, Reading
from controller.ingest.formats.columns import BatchBuilder, unknown_column
from controller.ingest.formats.text import TextBlock, check_last_line
from controller.ingest.rejection import FileRejectedError
from controller.value_conversion import excerpt

_LF, _CR = b"\n\r"


class CsvColumns:
    """Parses blocks of a file that has the declared columns at `places`; `None` if it lacks one."""

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
        """Return the records of some lines; `None` if they must be read one by one."""
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
    """Return whether each quote opens a cell, closes one, or is one of two inside a cell.

    Two quotes inside a cell close it and open it again. So quotes open and close in turn. The
    character before each opening quote, and after each closing one, decides whether the quote is
    allowed.
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


Cells = list[str | None]

COLUMNS_MAX = 1 << 14
"""Maximum number of columns of a file.

A line with more cells is cut here and then rejected by its width.
"""

_QUICK_CHARACTERS = 1 << 16
_HEADER = re.compile(r"[\r\n]*+[^\n]++")


def read_csv(blocks: Iterable[TextBlock], reading: Reading) -> Iterator[pa.RecordBatch]:
    """Yield the records of a file in order, up to the first wrong one; `bad` notes it."""
    options, reader = reading.options, _Reader(reading)
    for block in _header_apart(blocks) if options.csv.header else blocks:
        yield from reader.batches(block)
        check_last_line(block, options.lines, reading.notes)
    reader.end()


def _header_apart(blocks: Iterable[TextBlock]) -> Iterator[TextBlock]:
    """Yield the blocks; the first line that is not blank ends a block of its own."""
    is_blank = True
    for block in blocks:
        if is_blank and (text := _HEADER.match(block.text)):
            is_blank = False
            if text.end() < len(block.text):
                header = TextBlock(block.first, text[0])
                rest = block.text[text.end() + 1 :]
                yield header
                yield TextBlock(block.first + header.count, rest, block.terminated)
                continue
        yield block


class _Reader:
    def __init__(self, reading: Reading) -> None:
        self._reading, self._bad = reading, reading.bad
        self._options = reading.options.csv
        self._builder = BatchBuilder(reading.schema, reading.options.rules, text=True)
        self._records = _Records(self._options, reading.limits.line_bytes_max)
        self._columns: CsvColumns | None = None
        if not self._options.header:
            count = len(reading.schema)
            self._lay_out(list(range(count)), count)

    def _lay_out(self, places: list[int | None], width: int) -> None:
        self._places, self._records.width = places, width
        self._columns = CsvColumns(self._options, self._builder, places, width)

    def batches(self, block: TextBlock) -> Iterator[pa.RecordBatch]:
        """Yield the records of a block; a record that is open at its end is in the next block."""
        rows = self._reading.limits.batch_rows
        whole = self._whole(block)
        if whole is not None:
            if len(whole) == block.count:
                self._bad.lines.add(range(block.first, block.first + len(whole)))
            else:  # cells with line ends in them
                self._bad.lines.skip(len(whole))
            yield from (whole.slice(at, rows) for at in range(0, len(whole), rows))
            return
        for start in range(0, block.count, rows):
            lines = block.lines[start : start + rows]
            batch = self._batch(*self._records.read(lines, block.first + start))
            if batch is not None:
                yield batch

    def _whole(self, block: TextBlock) -> pa.RecordBatch | None:
        """Return all records of a block, if none of them is odd."""
        limits, size = self._reading.limits, len(block.text)
        # After a wrong line no record is yielded, but each further wrong line is named.
        if self._columns is None or self._records.is_open or self._bad.refuses:
            return None
        if not limits.fast_block_bytes_min <= size <= limits.line_bytes_max:
            return None
        return self._columns.batch(block.text)

    def _batch(self, numbers: list[int], rows: list[Cells]) -> pa.RecordBatch | None:
        bad = self._bad
        if rows and self._columns is None:
            self._lay_out(*_places(numbers[0], rows[0], self._reading))
            del numbers[0], rows[0]
        texts = dict(zip(numbers, rows, strict=True)) if bad.rejects_rows else {}
        looked_at = len(rows)
        _drop_odd(numbers, rows, self._records.width, bad)
        batch = bad.sound(self._build, rows, numbers)
        for number in bad.textless():
            bad.keep_text(number, _line_of(texts[number], self._options))
        bad.check(looked_at)
        return batch

    def _build(self, rows: Sequence[Cells], numbers: Sequence[int]) -> pa.RecordBatch | None:
        return self._builder.batch(_columns(rows, self._places), numbers, self._bad)

    def end(self) -> None:
        self._records.check_closed()
        if self._columns is None:
            message = "the file is empty; expected a header line"
            raise FileRejectedError("csv_header", message, line=1)


def _line_of(cells: Cells, options: CsvOptions) -> str:
    """Return a record as a line that can be corrected and dropped again."""
    quote = options.quote
    texts = list[str]()
    for cell in cells:
        text = options.null if cell is None else cell
        special = any(mark in text for mark in (options.delimiter, "\n", "\r", quote) if mark)
        if quote and (special or (cell is not None and cell == options.null)):
            text = quote + text.replace(quote, quote * 2) + quote
        texts.append(text)
    return options.delimiter.join(texts)


def _drop_odd(numbers: list[int], rows: list[Cells], width: int, bad: BadLines) -> None:
    """Report to `bad` the rows that do not have `width` fields; remove them and their numbers."""
    if set(map(len, rows)) <= {width}:
        return
    for number, cells in zip(numbers, rows, strict=True):
        if len(cells) != width and bad.wants(number):
            more = "or more" if len(cells) > COLUMNS_MAX else ""
            message = f"expected {width} fields, got {len(cells)} {more}".rstrip()
            bad.add("csv_fields", message, line=number)
    sound = [at for at, cells in enumerate(rows) if len(cells) == width]
    numbers[:], rows[:] = [numbers[at] for at in sound], [rows[at] for at in sound]


def _columns(rows: Sequence[Cells], places: list[int | None]) -> list[Sequence[str | None]]:
    columns = list(zip(*rows, strict=True))
    nothing = [None] * len(rows)
    return [nothing if at is None else columns[at] for at in places]


def _places(line: int, header: Cells, reading: Reading) -> tuple[list[int | None], int]:
    """Return the position in the file of each declared column, and the file's width."""
    schema, notes = reading.schema, reading.notes
    names = [cell or "" for cell in header]
    if len(names) > COLUMNS_MAX:
        message = f"the header names more than {COLUMNS_MAX} columns"
        raise FileRejectedError("csv_header", message, line=line)
    places = {name: at for at, name in enumerate(names)}
    if len(places) < len(names):
        twice = next(name for at, name in enumerate(names) if places[name] != at)
        raise FileRejectedError("csv_header", f"the header names {excerpt(twice)} twice", line=line)
    if not places.keys() & set(schema.names):
        message = (
            f"the header {excerpt(', '.join(names))} names none of the declared columns "
            f"{', '.join(schema.names)}; is the header missing, or is the delimiter wrong?"
        )
        raise FileRejectedError("csv_header", message, line=line)
    known = set(schema.names)
    unknown = next((name for name in names if name not in known), None)
    if unknown is not None and not reading.options.rules.ignore_unknown:
        message = unknown_column(unknown, schema.names)
        raise FileRejectedError("column_unknown", message, line=line, column=unknown[:100])
    for field in schema.fields:
        if field.name not in places and not field.nullable:
            has = excerpt(", ".join(names))
            message = f"the header lacks this column, which is NOT NULL; the header has {has}"
            raise FileRejectedError("column_missing", message, line=line, column=field.name)
    notes.extra_columns(places.keys() - set(schema.names))
    notes.missing = tuple(name for name in schema.names if name not in places)
    return [places.get(name) for name in schema.names], len(names)


class _Records:
    """Splits lines into cells; a quoted cell may hold line ends.

    Each character is examined a bounded number of times, whatever the quotes. If a record is still
    open at the end of its line, its cells so far are kept and parsing resumes where it stopped.
    `width` is 0 until the header, which is the first record, says it.
    """

    def __init__(self, options: CsvOptions, record_bytes_max: int) -> None:
        self._options = options
        self.width = 0
        self._record_bytes_max = record_bytes_max
        delimiter, quote = re.escape(options.delimiter), re.escape(options.quote)
        # Possessive: the regex never retries a shorter match, which would be quadratic.
        inside = f"[^{quote}]*+(?:{quote}{quote}[^{quote}]*+)*+"
        self._inside = re.compile(inside if quote else "")
        plain = f"[^{delimiter}{quote}][^{delimiter}]*+"
        # The last alternative takes the whole rest at once, so that nothing is searched twice.
        self._record = re.compile(
            rf"({quote}{inside}{quote}|{plain}|){delimiter}|[\s\S]++" if quote else ""
        )
        self._cells: Cells = []
        self._open: list[str] | None = None
        self._first = self._size = 0

    @property
    def is_open(self) -> bool:
        return self._open is not None

    def read(self, lines: Iterable[str], first: int) -> tuple[list[int], list[Cells]]:
        """Return line number and cells of each record; an open record is kept for the next call."""
        numbers, rows = list[int](), list[Cells]()
        for number, line in enumerate(lines, first):
            if self._open is not None:
                self._size += len(line) + 1
                self._open.append("\n")
                whole = self._take(line, 0)
            elif line in ("", "\r") and self.width != 1:
                continue
            else:
                self._first, self._size = number, len(line)
                whole = self._begin(line)
            if whole is None:
                self._check_size()
                continue
            if not self.width:
                self.width = len(whole)
            numbers.append(self._first)
            rows.append(whole)
        return numbers, rows

    def check_closed(self) -> None:
        if self.is_open:
            message = (
                "a quoted field that begins in this record is not closed before the end of the file"
            )
            raise FileRejectedError("csv_quote", message, line=self._first)

    def _begin(self, line: str) -> Cells | None:
        """Return the cells of a record; `None` if a quote is open at the end of the line."""
        delimiter, quote, null = self._options.delimiter, self._options.quote, self._options.null
        text = line.removesuffix("\r")
        if quote and "\r" not in text and len(text) <= _QUICK_CHARACTERS:
            # All cells in one call. Anything unusual leaves a gap, and is parsed slowly below.
            matches = self._record.findall(text + delimiter)
            if sum(map(len, matches)) + len(matches) == len(text) + 1:
                return [
                    cell[1:-1].replace(quote + quote, quote)
                    if cell.startswith(quote)
                    else (None if cell == null else cell)
                    for cell in matches
                ]
        self._cells = []
        return self._take(line, 0)

    def _take(self, line: str, at: int) -> Cells | None:
        """Take cells up to the line's end, starting at a cell or inside a quoted cell."""
        delimiter, quote, null = self._options.delimiter, self._options.quote, self._options.null
        cell: str | None
        while True:
            if self._open is None and quote and line.startswith(quote, at):
                self._open, at = [], at + 1
            if self._open is not None:
                end = self._take_quoted(line, at)
                if end is None:
                    return None
                cell, self._open = "".join(self._open), None
            else:
                end = line.find(delimiter, at)
                end = len(line) if end < 0 else end
                cell = line[at:end].removesuffix("\r") if end == len(line) else line[at:end]
                if "\r" in cell:
                    message = "a CR without LF inside a record; lines end with LF or CR LF"
                    raise FileRejectedError("line_end", message, line=self._first)
                cell = None if cell == null else cell
            self._cells.append(cell)
            if end == len(line) or len(self._cells) > COLUMNS_MAX:
                return self._cells
            at = end + 1

    def _take_quoted(self, line: str, at: int) -> int | None:
        """Take the text inside quotes; return the position of the delimiter or the line's end."""
        quote = self._options.quote
        match = self._inside.match(line, at)
        assert match is not None, "the pattern does not match the empty text"
        assert self._open is not None, "no quoted field is open"
        self._open.append(match[0].replace(quote + quote, quote))
        end = match.end()
        if end == len(line):
            return None
        end += 1
        if line.startswith("\r", end) and end + 1 == len(line):
            return len(line)
        if end < len(line) and line[end] != self._options.delimiter:
            message = f"text after a closing quote: {excerpt(line[end : end + 40])}"
            raise FileRejectedError("csv_quote", message, line=self._first)
        return end

    def _check_size(self) -> None:
        if self._size > self._record_bytes_max:
            message = (
                f"a quoted field is still open after {self._record_bytes_max} bytes; "
                "a closing quote is missing"
            )
            raise FileRejectedError("csv_quote", message, line=self._first)
