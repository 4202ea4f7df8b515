"""CSV by RFC 4180: fields between delimiters, quoted where they need it.

Options of a source, all text:

    header        "true" (default): the first line names the columns, in any order
    delimiter     one character, "," by default
    quote         one character, '"' by default; "" when nothing is quoted
    null          the unquoted text that means null, "" by default
    final_newline "required": a last line without its line end is rejected, since a
                  file that was cut in its last field looks just like that;
                  "optional" (default) accepts and notes it

Rejected: a record with too few or too many fields, an open quote, text after a
closing quote, a bare CR, a header that names a column twice or none of the
declared ones. Blank lines are skipped. An empty quoted field is an empty string.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from cbp.model.schema import Schema
from controller.ingest.columns import BatchBuilder
from controller.ingest.lines import TextBlock
from controller.ingest.notes import Notes
from controller.ingest.rejection import FileRejectedError
from controller.values import excerpt

__all__ = ["CsvOptions", "read_csv"]

Cells = list[str | None]


@dataclass(frozen=True, slots=True)
class CsvOptions:
    """How a CSV file is written; see the module header."""

    header: bool = True
    delimiter: str = ","
    quote: str = '"'
    null: str = ""
    final_newline_required: bool = False

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> CsvOptions:
        """Read a source's options.

        Raises:
            ValueError: Saying which option is wrong and what is allowed.
        """
        known = ("header", "delimiter", "quote", "null", "final_newline")
        for name in options:
            if name not in known:
                _refuse(f"{name!r} is no option of CSV; use one of {', '.join(known)}")
        made = cls(
            header=_choice(options, "header", "true", "false"),
            delimiter=str(options.get("delimiter", ",")),
            quote=str(options.get("quote", '"')),
            null=str(options.get("null", "")),
            final_newline_required=_choice(options, "final_newline", "optional", "required")
            is False,
        )
        if len(made.delimiter) != 1 or made.delimiter in "\r\n":
            _refuse(f"delimiter must be one character, not {made.delimiter!r}")
        if len(made.quote) > 1 or made.quote in ("\r", "\n", made.delimiter):
            _refuse(f"quote must be one character or empty, not {made.quote!r}")
        return made


def _choice(options: Mapping[str, str], name: str, first: str, second: str) -> bool:
    """Return whether an option is its first, default value."""
    value = str(options.get(name, first)).lower()
    if value not in (first, second):
        _refuse(f"{name} must be {first!r} or {second!r}, not {value!r}")
    return value == first


def _refuse(message: str) -> None:
    raise ValueError(message)


def read_csv(
    blocks: Iterable[TextBlock],
    schema: Schema,
    options: CsvOptions,
    *,
    batch_rows: int,
    record_bytes_max: int,
    notes: Notes,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a file in order.

    Raises:
        FileRejectedError: A `csv_…` rule, `line_end`, `line_too_long`, `value_type`,
            `value_missing` or `column_missing`.
    """
    builder = BatchBuilder(schema, text=True)
    records = _Records(options, record_bytes_max, notes)
    layout: tuple[list[int | None], int] | None = None
    if not options.header:
        layout = list(range(len(schema))), len(schema)
    for numbers, rows in records.chunks(blocks, batch_rows):
        if layout is None:
            layout = _places(numbers[0], rows[0], schema, notes)
            del numbers[0], rows[0]
        if rows:
            yield builder.batch(_columns(numbers, rows, *layout), numbers)
    if layout is None:
        message = "the file is empty; expected a header line"
        raise FileRejectedError(rule="csv_header", message=message, line=1)


def _columns(
    numbers: list[int], rows: list[Cells], places: list[int | None], width: int
) -> list[Sequence[str | None]]:
    """Return the values of each declared column; every row must be as wide as the file."""
    if set(map(len, rows)) != {width}:
        at = next(at for at, cells in enumerate(rows) if len(cells) != width)
        message = f"expected {width} fields, got {len(rows[at])}"
        raise FileRejectedError(rule="csv_fields", message=message, line=numbers[at])
    columns = list(zip(*rows, strict=True))
    nothing = [None] * len(rows)
    return [nothing if at is None else columns[at] for at in places]


def _places(line: int, header: Cells, schema: Schema, notes: Notes) -> tuple[list[int | None], int]:
    """Return the position in the file of each declared column, and the file's width."""
    names = [cell or "" for cell in header]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        message = f"the header names {excerpt(twice[0])} twice"
        raise FileRejectedError(rule="csv_header", message=message, line=line)
    if not set(names) & set(schema.names):
        message = (
            f"the header {excerpt(', '.join(names))} names none of the declared columns "
            f"{', '.join(schema.names)}; is it missing, or the delimiter another one?"
        )
        raise FileRejectedError(rule="csv_header", message=message, line=line)
    for field in schema.fields:
        if field.name not in names and not field.nullable:
            message = f"the header lacks a column that is NOT NULL; it has {', '.join(names)}"
            raise FileRejectedError(
                rule="column_missing", message=message, line=line, column=field.name
            )
    notes.extra_columns(set(names) - set(schema.names))
    notes.missing = tuple(name for name in schema.names if name not in names)
    return [names.index(name) if name in names else None for name in schema.names], len(names)


class _Records:
    """Cuts lines into cells; a quoted cell may hold line ends."""

    def __init__(self, options: CsvOptions, record_bytes_max: int, notes: Notes) -> None:
        self._options, self._record_bytes_max, self._notes = options, record_bytes_max, notes
        delimiter, quote = re.escape(options.delimiter), re.escape(options.quote)
        inside = f"[^{quote}]*(?:{quote}{quote}[^{quote}]*)*"
        # Without the look-ahead, half of a doubled quote could pass for the closing one.
        self._quoted = re.compile(f"{quote}({inside}){quote}(?!{quote})" if quote else "()")
        plain = f"[^{delimiter}{quote}][^{delimiter}]*"
        self._record = re.compile(
            f"({quote}{inside}{quote}|{plain}|){delimiter}" if quote else "()"
        )
        self._plain = re.compile(f"[^{delimiter}]*")
        self._opened: list[str] = []
        self._first = self._size = 0

    def chunks(
        self, blocks: Iterable[TextBlock], batch_rows: int
    ) -> Iterator[tuple[list[int], list[Cells]]]:
        """Yield the lines and the cells of at most `batch_rows` records at a time."""
        for block in blocks:
            for start in range(0, len(block.lines), batch_rows):
                lines = block.lines[start : start + batch_rows]
                first = block.first + start
                rows = None if self._opened else self._plain_rows(lines)
                if rows is not None:
                    yield list(range(first, first + len(rows))), rows
                elif taken := list(self._records(lines, first)):
                    yield [number for number, _ in taken], [cells for _, cells in taken]
            self._check_end(block)
        if self._opened:
            message = "a quoted field that begins in this record is not closed by the file's end"
            raise FileRejectedError(rule="csv_quote", message=message, line=self._first)

    def _plain_rows(self, lines: list[str]) -> list[Cells] | None:
        """Return the cells of lines without quotes, fast; `None` where care is needed."""
        delimiter, quote, null = self._options.delimiter, self._options.quote, self._options.null
        if lines[0].endswith("\r"):
            lines = [line.removesuffix("\r") for line in lines]
        if "" in lines or any("\r" in line for line in lines):
            return None
        if quote and any(quote in line for line in lines):
            return None
        return [
            self._nulled(cells) if null in cells else cells  # type: ignore[misc]
            for cells in (line.split(delimiter) for line in lines)
        ]

    def _nulled(self, cells: Iterable[str]) -> Cells:
        null = self._options.null
        return [None if cell == null else cell for cell in cells]

    def _records(self, lines: list[str], first: int) -> Iterator[tuple[int, Cells]]:
        """Yield line and cells of each record; one that is open at the end is kept for later."""
        quote = self._options.quote
        for number, line in enumerate(lines, first):
            if self._opened:
                self._opened.append(line)
                self._size += len(line) + 1
                if quote not in line.replace(quote + quote, ""):
                    self._check_size()
                    continue
                line = "\n".join(self._opened)
            elif line in ("", "\r"):
                continue
            else:
                self._first, self._size = number, len(line)
            cells = self._cells(line.removesuffix("\r"), self._first)
            if cells is None:
                self._opened = self._opened or [line]
                self._check_size()
                continue
            self._opened = []
            yield self._first, cells

    def _cells(self, text: str, line: int) -> Cells | None:
        """Return the cells of a record; `None` while a quote is open."""
        delimiter, quote, null = self._options.delimiter, self._options.quote, self._options.null
        if quote and "\r" not in text:
            # All cells in one call; whatever is odd leaves a gap and goes the slow way below.
            found = self._record.findall(text + delimiter)
            if sum(map(len, found)) + len(found) == len(text) + 1:
                return [
                    cell[1:-1].replace(quote + quote, quote)
                    if cell.startswith(quote)
                    else (None if cell == null else cell)
                    for cell in found
                ]
        cells: Cells = []
        at = 0
        while True:
            if quote and text.startswith(quote, at):
                match = self._quoted.match(text, at)
                if match is None:
                    return None
                cells.append(match[1].replace(quote + quote, quote))
            else:
                match = self._plain.match(text, at)
                assert match is not None, "the pattern matches the empty text"
                if "\r" in match[0] or "\n" in match[0]:
                    self._bare_cr(line)
                cells.append(None if match[0] == null else match[0])
            at = match.end()
            if at == len(text):
                return cells
            if text[at] != delimiter:
                message = f"text after a closing quote: {excerpt(text[at : at + 40])}"
                raise FileRejectedError(rule="csv_quote", message=message, line=line)
            at += 1

    def _bare_cr(self, line: int) -> None:
        message = "a CR without LF inside a record; lines end with LF or CR LF"
        raise FileRejectedError(rule="line_end", message=message, line=line)

    def _check_size(self) -> None:
        if self._size > self._record_bytes_max:
            message = (
                f"a quoted field is still open after {self._record_bytes_max} bytes; "
                "a closing quote is missing"
            )
            raise FileRejectedError(rule="csv_quote", message=message, line=self._first)

    def _check_end(self, block: TextBlock) -> None:
        if block.terminated:
            return
        self._notes.last_line_open = True
        if self._options.final_newline_required:
            message = "the last line has no line end, so the file may be cut"
            raise FileRejectedError(
                rule="line_end", message=message, line=block.first + len(block.lines) - 1
            )
