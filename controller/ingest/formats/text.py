"""Blocks of complete lines for line-based formats; and the format in which a line is a record.

`text_blocks` decodes strictly. A byte-order mark is removed. Bytes that the encoding does not have,
UTF-16 text and NUL bytes are rejected with their line. A line ends at LF; a CR before it stays in
the line (each format decides). Memory holds one block and one line at a time.

In the format `text` each line is the value of one column, and ends with LF or CR LF. An empty line
is a record with an empty text; a CR elsewhere is part of the text. A last line without its end is
rejected, unless the source says that its files have none, since a file that was cut looks the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NoReturn, TypeVar

import pyarrow as pa

from cbp.engine.columnar.arrow_types import arrow_schema
from cbp.model.source.options import LineOptions
from controller.ingest.formats.bad_lines import TEXT_MAX, Notes, Reading
from controller.ingest.formats.columns import OriginColumns
from controller.ingest.rejection import FileRejectedError
from controller.value_conversion import excerpt

_BOM = b"\xef\xbb\xbf"
_Row = TypeVar("_Row")
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True)
class TextBlock:
    """Consecutive whole lines; only the last one of a file may not be `terminated`."""

    first: int
    text: str
    terminated: bool = True

    @cached_property
    def lines(self) -> list[str]:
        """The lines, without their LF."""
        return self.text.split("\n")

    @cached_property
    def count(self) -> int:
        """Number of lines, at least 1."""
        return self.text.count("\n") + 1


def text_blocks(
    chunks: Iterable[bytes], reading: Reading, *, lines_alone: bool = True
) -> Iterator[TextBlock]:
    """Cut decompressed bytes into blocks of lines.

    A blank line replaces each line that is not text, and `reading.bad` notes it. If lines depend
    on each other (not `lines_alone`), single lines cannot be rejected. Raises `line_too_long`;
    `encoding` or `nul_byte` for the first line, or for any line that cannot be rejected alone.
    """
    decode = _Decoder(reading, aside=reading.bad.rejects_rows and lines_alone)
    first, carried, size = 1, [b""], 0
    for chunk in chunks:
        end = chunk.rfind(b"\n") + 1
        if end:
            data = b"".join((*carried, chunk[: end - 1]))
            block = TextBlock(first, decode.text(data, first))
            yield block
            first += block.count
            carried, size = [chunk[end:]], len(chunk) - end
        else:
            carried.append(chunk)
            size += len(chunk)
        if size > reading.limits.line_bytes_max:
            _too_long(first, reading.limits.line_bytes_max)
    if size:
        yield TextBlock(first, decode.text(b"".join(carried), first), terminated=False)


def line_batches(
    block: TextBlock,
    reading: Reading,
    parse: Callable[[list[str], int], tuple[Sequence[_Row], Sequence[int]]],
    build: Callable[[Sequence[_Row], Sequence[int]], pa.RecordBatch | None],
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a block whose lines are parsed one by one.

    `parse` takes some lines and the number of the first; it returns their records, and the line of
    each record.
    """
    bad, rows_max = reading.bad, reading.limits.batch_rows
    for start in range(0, block.count, rows_max):
        lines, first = block.lines[start : start + rows_max], block.first + start
        batch = bad.sound(build, *parse(lines, first))
        if batch is not None:
            yield batch
        for number in bad.textless():
            bad.keep_text(number, lines[number - first])
        bad.check(len(lines))


def check_last_line(block: TextBlock, options: LineOptions, notes: Notes) -> None:
    """Note that the last line has no end; raises `line_end` if the source requires one."""
    if block.terminated:
        return
    notes.last_line_open = True
    if options.final_newline_required:
        message = (
            "the last line has no line end, so the file may be cut off inside its last value. End "
            "the last line with a line end, or declare in the source that its files never have "
            'one: options: {final_newline: "optional"}'
        )
        last = block.first + block.count - 1
        raise FileRejectedError("line_end", message, line=last)


class _Decoder:
    def __init__(self, reading: Reading, *, aside: bool) -> None:
        self._line_bytes_max, self._bad = reading.limits.line_bytes_max, reading.bad
        self._encoding, self._aside = reading.options.lines.encoding, aside

    def text(self, data: bytes, first: int) -> str:
        """Return whole lines; a blank one for each that is not text."""
        if first == 1:
            data = _without_mark(data, self._encoding)
        try:
            text = _text(data, first, self._encoding)
        except FileRejectedError as error:
            if not self._aside and (error.line == 1 or self._bad.rejects_rows):
                raise
            numbered = enumerate(data.split(b"\n"), first)
            text = "\n".join(self._text_or_blank(one, number) for number, one in numbered)
        if len(data) > self._line_bytes_max:
            for number, one in enumerate(text.split("\n"), first):
                size = len(one)
                if size * 4 > self._line_bytes_max and len(one.encode()) > self._line_bytes_max:
                    _too_long(number, self._line_bytes_max)
        return text

    def _text_or_blank(self, line: bytes, number: int) -> str:
        try:
            return _text(line, number, self._encoding)
        except FileRejectedError as error:
            self._bad.add(error.rule, error.message, line=number, cause=error.cause)
            shown = line[: 4 * TEXT_MAX].decode(self._encoding, "backslashreplace")
            self._bad.keep_text(number, shown.rstrip("\r"))
            return ""


def _without_mark(data: bytes, encoding: str) -> bytes:
    """Remove the byte-order mark of UTF-8; refuse those that contradict the encoding."""
    if data.startswith(_UTF16):
        message = "the text is UTF-16, which is not supported; write UTF-8"
        raise FileRejectedError("encoding", message, line=1)
    if encoding != "utf-8" and data.startswith(_BOM):
        message = (
            f"the text begins with the byte order mark of UTF-8, but the source declares {encoding}"
        )
        raise FileRejectedError("encoding", message, line=1)
    return data.removeprefix(_BOM)


def _text(data: bytes, first: int, encoding: str) -> str:
    nul = data.find(b"\0")
    if nul >= 0:
        line = first + data.count(b"\n", 0, nul)
        raise FileRejectedError("nul_byte", "the line has a NUL byte", line=line)
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as exc:
        line = first + data.count(b"\n", 0, exc.start)
        byte = f"{exc.object[exc.start]:#04x}"
        message = f"the line has the byte {byte}, which is not {encoding.upper()}"
        fragment = excerpt(data[max(0, exc.start - 20) : exc.end + 20])
        raise FileRejectedError(
            "encoding", message, line=line, cause=f"{exc.reason}: {fragment}"
        ) from exc


def _too_long(line: int, line_bytes_max: int) -> NoReturn:
    message = (
        f"the line has more than {line_bytes_max} bytes; write shorter records, or raise "
        "CBP_LINE_BYTES_MAX"
    )
    raise FileRejectedError("line_too_long", message, line=line)


def read_text(blocks: Iterable[TextBlock], reading: Reading) -> Iterator[pa.RecordBatch]:
    """Yield the lines of a file in order, up to the first wrong one; raises `line_end`."""
    options, bad = reading.options.lines, reading.bad
    origin = OriginColumns(reading.schema, options, reading.file)
    target = arrow_schema(reading.schema)
    (column,) = origin.others

    def parse(lines: list[str], first: int) -> tuple[list[str], range]:
        lines[:] = [line.removesuffix("\r") for line in lines]
        return lines, range(first, first + len(lines))

    def build(lines: Sequence[str], numbers: Sequence[int]) -> pa.RecordBatch | None:
        return origin.batch({column.name: pa.array(lines, pa.string())}, numbers, target, bad)

    for block in blocks:
        yield from line_batches(block, reading, parse, build)
        check_last_line(block, options, reading.notes)
