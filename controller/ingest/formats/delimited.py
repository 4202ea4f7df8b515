"""CSV reader by RFC 4180: fields between delimiters, quoted where needed (`options`).

Rejected:
- a record with too few or too many fields, an open quote, text after a closing quote, a bare CR
- a header that names a column twice, or none of the declared columns, or undeclared ones
  (unless the source ignores these)
- a last line without a line end (unless the source says that its files have none)

A blank line is a record with an empty cell where files have one column, as any other empty cell;
otherwise it is skipped. So are blank lines before the header. An empty quoted field is an empty
string.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from cbp.model.dataflow.source_options import CsvOptions, ReadOptions
from cbp.model.flow.schema import Schema
from controller.ingest.formats.bad_lines import BadLines
from controller.ingest.formats.column_conversion import BatchBuilder, unknown_column
from controller.ingest.formats.lines import TextBlock, check_last_line
from controller.ingest.formats.notes import Notes
from controller.ingest.rejection import FileRejectedError
from controller.values import ValueRules, excerpt

__all__ = ["COLUMNS_MAX", "read_csv"]

Cells = list[str | None]

COLUMNS_MAX = 1 << 14
"""Maximum number of columns of a file.

A line with more cells is cut here and then rejected by its width.
"""

_QUICK_CHARACTERS = 1 << 16


def read_csv(
    blocks: Iterable[TextBlock],
    schema: Schema,
    options: ReadOptions,
    *,
    batch_rows: int,
    record_bytes_max: int,
    notes: Notes,
    bad: BadLines,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a file in order, up to the first wrong one.

    Wrong lines go to `bad`: `csv_fields`, `value_type`, `value_missing`.

    Raises:
        FileRejectedError: `csv_quote`, `csv_header`, `line_end`, `column_missing` or
            `column_unknown`: the rest cannot be read.
    """
    builder = BatchBuilder(schema, options.rules, text=True)
    layout: tuple[list[int | None], int] | None = None
    if not options.csv.header:
        layout = list(range(len(schema))), len(schema)
    width = None if layout is None else layout[1]
    records = _Records(options, record_bytes_max, notes, width)
    for numbers, rows in records.chunks(blocks, batch_rows):
        if layout is None:
            layout = _places(numbers[0], rows[0], schema, options.rules, notes)
            del numbers[0], rows[0]
        places, width = layout
        whole = dict(zip(numbers, rows, strict=True)) if bad.rejects_rows else {}
        looked_at = len(rows)
        _drop_odd(numbers, rows, width, bad)

        def build(
            some: Sequence[Cells], lines: Sequence[int], places: list[int | None] = places
        ) -> pa.RecordBatch | None:
            return builder.batch(_columns(some, places), lines, bad)

        batch = bad.sound(build, rows, numbers)
        if batch is not None:
            yield batch
        for number in bad.textless():
            bad.keep_text(number, _line_of(whole[number], options.csv))
        bad.check(looked_at)
    if layout is None:
        message = "the file is empty; expected a header line"
        raise FileRejectedError(rule="csv_header", message=message, line=1)


def _line_of(cells: Cells, options: CsvOptions) -> str:
    """Return a record as a line that can be mended and dropped again."""
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
    """Return the values of each declared column."""
    columns = list(zip(*rows, strict=True))
    nothing = [None] * len(rows)
    return [nothing if at is None else columns[at] for at in places]


def _places(
    line: int, header: Cells, schema: Schema, rules: ValueRules, notes: Notes
) -> tuple[list[int | None], int]:
    """Return the position in the file of each declared column, and the file's width."""
    names = [cell or "" for cell in header]
    if len(names) > COLUMNS_MAX:
        message = f"the header names more than {COLUMNS_MAX} columns"
        raise FileRejectedError(rule="csv_header", message=message, line=line)
    places = {name: at for at, name in enumerate(names)}
    if len(places) < len(names):
        twice = next(name for at, name in enumerate(names) if places[name] != at)
        message = f"the header names {excerpt(twice)} twice"
        raise FileRejectedError(rule="csv_header", message=message, line=line)
    if not places.keys() & set(schema.names):
        message = (
            f"the header {excerpt(', '.join(names))} names none of the declared columns "
            f"{', '.join(schema.names)}; is it missing, or the delimiter another one?"
        )
        raise FileRejectedError(rule="csv_header", message=message, line=line)
    known = set(schema.names)
    unknown = next((name for name in names if name not in known), None)
    if unknown is not None and not rules.ignore_unknown:
        message = unknown_column(unknown, schema.names)
        raise FileRejectedError(
            rule="column_unknown", message=message, line=line, column=unknown[:100]
        )
    for field in schema.fields:
        if field.name not in places and not field.nullable:
            has = excerpt(", ".join(names))
            message = f"the header lacks a column that is NOT NULL; it has {has}"
            raise FileRejectedError(
                rule="column_missing", message=message, line=line, column=field.name
            )
    notes.extra_columns(places.keys() - set(schema.names))
    notes.missing = tuple(name for name in schema.names if name not in places)
    return [places.get(name) for name in schema.names], len(names)


class _Records:
    """Splits lines into cells; a quoted cell may hold line ends.

    Each character is examined a bounded number of times, whatever the quotes. If a record is still
    open at the end of its line, its cells so far are kept and parsing resumes where it stopped.

    Args:
        width: Number of columns; `None` if the first record, the header, says it.
    """

    def __init__(
        self, options: ReadOptions, record_bytes_max: int, notes: Notes, width: int | None
    ) -> None:
        self._options, self._lines, self._notes = options.csv, options.lines, notes
        self._width = width
        self._record_bytes_max = record_bytes_max
        delimiter, quote = re.escape(options.csv.delimiter), re.escape(options.csv.quote)
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

    def chunks(
        self, blocks: Iterable[TextBlock], batch_rows: int
    ) -> Iterator[tuple[list[int], list[Cells]]]:
        """Yield the line numbers and the cells of at most `batch_rows` records at a time."""
        for block in blocks:
            for start in range(0, len(block.lines), batch_rows):
                lines = block.lines[start : start + batch_rows]
                first = block.first + start
                rows = None if self._open is not None else self._plain_rows(lines)
                if rows is not None:
                    yield list(range(first, first + len(rows))), rows
                elif records := list(self._records(lines, first)):
                    yield [number for number, _ in records], [cells for _, cells in records]
            check_last_line(block, self._lines, self._notes)
        if self._open is not None:
            message = "a quoted field that begins in this record is not closed by the file's end"
            raise FileRejectedError(rule="csv_quote", message=message, line=self._first)

    def _plain_rows(self, lines: list[str]) -> list[Cells] | None:
        """Return the cells of lines without quotes; `None` if a line needs the slow parser."""
        delimiter, quote, null = self._options.delimiter, self._options.quote, self._options.null
        if lines[0].endswith("\r"):
            lines = [line.removesuffix("\r") for line in lines]
        if any("\r" in line for line in lines) or ("" in lines and self._width != 1):
            return None
        if quote and any(quote in line for line in lines):
            return None
        rows: list[Cells] = [
            self._nulled(cells) if null in cells else cells  # type: ignore[misc]
            for cells in (line.split(delimiter, COLUMNS_MAX) for line in lines)
        ]
        if self._width is None:
            self._width = len(rows[0])
        return rows

    def _nulled(self, cells: Iterable[str]) -> Cells:
        null = self._options.null
        return [None if cell == null else cell for cell in cells]

    def _records(self, lines: list[str], first: int) -> Iterator[tuple[int, Cells]]:
        """Yield line number and cells of each record; an open record is kept for the next call."""
        for number, line in enumerate(lines, first):
            if self._open is not None:
                self._size += len(line) + 1
                self._open.append("\n")
                whole = self._take(line, 0)
            elif line in ("", "\r") and self._width != 1:
                continue
            else:
                self._first, self._size = number, len(line)
                whole = self._begin(line)
            if whole is None:
                self._check_size()
                continue
            if self._width is None:
                self._width = len(whole)
            yield self._first, whole

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
                    self._bare_cr()
                cell = None if cell == null else cell
            self._cells.append(cell)
            if end == len(line) or len(self._cells) > COLUMNS_MAX:
                return self._cells
            at = end + 1

    def _take_quoted(self, line: str, at: int) -> int | None:
        """Take the text inside quotes; return the position of the delimiter or the line's end."""
        quote = self._options.quote
        match = self._inside.match(line, at)
        assert match is not None, "the pattern matches the empty text"
        assert self._open is not None, "called inside of quotes"
        self._open.append(match[0].replace(quote + quote, quote))
        end = match.end()
        if end == len(line):
            return None
        end += 1
        if line.startswith("\r", end) and end + 1 == len(line):
            return len(line)
        if end < len(line) and line[end] != self._options.delimiter:
            message = f"text after a closing quote: {excerpt(line[end : end + 40])}"
            raise FileRejectedError(rule="csv_quote", message=message, line=self._first)
        return end

    def _bare_cr(self) -> None:
        message = "a CR without LF inside a record; lines end with LF or CR LF"
        raise FileRejectedError(rule="line_end", message=message, line=self._first)

    def _check_size(self) -> None:
        if self._size > self._record_bytes_max:
            message = (
                f"a quoted field is still open after {self._record_bytes_max} bytes; "
                "a closing quote is missing"
            )
            raise FileRejectedError(rule="csv_quote", message=message, line=self._first)
