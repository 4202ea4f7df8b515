r"""Reader of access logs as Apache and NGINX write them, common or combined; typed columns.

    host identity user [10/Oct/2026:13:55:36 +0200] "GET /a HTTP/1.1" 200 2326 "referer" "agent"

A lone `-` is null. Text stays as it was logged, with its escapes (`\"`, `\x16`): the same text can
be searched in the log. `method`, `path` and `protocol` are null where the request is not HTTP:
the log correctly shows a scanner's bytes, or a request that timed out. Blank lines are skipped. A
line of any other form is wrong, with the part that was expected.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache

import pyarrow as pa

from cbp.engine.columnar.arrow_types import arrow_schema, arrow_type
from cbp.model.flow.schema import Field
from controller.ingest.formats.bad_lines import BadLines, Reading
from controller.ingest.formats.columns import ColumnBuilder, OriginColumns, note_nulls
from controller.ingest.formats.text import TextBlock, check_last_line, line_batches
from controller.value_conversion import excerpt

# Possessive: a match never takes time that is quadratic in the line.
_QUOTED = r'"((?:[^"\\]++|\\.)*+)"'
_TIME = r"(\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4})"
_COMMON = (
    ("a host", r"(\S++) "),
    ("an identity, mostly '-'", r"(\S++) "),
    ("a user, and a time such as [10/Oct/2026:13:55:36 +0200]", rf"([^\[]*?) \[{_TIME}\] "),
    ("a request in quotes", rf"{_QUOTED} "),
    ("a status of three digits", r"(\d{3}) "),
    ("a number of bytes, or '-'", r"(\d{1,19}+|-)"),
)
_COMBINED = (
    *_COMMON,
    ("a referer in quotes", rf" {_QUOTED}"),
    ("a user agent in quotes", rf" {_QUOTED}"),
)
_PARTS: dict[bool, tuple[tuple[str, str], ...]] = {True: _COMBINED, False: _COMMON}
_LINES = {
    combined: re.compile("".join(pattern for _, pattern in parts))
    for combined, parts in _PARTS.items()
}
"""Whether the layout is the combined one -> the parts of its lines, and their form."""

_NAMES = ("host", "identity", "user", "time", "request", "status", "bytes", "referer", "user_agent")
_REQUEST = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]++) (.+?)(?: (HTTP/\d(?:\.\d)?))?")
_OF_REQUEST = {"method": 0, "path": 1, "protocol": 2}
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_TIMES_MAX = 100_000

Row = Sequence[str]


def read_access_log(blocks: Iterable[TextBlock], reading: Reading) -> Iterator[pa.RecordBatch]:
    """Yield the records of a log in order, up to the first wrong line; `bad` notes it."""
    options, bad = reading.options, reading.bad
    layout = _Layout(combined=options.combined)
    origin = OriginColumns(reading.schema, options.lines, reading.file)
    columns, target = [_Column(field) for field in origin.others], arrow_schema(reading.schema)

    def parse(lines: list[str], first: int) -> tuple[list[Row], list[int]]:
        return layout.rows(lines, first, bad)

    def build(rows: Sequence[Row], numbers: Sequence[int]) -> pa.RecordBatch | None:
        arrays = {column.name: column.array(rows, numbers, bad) for column in columns}
        return origin.batch(arrays, numbers, target, bad)

    for block in blocks:
        yield from line_batches(block, reading, parse, build)
        check_last_line(block, options.lines, reading.notes)


class _Layout:
    def __init__(self, *, combined: bool) -> None:
        self._name, other = ("combined", "common") if combined else ("common", "combined")
        self._parts, self._line = _PARTS[combined], _LINES[combined]
        self._other_line = _LINES[not combined]
        self._hint = f", but one of the {other} layout; declare options: {{layout: {other}}}"

    def rows(self, lines: list[str], first: int, bad: BadLines) -> tuple[list[Row], list[int]]:
        """Return the parts of each line and its number; wrong lines go to `bad`."""
        rows, numbers = list[Row](), list[int]()
        fullmatch = self._line.fullmatch
        for number, raw in enumerate(lines, first):
            line = raw.removesuffix("\r")
            if match := fullmatch(line):
                rows.append(match.groups())
                numbers.append(number)
            elif line.strip() and bad.wants(number):
                bad.add("access_log_invalid", self._problem(line), line=number)
        return rows, numbers

    def _problem(self, line: str) -> str:
        if self._other_line.fullmatch(line):
            return f"the line is not one of the {self._name} layout{self._hint}"
        prefix, at = "", 0
        for what, pattern in self._parts:
            prefix += pattern
            if (match := re.compile(prefix).match(line)) is None:
                came = excerpt(line[at:]) if line[at:] else "the end of the line"
                return f"expected {what} at character {at + 1}, got {came}"
            at = match.end()
        return f"expected the end of the line at character {at + 1}, got {excerpt(line[at:])}"


class _Column:
    def __init__(self, field: Field) -> None:
        self.name = field.name
        self._field, self._type = field, arrow_type(field.type)
        self._text = ColumnBuilder(field, text=True) if field.name != "time" else None
        self._time = lru_cache(_TIMES_MAX)(_moment)  # many lines have the same time

    def array(self, rows: Sequence[Row], numbers: Sequence[int], bad: BadLines) -> pa.Array | None:
        """Return the column's values; `None` if one is wrong; `bad` notes it."""
        if self._text is not None:
            return self._text.array(self._texts(rows), numbers, bad)
        at = _NAMES.index("time")
        values = [self._time(row[at]) for row in rows]
        for row, value, number in zip(rows, values, numbers, strict=True):
            if value is None:
                message = f"expected a valid date and time, got {excerpt(row[at])}"
                bad.add("value_type", message, line=number, column=self.name)
        if None in values:
            return None
        array = pa.array(values, type=self._type)
        return array if note_nulls(self._field, array, numbers, bad) else None

    def _texts(self, rows: Sequence[Row]) -> list[str | None]:
        if self.name in _OF_REQUEST:
            at, part = _NAMES.index("request"), _OF_REQUEST[self.name]
            matches = (_REQUEST.fullmatch(row[at]) for row in rows)
            return [None if match is None else match.groups()[part] for match in matches]
        at = _NAMES.index(self.name)
        return [None if row[at] == "-" else row[at] for row in rows]


def _moment(text: str) -> datetime | None:
    """Return a moment in UTC; `None` if the text names no existing one."""
    try:
        sign = -1 if text[21] == "-" else 1
        if int(text[24:26]) > 59:
            return None
        offset = sign * timedelta(hours=int(text[22:24]), minutes=int(text[24:26]))
        year, month, day = int(text[7:11]), _MONTHS.index(text[3:6]) + 1, int(text[:2])
        hour, minute, second = int(text[12:14]), int(text[15:17]), int(text[18:20])
        zone = timezone(offset)
        return datetime(year, month, day, hour, minute, second, tzinfo=zone).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def is_access_log(line: str, *, combined: bool) -> bool:
    """Return whether a line is one of this layout."""
    return _LINES[combined].fullmatch(line) is not None
