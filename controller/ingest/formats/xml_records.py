"""XML reader: each record is an element, whose attributes and children are its columns.

    <visits><visit id="1"><url>/a</url></visit><visit id="2"/></visits>

Python's own parser (expat) reads in a stream. A document type is refused before anything in it is
read, so there are no entities and nothing external. Names are taken without their namespaces. A
child that contains elements, a column that occurs twice and text between children are wrong. A
column that is absent, or has `nil="true"`, is null; an empty element is an empty text.

Memory holds one batch of records and one piece of markup, each within limits.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn
from xml.parsers import expat

import pyarrow as pa

from controller.ingest.formats.bad_lines import BadLines, Reading
from controller.ingest.formats.columns import BatchBuilder, refuse_column
from controller.ingest.limits import IngestLimits
from controller.ingest.rejection import FileRejectedError
from controller.value_conversion import excerpt

DEPTH_MAX = 64
_PIECE_BYTES = 1 << 16
_ELEMENTS_SHOWN = 10

Row = Mapping[str, str | None]


def read_xml(chunks: Iterable[bytes], reading: Reading) -> Iterator[pa.RecordBatch]:
    """Yield the records of a file in order, up to the first wrong one; `bad` notes it."""
    bad, rules, names = reading.bad, reading.options.rules, reading.schema.names
    builder, known = BatchBuilder(reading.schema, rules, text=True), set(names)
    records = _Records(reading.options.record, reading.limits, bad)

    def build(rows: Sequence[Row], numbers: Sequence[int]) -> pa.RecordBatch | None:
        return builder.batch([[row.get(name) for row in rows] for name in names], numbers, bad)

    for rows, numbers in records.chunks(chunks):
        for row, number in zip(rows, numbers, strict=True):
            if not row.keys() <= known:
                unknown = next(name for name in row if name not in known)
                reading.notes.extra_columns(row.keys() - known)
                if not rules.ignore_unknown:
                    refuse_column(unknown, number, reading)
        batch = bad.sound(build, rows, numbers)
        if batch is not None:
            yield batch
        records.check_shared()
        whole = dict(zip(numbers, rows, strict=True)) if bad.rejects_rows else {}
        for number in bad.textless():
            bad.keep_text(number, json.dumps(dict(whole.get(number, {})), ensure_ascii=False))
        bad.check(len(rows))


class _Records:
    def __init__(self, record: str, limits: IngestLimits, bad: BadLines) -> None:
        self._record, self._limits, self._bad = record, limits, bad
        self._depth = 0
        self._begun: int | None = None  # the depth of the record that is open
        self._row: dict[str, str | None] = {}
        self._line = self._size = 0
        self._column: str | None = None
        self._nil = False
        self._text: list[str] = []
        self._problem = ""
        self._rows: list[Row] = []
        self._numbers: list[int] = []
        self._count = self._last_line = 0
        self._shared: set[int] = set()
        self._others: dict[str, None] = {}
        self._parser = parser = expat.ParserCreate(namespace_separator="\n")
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        parser.StartDoctypeDeclHandler = self._doctype

    def chunks(self, chunks: Iterable[bytes]) -> Iterator[tuple[list[Row], list[int]]]:
        """Yield records and the lines where they begin, at most a batch at a time."""
        fed = 0
        for chunk in chunks:
            for at in range(0, len(chunk), _PIECE_BYTES):
                piece = chunk[at : at + _PIECE_BYTES]
                self._parse(piece, last=False)
                fed += len(piece)
                # expat keeps all that it has not parsed yet in memory, such as an endless tag.
                if fed - max(0, self._parser.CurrentByteIndex) > self._limits.line_bytes_max:
                    self._too_long(self._parser.CurrentLineNumber)
                if len(self._rows) >= self._limits.batch_rows or fed % (1 << 22) < _PIECE_BYTES:
                    yield from self._taken()
        self._parse(b"", last=True)
        yield from self._taken()
        if self._count == 0 and self._others:
            others = excerpt(", ".join(list(self._others)))
            message = f"the file has no element <{self._record}>; its elements are {others}"
            raise FileRejectedError("xml_no_record", message)

    def check_shared(self) -> None:
        """Refuse the file if a wrong record begins on the same line as another record."""
        shared, self._shared = self._shared, {self._last_line} & self._shared
        if line := next((line for line in sorted(shared) if self._bad.has(line)), None):
            message = (
                "a wrong record begins on the same line as another record; in a source with "
                "`on_bad_records: reject_rows`, each record must begin on its own line"
            )
            raise FileRejectedError("xml_limits", message, line=line)

    def _taken(self) -> Iterator[tuple[list[Row], list[int]]]:
        rows, numbers, self._rows, self._numbers = self._rows, self._numbers, [], []
        if rows:
            yield rows, numbers

    def _parse(self, data: bytes, *, last: bool) -> None:
        try:
            self._parser.Parse(data, last)
        except expat.ExpatError as exc:
            said = expat.ErrorString(exc.code)
            message = f"not well-formed XML: {said}"
            if last:
                message = f"the file is truncated, or not XML: {said}"
            raise FileRejectedError(
                "xml_damaged", message, line=exc.lineno, cause=str(exc)
            ) from exc
        except (LookupError, ValueError) as exc:  # no such codec, or none of single bytes
            message = "the encoding that the file declares is not supported; write UTF-8"
            raise FileRejectedError("encoding", message, line=1, cause=excerpt(str(exc))) from exc

    def _doctype(self, *_: Any) -> NoReturn:
        message = (
            "<!DOCTYPE> is not accepted, since it can define entities and refer to other files; "
            "write the file without <!DOCTYPE>"
        )
        raise FileRejectedError("xml_doctype", message, line=self._parser.CurrentLineNumber)

    def _start(self, full_name: str, attributes: Mapping[str, str]) -> None:
        name = full_name.rpartition("\n")[2]
        self._depth += 1
        if self._depth > DEPTH_MAX:
            message = f"elements are nested deeper than {DEPTH_MAX}"
            raise FileRejectedError("xml_limits", message, line=self._parser.CurrentLineNumber)
        if self._begun is None:
            is_record = name == self._record if self._record else self._depth == 2
            if is_record:
                self._begin(attributes)
            elif self._depth > 1 and len(self._others) < _ELEMENTS_SHOWN:
                self._others[name[:100]] = None
            return
        if self._depth == self._begun + 1:
            self._close_text()
            self._column, self._text = name, []
            self._nil = any(
                key.rpartition("\n")[2] == "nil" and value in ("true", "1")
                for key, value in attributes.items()
            )
        else:
            self._wrong(
                f"<{excerpt(self._column or '')}> contains the element <{name[:100]}>; a column's "
                "element can have text only"
            )

    def _begin(self, attributes: Mapping[str, str]) -> None:
        self._begun, self._row, self._problem = self._depth, {}, ""
        self._line, self._size = self._parser.CurrentLineNumber, 0
        self._text, self._column = [], None
        for key, value in attributes.items():
            self._grow(value)
            self._put(key.rpartition("\n")[2], value)

    def _end(self, _name: str) -> None:
        if self._begun == self._depth:
            self._close_text()
            self._finish()
        elif self._begun is not None and self._depth == self._begun + 1:
            assert self._column is not None, "no child element is open"
            text = "".join(self._text)
            self._put(self._column, None if self._nil and not text else text)
            self._column, self._text = None, []
        self._depth -= 1

    def _characters(self, text: str) -> None:
        if self._begun is not None:
            self._grow(text)
            self._text.append(text)

    def _grow(self, text: str) -> None:
        self._size += len(text)
        if self._size > self._limits.line_bytes_max:
            self._too_long(self._line)

    def _too_long(self, line: int) -> NoReturn:
        message = (
            f"the record has more than {self._limits.line_bytes_max} bytes; write shorter "
            "records, or raise CBP_LINE_BYTES_MAX"
        )
        raise FileRejectedError("line_too_long", message, line=line)

    def _close_text(self) -> None:
        """Refuse text of the record itself, other than blanks between children."""
        if self._column is None and (text := "".join(self._text).strip()):
            self._wrong(f"the record has text outside its child elements: {excerpt(text)}")
        self._text = []

    def _put(self, column: str, value: str | None) -> None:
        if column in self._row:
            self._wrong(f"{excerpt(column)} occurs twice in one record")
        self._row[column] = value

    def _wrong(self, problem: str) -> None:
        self._problem = self._problem or problem

    def _finish(self) -> None:
        self._begun = None
        self._count += 1
        if self._line == self._last_line:
            self._shared.add(self._line)
        self._last_line = self._line
        if self._problem:
            if self._bad.wants(self._line):
                self._bad.add("xml_record", self._problem, line=self._line)
                self._bad.keep_text(self._line, json.dumps(self._row, ensure_ascii=False))
            return
        self._rows.append(self._row)
        self._numbers.append(self._line)
