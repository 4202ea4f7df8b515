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
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa

from cbp.model.schema import Schema
from controller.ingest.columns import BatchBuilder
from controller.ingest.lines import TextBlock
from controller.ingest.notes import Notes
from controller.ingest.rejection import FileRejectedError, excerpt

__all__ = ["CsvOptions", "read_csv"]

Row = tuple[int, list[str | None]]


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
    rows = _Records(options, record_bytes_max, notes).rows(blocks)
    places, width = _places(next(rows, None) if options.header else None, schema, options, notes)
    while taken := list(islice(rows, batch_rows)):
        numbers = [number for number, _ in taken]
        for number, cells in taken:
            if len(cells) != width:
                message = f"expected {width} fields, got {len(cells)}"
                raise FileRejectedError(rule="csv_fields", message=message, line=number)
        columns = list(zip(*(cells for _, cells in taken), strict=True))
        nothing = [None] * len(taken)
        values = [nothing if at is None else columns[at] for at in places]
        yield builder.batch(values, numbers)


def _places(
    header: Row | None, schema: Schema, options: CsvOptions, notes: Notes
) -> tuple[list[int | None], int]:
    """Return the position in the file of each declared column, and the file's width."""
    if not options.header:
        return list(range(len(schema))), len(schema)
    if header is None:
        message = "the file is empty; expected a header line"
        raise FileRejectedError(rule="csv_header", message=message, line=1)
    line, cells = header
    names = [cell or "" for cell in cells]
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
        self._quoted = re.compile(f"{quote}([^{quote}]*(?:{quote}{quote}[^{quote}]*)*){quote}")
        self._plain = re.compile(f"[^{delimiter}]*")

    def rows(self, blocks: Iterable[TextBlock]) -> Iterator[Row]:
        """Yield the line and the cells of each record."""
        delimiter, quote, null = self._options.delimiter, self._options.quote, self._options.null
        opened: list[str] = []
        first = size = 0
        for block in blocks:
            for number, line in enumerate(block.lines, block.first):
                if opened:
                    opened.append(line)
                    size += len(line) + 1
                    if quote not in line.replace(quote + quote, ""):
                        self._check_size(size, first)
                        continue
                    line = "\n".join(opened)
                elif not line or line == "\r":
                    continue
                else:
                    first = number
                text = line.removesuffix("\r")
                if not quote or quote not in text:
                    if "\r" in text:
                        self._bare_cr(first)
                    cells: list[str | None] | None = list(text.split(delimiter))
                    if cells and null in cells:
                        cells = [None if cell == null else cell for cell in cells]
                else:
                    cells = self._cells(text, first)
                if cells is None:
                    opened, size = opened or [line], size or len(line)
                    self._check_size(size, first)
                    continue
                opened, size = [], 0
                yield first, cells
            self._check_end(block)
        if opened:
            message = "a quoted field that begins in this record is not closed by the file's end"
            raise FileRejectedError(rule="csv_quote", message=message, line=first)

    def _cells(self, text: str, line: int) -> list[str | None] | None:
        """Return the cells of a record with quotes; `None` while a quote is open."""
        delimiter, quote, null = self._options.delimiter, self._options.quote, self._options.null
        cells: list[str | None] = []
        at = 0
        while True:
            if text.startswith(quote, at):
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

    def _check_size(self, size: int, line: int) -> None:
        if size > self._record_bytes_max:
            message = (
                f"a quoted field is still open after {self._record_bytes_max} bytes; "
                "a closing quote is missing"
            )
            raise FileRejectedError(rule="csv_quote", message=message, line=line)

    def _check_end(self, block: TextBlock) -> None:
        if block.terminated:
            return
        self._notes.last_line_open = True
        if self._options.final_newline_required:
            message = "the last line has no line end, so the file may be cut"
            raise FileRejectedError(
                rule="line_end", message=message, line=block.first + len(block.lines) - 1
            )
