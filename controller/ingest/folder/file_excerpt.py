r"""Excerpt of a quarantined file: the lines around its mistakes, or all of a small file.

Guaranteed: at most `SCANNED_BYTES_MAX` bytes are read, and an answer holds at most `LINES_MAX`
lines of `LINE_CHARACTERS_MAX` characters. The text is evidence: bytes that are not UTF-8 are shown
as `\xff`. A compressed file and Parquet have no lines to show.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

from cbp.model.dataflow.nodes import BINARY_FORMATS
from controller.ingest.folder.source_place import SourcePlace, kept_name
from controller.ingest.formats.file_bytes import BINARY_MAGIC, open_regular
from controller.ingest.rejection import FileRejectedError
from controller.store.base import ClaimRecord

CONTENT_BYTES_MAX = 64 * 1024
SCANNED_BYTES_MAX = 64 * 1024 * 1024
LINES_MAX = 60
LINE_CHARACTERS_MAX = 1_000
_AROUND = 3
_FIRST_LINES = 10


@dataclass(frozen=True, slots=True)
class ExcerptLine:
    """One line of a file without its end, cut at `LINE_CHARACTERS_MAX`, with its known mistakes."""

    number: int
    text: str
    mistakes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class QuarantinedFile:
    """The part of a file that can be shown.

    Attributes:
        bytes: Its size; `None` if the file is missing.
        content: All text of a small text file, for a correction; otherwise `None`.
        hint: Why no lines are shown; `""` if there are lines.
    """

    path: str
    bytes: int | None
    lines: tuple[ExcerptLine, ...] = ()
    content: str | None = None
    hint: str = ""


def open_kept(place: SourcePlace, claim: ClaimRecord) -> tuple[str, BinaryIO]:
    """Open the file of a quarantined or decided claim, with its path; raises as `open_regular`."""
    name = kept_name(claim.id, claim.path)
    for folder in (place.quarantine, place.finished):
        try:
            return str(folder / name), open_regular(folder / name)
        except FileNotFoundError:
            continue
    raise FileNotFoundError(name)


def inspect_file(place: SourcePlace, claim: ClaimRecord) -> QuarantinedFile:
    """Return an excerpt of the file of a quarantined claim; only reads."""
    path = str(place.quarantine / kept_name(claim.id, claim.path))
    try:
        path, file = open_kept(place, claim)
    except (OSError, FileRejectedError) as error:
        why = error.message if isinstance(error, FileRejectedError) else "the file is missing"
        return QuarantinedFile(path, None, hint=why)
    with file:
        size = file.seek(0, 2)
        file.seek(0)
        head = file.read(CONTENT_BYTES_MAX + 1)
        if head.startswith(BINARY_MAGIC) or place.source.format in BINARY_FORMATS:
            return QuarantinedFile(path, size, hint="a binary file has no lines to show")
        file.seek(0)
        lines = _excerpt(file, _mistakes(claim.reason or {}))
        content = _text(head) if len(head) <= CONTENT_BYTES_MAX else None
        return QuarantinedFile(path, size, lines, content, "" if lines else "the file is empty")


def _text(data: bytes) -> str | None:
    """Return a small file as text that gives its bytes back; `None` if it is not UTF-8."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text or text.startswith(codecs.BOM_UTF8.decode()) else text


def _mistakes(reason: Mapping[str, Any]) -> dict[int, tuple[str, ...]]:
    mistakes: dict[int, tuple[str, ...]] = {}
    lines = reason.get("lines") or [reason]
    for one in lines:
        number = one.get("line") if isinstance(one, Mapping) else None
        if isinstance(number, int):
            said = str(one.get("message", one.get("code", "")))
            mistakes[number] = (*mistakes.get(number, ()), said)
    return mistakes


def _excerpt(file: BinaryIO, mistakes: Mapping[int, tuple[str, ...]]) -> tuple[ExcerptLine, ...]:
    wanted = {near for line in mistakes for near in range(line - _AROUND, line + _AROUND + 1)}
    wanted |= set(range(1, _FIRST_LINES + 1)) if not wanted else {1}
    last, shown = max(wanted), list[ExcerptLine]()
    for number, data in _numbered(file):
        if number > last or len(shown) == LINES_MAX:
            break
        if number in wanted:
            text = data.decode("utf-8", "backslashreplace").rstrip("\r\n")
            cut = text if len(text) <= LINE_CHARACTERS_MAX else text[:LINE_CHARACTERS_MAX] + "…"
            shown.append(ExcerptLine(number, cut, mistakes.get(number, ())))
    return tuple(shown)


def _numbered(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield the beginning of each line; the rest of a long line is skipped in parts."""
    number, at_start, left = 0, True, SCANNED_BYTES_MAX
    while left > 0 and (part := file.readline(min(left, 64 * 1024))):
        left -= len(part)
        if at_start:
            number += 1
            yield number, part
        at_start = part.endswith(b"\n")
