"""Suggests how to declare a source for a file: format, options and columns, for review.

A sample from the beginning of the file is examined, within limits. Nothing is decided for the
author: each doubtful guess is shown. The service's own reader then reads the sample as suggested,
and its refusals are shown, too. Nothing is registered.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from cbp.errors import DefinitionError
from cbp.errors.counts import format_count
from cbp.model.dataflow.dataflow import SourceNode
from cbp.model.dataflow.node_mistakes import ACCESS_LOG, COMBINED_ONLY
from cbp.model.flow.schema import Schema
from cbp.model.source.bad_records import COUNT_DEFAULT, COUNT_MAX, QUARANTINE_FILE, BadRecords
from cbp.model.source.options import ValueRules
from controller.ingest.formats.access_log import is_access_log
from controller.ingest.formats.avro import AvroContainer
from controller.ingest.formats.avro_types import record_fields
from controller.ingest.formats.bad_lines import Notes
from controller.ingest.formats.file_bytes import ClaimedContent, decompressed, sniff
from controller.ingest.formats.format_readers import read_batches
from controller.ingest.formats.parquet import damaged, open_parquet
from controller.ingest.formats.parquet_pages import ENCRYPTED_MAGIC, PLAIN_MAGIC, check_footer
from controller.ingest.limits import IngestLimits
from controller.ingest.rejection import FileRejectedError
from controller.value_conversion import excerpt, from_text

_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
_PADDED = re.compile(r"[+-]?0\d")
_DAY_ELSEWHERE = re.compile(r"\d{1,2}[./-]\d{1,2}[./-]\d{2,4}")
_ZONELESS = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?", re.ASCII)
_DEPTH_MAX = 8
_FIELDS_MAX = 200
_LOCAL = ValueRules(zone=UTC)
_TEXT_KINDS = ("BIGINT", "DECIMAL(38,0)", "DOUBLE", "BOOLEAN", "DATE", "TIMESTAMP")


@dataclass(frozen=True, slots=True)
class Column:
    """One column, as suggested by a sample; `zoneless` if it has times without a zone."""

    name: str
    type: str
    nullable: bool
    zoneless: bool = False
    doubts: tuple[str, ...] = ()

    @property
    def ddl(self) -> str:
        """The column in a schema."""
        return f"{self.name} {self.type}{'' if self.nullable else ' NOT NULL'}"


def column_name_problem(name: str) -> str:
    """Return why a schema cannot have a column of this name; `""` if it can."""
    if _NAME.fullmatch(name):
        return ""
    return (
        f"{excerpt(name)} is not a valid column name (letters, digits and '_'): rename the field "
        "in the file, or ignore it with options: {unknown: ignore}"
    )


def of_texts(name: str, cells: Sequence[str | None]) -> Column:
    """Suggest the declaration of a column from its cells, in a format whose cells are text."""
    texts = [cell for cell in cells if cell is not None]
    nullable = len(texts) < len(cells)
    if not texts:
        return Column(name, "STRING", True, doubts=("it is null in every record of the sample",))
    kind, doubts = "STRING", list[str]()
    if any(map(_PADDED.match, texts)):
        doubts.append("some of its numbers begin with 0, so the type is STRING")
    elif kinds := [kind for kind in _TEXT_KINDS if _holds(kind, texts)]:
        kind = kinds[0]
    if kind == "BIGINT" and set(texts) <= {"0", "1"}:
        doubts.append(
            "it has only the values 0 and 1, so the type is BIGINT; a BOOLEAN is written as "
            "true or false"
        )
    if kind == "STRING" and all(map(_DAY_ELSEWHERE.fullmatch, texts)):
        doubts.append("its values look like dates; a DATE is written as YYYY-MM-DD")
    zoneless = kind == "TIMESTAMP" and any(map(_ZONELESS.fullmatch, texts))
    return Column(name, kind, nullable, zoneless, tuple(doubts))


def _holds(kind: str, texts: Iterable[str]) -> bool:
    convert = from_text(Schema.parse(f"c {kind}")["c"].type, _LOCAL)
    try:
        for text in texts:
            convert(text)
    except ValueError:
        return False
    return True


def of_json(name: str, values: Sequence[Any]) -> Column:
    """Suggest the declaration of a column from JSON values; `None` means null or no value."""
    there = [value for value in values if value is not None]
    doubts, zoneless = list[str](), list[bool]()
    kind = _json_type(there, doubts, zoneless, 0)
    return Column(name, kind, len(there) < len(values), any(zoneless), tuple(doubts))


def _json_type(values: Sequence[Any], doubts: list[str], zoneless: list[bool], depth: int) -> str:
    if not values:
        doubts.append("it is null or empty in every record of the sample, so its type is unknown")
        return "STRING"
    kinds = set(map(type, values))
    if kinds == {bool}:
        return "BOOLEAN"
    if kinds == {int}:
        return (
            "BIGINT" if all(-(1 << 63) <= value < 1 << 63 for value in values) else "DECIMAL(38,0)"
        )
    if kinds <= {int, float}:
        if int in kinds:
            doubts.append("some of its values are whole numbers, which become DOUBLE")
        return "DOUBLE"
    if kinds == {str}:
        return _json_text(values, zoneless)
    if depth < _DEPTH_MAX and kinds == {list}:
        items = [item for value in values for item in value if item is not None]
        return f"ARRAY<{_json_type(items, doubts, zoneless, depth + 1)}>"
    if depth < _DEPTH_MAX and kinds == {dict}:
        return _struct(values, doubts, zoneless, depth)
    names = ", ".join(sorted(kind.__name__ for kind in kinds))
    doubts.append(f"its values have several kinds ({names}), and no type can hold them all")
    return "STRING"


def _json_text(values: Sequence[str], zoneless: list[bool]) -> str:
    for kind in ("DATE", "TIMESTAMP"):
        if _holds(kind, values):
            zoneless.append(kind == "TIMESTAMP" and any(map(_ZONELESS.fullmatch, values)))
            return kind
    return "STRING"


def _struct(
    values: Sequence[Mapping[str, Any]], doubts: list[str], zoneless: list[bool], depth: int
) -> str:
    names = list(dict.fromkeys(name for value in values for name in value))
    bad = next((name for name in names if not _NAME.fullmatch(name)), None)
    if bad is not None or len(names) > _FIELDS_MAX or not names:
        items = [item for value in values for item in value.values() if item is not None]
        doubts.append("its keys are not valid field names, so its type is a MAP")
        return f"MAP<STRING, {_json_type(items, doubts, zoneless, depth + 1)}>"
    fields = []
    for name in names:
        inner = [value[name] for value in values if value.get(name) is not None]
        fields.append(f"{name}: {_json_type(inner, doubts, zoneless, depth + 1)}")
    return f"STRUCT<{', '.join(fields)}>"


SAMPLE_RECORDS = 10_000
SAMPLE_BYTES = 8 << 20
_NEW_COLUMN_RECORDS, _NEW_COLUMNS = 1_000, 20
_DELIMITERS = ",;\t|"
_WORD = re.compile(r"[A-Za-z_][\w .-]*")


@dataclass(frozen=True, slots=True)
class Suggestion:
    """The source that a file suggests; `misfits` counts the lines that are not of the format."""

    format: str
    columns: tuple[Column, ...]
    options: Mapping[str, str] = field(default_factory=dict)
    records: int = 0
    whole: bool = True
    doubts: tuple[str, ...] = ()
    misfits: int = 0

    @property
    def schema(self) -> str:
        """The columns as a schema."""
        return ", ".join(column.ddl for column in self.columns)

    def doubting(self, doubt: str, **options: str) -> Suggestion:
        """Return the suggestion with one more doubt, and further options."""
        return replace(self, options={**self.options, **options}, doubts=(*self.doubts, doubt))

    @property
    def bad_records(self) -> BadRecords:
        """A policy that rejects only wrong records, with a limit that allows for the misfits."""
        if not self.misfits:
            return QUARANTINE_FILE
        return BadRecords(COUNT_DEFAULT if self.misfits * 2 <= COUNT_DEFAULT else COUNT_MAX)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        own = [f"column {c.name}: {doubt}" for c in self.columns for doubt in c.doubts]
        return {
            "format": self.format,
            "schema": self.schema,
            "options": dict(self.options),
            "on_bad_records": self.bad_records.to_json() if self.misfits else None,
            "sampled_records": self.records,
            "whole_file": self.whole,
            "doubts": [*self.doubts, *own],
        }


def suggest_source(path: Path, *, records: int = SAMPLE_RECORDS) -> Suggestion:
    """Return the suggestion for a file; raises `FileRejectedError` or `OSError`."""
    limits = IngestLimits()
    made = _suggested(path, limits, records)
    zoneless = [column.name for column in made.columns if column.zoneless]
    if zoneless:
        doubt = f"times of {', '.join(zoneless)} have no zone: UTC is a guess"
        made = made.doubting(doubt, timezone="UTC")
    return replace(made, doubts=(*made.doubts, *_tried(path, made, limits, records)))


def suggest_columns(path: Path, source: SourceNode) -> tuple[Column, ...]:
    """Return the columns in the first records of a file that its source's schema lacks.

    There are none if the file suggests another format than its source has, or cannot be read.
    """
    try:
        made = _suggested(path, IngestLimits(), _NEW_COLUMN_RECORDS)
    except (FileRejectedError, OSError, ValueError, RecursionError):
        return ()
    known = {name.lower() for name in source.schema.names}
    new = [column for column in made.columns if column.name.lower() not in known]
    return tuple(new[:_NEW_COLUMNS]) if made.format == source.format else ()


def _suggested(path: Path, limits: IngestLimits, records: int) -> Suggestion:
    with ClaimedContent(str(path), limits) as content:
        head = content.peek(4)
        if head in (PLAIN_MAGIC, ENCRYPTED_MAGIC):
            return _parquet(content)
        if head == b"Obj\x01":
            return _avro(content, limits)
        return _text(content, limits, records)


def _tried(path: Path, made: Suggestion, limits: IngestLimits, records: int) -> Iterator[str]:
    if not made.columns:
        yield "no column can be declared"
        return
    count = 0
    try:
        schema, bad = Schema.parse(made.schema), made.bad_records
        source = SourceNode("s", schema, made.format, made.options, on_bad_records=bad)
        with ClaimedContent(str(path), limits) as content:
            for batch in read_batches(content, source, limits, Notes(), file=path.name):
                count += batch.num_rows
                if count >= records:
                    return
    except DefinitionError as error:
        yield error.message
    except FileRejectedError as error:
        line = "" if error.line is None else f"line {error.line}: "
        yield f"the file would be refused: {line}{error.message}"


def _parquet(content: ClaimedContent) -> Suggestion:
    file = content.seekable()
    check_footer(file.fileno(), content.size)
    try:
        whole = open_parquet(file)
    except (pa.ArrowException, OSError) as exc:
        raise damaged(exc) from exc
    fields = [(one.name, one.type, one.nullable) for one in whole.schema_arrow]
    return _typed("parquet", fields, whole.metadata.num_rows)


def _avro(content: ClaimedContent, limits: IngestLimits) -> Suggestion:
    fields = record_fields(AvroContainer(content, limits).schema)
    typed = [(name, one.arrow, one.name == "null" or "null" in one.name) for name, one in fields]
    return _typed("avro", typed, 0)


def _typed(
    format_: str, fields: Sequence[tuple[str, pa.DataType | None, bool]], records: int
) -> Suggestion:
    columns, doubts = list[Column](), list[str]()
    for name, type_, nullable in fields:
        problem = column_name_problem(name)
        kind = None if type_ is None else _sql_type(type_)
        if problem or kind is None:
            doubts.append(problem or f"column {name!r} has an unsupported type, so it is ignored")
            continue
        zoneless = type_ is not None and pt.is_timestamp(type_) and type_.tz is None
        columns.append(Column(name, kind, nullable, zoneless))
    options = {"unknown": "ignore"} if doubts else {}
    return Suggestion(format_, tuple(columns), options, records, True, tuple(doubts))


_SQL: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pt.is_int8, "TINYINT"),
    (pt.is_int16, "SMALLINT"),
    (pt.is_int32, "INT"),
    (pt.is_integer, "BIGINT"),
    (pt.is_float32, "FLOAT"),
    (pt.is_floating, "DOUBLE"),
    (pt.is_boolean, "BOOLEAN"),
    (pt.is_date32, "DATE"),
    (pt.is_timestamp, "TIMESTAMP"),
    (pt.is_string, "STRING"),
    (pt.is_large_string, "STRING"),
    (pt.is_null, "STRING"),
    (pt.is_binary, "BINARY"),
    (pt.is_large_binary, "BINARY"),
    (pt.is_fixed_size_binary, "BINARY"),
)


def _sql_type(type_: pa.DataType) -> str | None:
    """Return an Arrow type as a schema spells it; `None` if no schema has it."""
    if pt.is_dictionary(type_):
        return _sql_type(type_.value_type)
    if pt.is_decimal(type_):
        return f"DECIMAL({type_.precision},{type_.scale})" if type_.precision <= 38 else None
    if pt.is_list(type_) or pt.is_large_list(type_):
        inner = _sql_type(type_.value_type)
        return inner and f"ARRAY<{inner}>"
    if pt.is_map(type_):
        key, item = _sql_type(type_.key_type), _sql_type(type_.item_type)
        return f"MAP<{key}, {item}>" if key and item else None
    if pt.is_struct(type_):
        inner_types = [(one.name, _sql_type(one.type)) for one in type_]
        if any(kind is None or column_name_problem(name) for name, kind in inner_types):
            return None
        return f"STRUCT<{', '.join(f'{name}: {kind}' for name, kind in inner_types)}>"
    return next((kind for fits, kind in _SQL if fits(type_)), None)


def _text(content: ClaimedContent, limits: IngestLimits, records: int) -> Suggestion:
    compression = sniff(content)
    data, whole = b"", True
    for chunk in decompressed(content, compression, limits):
        data += chunk
        if len(data) > SAMPLE_BYTES:
            data, whole = data[:SAMPLE_BYTES].rpartition(b"\n")[0] + b"\n", False
            break
    text, encoding = _decoded(data)
    open_end = bool(data) and not data.endswith(b"\n")
    lines = text.removesuffix("\n").split("\n") if text else []
    lines = [line.removesuffix("\r") for line in lines]
    whole = whole and len(lines) <= records
    made = _of_lines(lines[:records])
    if made.format != "jsonl":
        if encoding != "utf-8":
            doubt = f"the file is not UTF-8: {encoding} is a guess"
            made = made.doubting(doubt, encoding=encoding)
        if open_end:
            doubt = (
                "the last line has no line end: the file may be truncated, or its producer never "
                "writes the last line end"
            )
            made = made.doubting(doubt, final_newline="optional")
    return replace(made, whole=whole)


def _decoded(data: bytes) -> tuple[str, str]:
    for encoding in ("utf-8", "windows-1252"):
        with suppress(UnicodeDecodeError):
            return data.decode(encoding).removeprefix("\ufeff"), encoding
    return data.decode("latin-1"), "latin-1"  # has every byte


def _of_lines(lines: Sequence[str]) -> Suggestion:
    filled = [line for line in lines if line.strip()]
    if not filled:
        column = Column("line", "STRING", True)
        return Suggestion("text", (column,), {}, len(lines), doubts=("the file has no records",))
    if filled[0].lstrip().startswith("<"):
        doubt = "the file looks like XML: declare its columns yourself, and options: {record: ...}"
        return Suggestion("xml", (), {}, 0, doubts=(doubt,))
    rows = [_object(line) for line in lines]
    wrong = _misfits(lines, [row is not None for row in rows])
    if _mostly(wrong, len(filled)) or _object(filled[0]) is not None:
        made = _jsonl([row for row in rows if row is not None])
        return _with_misfits(made, wrong, len(filled))
    for layout in ("combined", "common"):
        fits = [is_access_log(line, combined=layout == "combined") for line in lines]
        if _mostly(wrong := _misfits(lines, fits), len(filled)):
            made = _access_log(layout, len(filled) - len(wrong))
            return _with_misfits(made, wrong, len(filled))
    return _csv(lines) or Suggestion("text", (Column("line", "STRING", False),), {}, len(lines))


def _misfits(lines: Sequence[str], fits: Sequence[bool]) -> list[int]:
    """Return the numbers of the lines that do not fit, from 1; blank lines are not records."""
    numbered = enumerate(zip(lines, fits, strict=True), 1)
    return [number for number, (line, is_fit) in numbered if not is_fit and line.strip()]


def _mostly(misfits: Sequence[int], records: int) -> bool:
    """Return whether most lines fit, so that the others are broken lines, not another format.

    In a short sample, one line may be broken if there are at least two others.
    """
    count = len(misfits)
    return count * 20 <= records or (count == 1 and records > 2)


def _with_misfits(made: Suggestion, misfits: Sequence[int], records: int) -> Suggestion:
    if not misfits or not _mostly(misfits, records):
        return made
    verb = "is" if len(misfits) == 1 else "are"
    doubt = (
        f"{len(misfits):,} of {format_count(records, 'line')} {verb} not valid {made.format}: the "
        f"first is line {misfits[0]}; the suggested on_bad_records rejects only such records, not "
        "the file"
    )
    return replace(made.doubting(doubt), misfits=len(misfits))


def _object(line: str) -> dict[str, Any] | None:
    if not line.lstrip().startswith("{"):
        return None
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _jsonl(rows: Sequence[Mapping[str, Any]]) -> Suggestion:
    columns, doubts = list[Column](), list[str]()
    for name in dict.fromkeys(name for row in rows for name in row):
        if problem := column_name_problem(name):
            doubts.append(problem)
        else:
            columns.append(of_json(name, [row.get(name) for row in rows]))
    options = {"unknown": "ignore"} if doubts else {}
    return Suggestion("jsonl", tuple(columns), options, len(rows), doubts=tuple(doubts))


def _access_log(layout: str, records: int) -> Suggestion:
    names = [name for name in ACCESS_LOG if layout == "combined" or name not in COMBINED_ONLY]
    required = ("host", "time", "status")
    columns = [Column(name, ACCESS_LOG[name][-1], name not in required) for name in names]
    options = {} if layout == "combined" else {"layout": "common"}
    return Suggestion("access_log", tuple(columns), options, records)


def _csv(lines: Sequence[str]) -> Suggestion | None:
    best: tuple[int, str, list[tuple[int, list[str]]]] | None = None
    for delimiter in _DELIMITERS:
        try:
            reader = csv.reader(lines, delimiter=delimiter, strict=True)
            rows = [(reader.line_num, row) for row in reader if row]
        except csv.Error:
            continue
        width = len(rows[0][1]) if rows else 0
        even = sum(len(row) == width for _, row in rows)
        if width > 1 and even * 10 >= len(rows) * 9 and (best is None or width > best[0]):
            best = width, delimiter, rows
    if best is None:
        return None
    width, delimiter, rows = best
    options = {} if delimiter == "," else {"delimiter": delimiter}
    names, doubts = rows[0][1], list[str]()
    header = len(set(names)) == width and all(map(_WORD.fullmatch, names))
    if not header:
        names, options = [f"c{at}" for at in range(1, width + 1)], options | {"header": "false"}
        doubts.append("the first line does not look like column names, so names are generated")
    body = rows[1 if header else 0 :]
    records = [row for _, row in body if len(row) == width]
    misfits = [number for number, row in body if len(row) != width]
    columns = list[Column]()
    for at, name in enumerate(names):
        if problem := column_name_problem(name):
            doubts.append(problem)
            options["unknown"] = "ignore"
        else:
            columns.append(of_texts(name, [row[at] or None for row in records]))
    made = Suggestion("csv", tuple(columns), options, len(records), doubts=tuple(doubts))
    return _with_misfits(made, misfits, len(body))
