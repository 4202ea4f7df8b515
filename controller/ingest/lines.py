"""Splits text into blocks of whole lines, with line numbers; strict UTF-8.

A byte-order mark is removed. Bytes that are not UTF-8, UTF-16 text and NUL bytes are rejected with
their line. A line ends at LF; a CR before it stays in the line (each format decides). Memory holds
one block and one line at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NoReturn

from controller.ingest.bad_lines import BadLines
from controller.ingest.rejection import FileRejectedError
from controller.values import excerpt

__all__ = ["TextBlock", "text_blocks"]

_BOM = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True, slots=True)
class TextBlock:
    """Consecutive whole lines.

    Attributes:
        first: Number of the first line, from 1.
        lines: Without their LF.
        terminated: Whether the last line had an LF; only the last block's may lack it.
    """

    first: int
    lines: list[str]
    terminated: bool = True


def text_blocks(
    chunks: Iterable[bytes], *, line_bytes_max: int, bad: BadLines
) -> Iterator[TextBlock]:
    """Cut decompressed bytes into blocks of lines.

    Args:
        chunks: The bytes.
        line_bytes_max: Longest line.
        bad: Collects the lines that are not text; a blank line replaces each in the block.

    Raises:
        FileRejectedError: `line_too_long`; `encoding` or `nul_byte` of the first line.
    """
    first, carried, size = 1, [b""], 0
    for chunk in chunks:
        end = chunk.rfind(b"\n") + 1
        if end:
            data = b"".join((*carried, chunk[: end - 1]))
            block = _block(data, first, line_bytes_max, bad, terminated=True)
            yield block
            first += len(block.lines)
            carried, size = [chunk[end:]], len(chunk) - end
        else:
            carried.append(chunk)
            size += len(chunk)
        if size > line_bytes_max:
            _too_long(first, line_bytes_max)
    if size:
        yield _block(b"".join(carried), first, line_bytes_max, bad, terminated=False)


def _block(
    data: bytes, first: int, line_bytes_max: int, bad: BadLines, *, terminated: bool
) -> TextBlock:
    if first == 1:
        if data.startswith(_UTF16):
            message = "the text is UTF-16; only UTF-8 is taken"
            raise FileRejectedError(rule="encoding", message=message, line=1)
        data = data.removeprefix(_BOM)
    try:
        lines = _text(data, first).split("\n")
    except FileRejectedError as error:
        if error.line == 1:
            raise
        lines = [_text_or_blank(one, first + at, bad) for at, one in enumerate(data.split(b"\n"))]
    if len(data) > line_bytes_max:
        for offset, one in enumerate(lines):
            if len(one) * 4 > line_bytes_max and len(one.encode()) > line_bytes_max:
                _too_long(first + offset, line_bytes_max)
    return TextBlock(first, lines, terminated)


def _text(data: bytes, first: int) -> str:
    nul = data.find(b"\0")
    if nul >= 0:
        line = first + data.count(b"\n", 0, nul)
        raise FileRejectedError(rule="nul_byte", message="the text has a NUL byte", line=line)
    try:
        return data.decode()
    except UnicodeDecodeError as exc:
        line = first + data.count(b"\n", 0, exc.start)
        message = f"byte {exc.object[exc.start]:#04x} is not UTF-8"
        fragment = excerpt(data[max(0, exc.start - 20) : exc.end + 20])
        raise FileRejectedError(
            rule="encoding", message=message, line=line, cause=f"{exc.reason}: {fragment}"
        ) from exc


def _text_or_blank(line: bytes, number: int, bad: BadLines) -> str:
    try:
        return _text(line, number)
    except FileRejectedError as error:
        bad.add(error.rule, error.message, line=number, cause=error.cause)
        return ""


def _too_long(line: int, line_bytes_max: int) -> NoReturn:
    message = (
        f"the line has more than {line_bytes_max} bytes; write shorter records, or raise "
        "CBP_LINE_BYTES_MAX"
    )
    raise FileRejectedError(rule="line_too_long", message=message, line=line)
