"""Options of a source: dialects, encodings, time zones, and the handling of unknown columns.

All values are text. `OPTIONS` lists the options of each format:

    unknown        "refuse" (default): a key or column that is not in the schema rejects the file,
                   since a misspelt one would become nulls; "ignore": it is left out, and noted;
                   "add" (not for delta): the column joins the schema, as a new version
    timezone       zone of times that have no zone, such as "UTC", "+02:00" or "Europe/Berlin";
                   without this option, a time without a zone is rejected
    encoding       "utf-8" (default), "latin-1", "windows-1252" or "iso-8859-15"
    final_newline  "required" (default): a last line without a line end is rejected, since a
                   file that was cut off inside its last value looks the same;
                   "optional": it is accepted, and noted
    header         "true" (default): the first line names the columns, in any order
    delimiter      one character, "," by default
    quote          one character, '"' by default; "" when nothing is quoted
    null           the unquoted text that means null, "" by default
    file_name      name of the column that gets the name of the file
    line_number    name of the column that gets the number of the line, from 1
    layout         "combined" (default) or "common": what a line of an access log holds
    record         name of the elements of an XML file that are records; without it, every child
                   of the root is one
    table          folder of the Delta table whose changes are taken in, absolute or below the first
                   folder of CBP_SOURCE_ROOTS
    sign           name of the column that gets +1 or -1, "sign" by default
    change_type    name of the column that gets insert, update_before, update_after or delete;
                   by default none

JSON lines need no `final_newline`, since an object that was cut off is not valid JSON.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, timedelta, timezone, tzinfo
from types import MappingProxyType
from typing import Any
from zoneinfo import ZoneInfo

_OFFSET = re.compile(r"([+-])(\d{2}):(\d{2})", re.ASCII)
_COMMON = ("unknown", "timezone")
_LINES = ("encoding", "final_newline")
_NAMED = ("file_name", "line_number")
OPTIONS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "jsonl": _COMMON,
        "csv": (*_COMMON, "header", "delimiter", "quote", "null", *_LINES),
        "parquet": _COMMON,
        "avro": _COMMON,
        "text": (*_LINES, *_NAMED),
        "access_log": (*_LINES, *_NAMED, "layout"),
        "xml": (*_COMMON, "record"),
        "delta": (*_COMMON, "table", "sign", "change_type"),
    }
)
"""Maps each format to its options."""

ADDS_COLUMNS = "add"
"""Value of the option `unknown` by which a file's new columns are added to the schema. A file with
keys that a STRUCT lacks is refused, as by default."""

ENCODINGS = ("utf-8", "latin-1", "windows-1252", "iso-8859-15")
"""Encodings of text; in each, the byte of a line end has no other meaning."""

_ELEMENT = re.compile(r"[^\W\d][\w.-]*")


@dataclass(frozen=True, slots=True)
class ValueRules:
    """How a source's values are read.

    Attributes:
        zone: Zone for times without one; `None` means that such times are refused.
        ignore_unknown: Whether columns that the schema lacks, and keys that are not in a STRUCT,
            are left out.
        add_unknown: Whether columns that the schema lacks are added to it.
    """

    zone: tzinfo | None = None
    ignore_unknown: bool = False
    add_unknown: bool = False


STRICT = ValueRules()


@dataclass(frozen=True, slots=True)
class LineOptions:
    """How text is cut into lines, and the columns for a line's place; `""` means no column."""

    encoding: str = "utf-8"
    final_newline_required: bool = True
    file_name: str = ""
    line_number: str = ""


@dataclass(frozen=True, slots=True)
class CsvOptions:
    """How a CSV file is written; see the module header."""

    header: bool = True
    delimiter: str = ","
    quote: str = '"'
    null: str = ""


@dataclass(frozen=True, slots=True)
class DeltaOptions:
    """The table to read, and the columns for the change of a row; `""` means no column."""

    table: str = ""
    sign: str = "sign"
    change_type: str = ""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How a source's files are read; see the module header."""

    rules: ValueRules = STRICT
    lines: LineOptions = field(default_factory=LineOptions)
    csv: CsvOptions = field(default_factory=CsvOptions)
    combined: bool = True
    record: str = ""
    delta: DeltaOptions = field(default_factory=DeltaOptions)

    @classmethod
    def parse(cls, format_: str, options: Mapping[str, Any]) -> ReadOptions:
        """Read a source's options; a `ValueError` names the wrong one and the allowed values."""
        known = OPTIONS[format_]
        for name, value in options.items():
            if name not in known:
                message = f"{name!r} is not an option of {format_}; use one of {', '.join(known)}"
                raise ValueError(message)
            if not isinstance(value, str):
                message = f"{name} must be a string, not {value!r}; write it in quotes"
                raise ValueError(message)
        zone = _zone(options["timezone"]) if "timezone" in options else None
        unknown = _unknown(format_, options)
        rules = ValueRules(zone, unknown == "ignore", unknown == ADDS_COLUMNS)
        record = options.get("record", "")
        if record and not _ELEMENT.fullmatch(record):
            wanted = "the name of an XML element, without a namespace prefix"
            message = f"record must be {wanted}, not {record!r}"
            raise ValueError(message)
        return cls(
            rules,
            _line_options(options),
            _csv_options(options) if format_ == "csv" else CsvOptions(),
            _is_first(options, "layout", "combined", "common"),
            record,
            _delta_options(options) if format_ == "delta" else DeltaOptions(),
        )


def _line_options(options: Mapping[str, str]) -> LineOptions:
    encoding = options.get("encoding", "utf-8").lower()
    if encoding not in ENCODINGS:
        message = f"encoding must be one of {', '.join(ENCODINGS)}, not {encoding!r}"
        raise ValueError(message)
    return LineOptions(
        encoding,
        _is_first(options, "final_newline", "required", "optional"),
        options.get("file_name", ""),
        options.get("line_number", ""),
    )


def _csv_options(options: Mapping[str, str]) -> CsvOptions:
    made = CsvOptions(
        header=_is_first(options, "header", "true", "false"),
        delimiter=options.get("delimiter", ","),
        quote=options.get("quote", '"'),
        null=options.get("null", ""),
    )
    message = ""
    if len(made.delimiter) != 1 or made.delimiter in "\r\n\0\ufeff":
        message = f"delimiter must be one character other than a line break, not {made.delimiter!r}"
    elif len(made.quote) > 1 or made.quote in ("\r", "\n", "\0", "\ufeff", made.delimiter):
        wanted = "empty, or one character other than the delimiter and a line break"
        message = f"quote must be {wanted}, not {made.quote!r}"
    elif made.delimiter in made.null or "\n" in made.null or "\r" in made.null:
        message = f"null must not contain the delimiter or a line break; got {made.null!r}"
    elif made.quote and made.quote in made.null:
        message = f"null must not contain the quote character; got {made.null!r}"
    if message:
        raise ValueError(message)
    return made


def _delta_options(options: Mapping[str, str]) -> DeltaOptions:
    table = options.get("table", "")
    if not table:
        message = "table must name the folder of a Delta table"
        raise ValueError(message)
    if "\0" in table or "://" in table or ".." in table.split("/"):
        message = f"table must be the path of a folder on this machine, without `..`, not {table!r}"
        raise ValueError(message)
    return DeltaOptions(table, options.get("sign", "sign"), options.get("change_type", ""))


def _is_first(options: Mapping[str, str], name: str, first: str, second: str) -> bool:
    value = options.get(name, first)
    if value.lower() not in (first, second):
        message = f"{name} must be {first!r} or {second!r}, not {value!r}"
        raise ValueError(message)
    return value.lower() == first


def _unknown(format_: str, options: Mapping[str, str]) -> str:
    value = options.get("unknown", "refuse")
    allowed = ("refuse", "ignore", *((ADDS_COLUMNS,) if format_ != "delta" else ()))
    if value.lower() not in allowed:
        message = f"unknown must be one of {', '.join(map(repr, allowed))}, not {value!r}"
        raise ValueError(message)
    return value.lower()


def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    if offset := _OFFSET.fullmatch(name):
        sign = -1 if offset[1] == "-" else 1
        minutes = int(offset[2]) * 60 + int(offset[3])
        if int(offset[3]) < 60 and minutes <= 18 * 60:
            return timezone(sign * timedelta(minutes=minutes))
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as exc:
        wanted = "UTC, an offset such as +02:00, or the name of a time zone such as Europe/Berlin"
        message = f"timezone must be {wanted}, not {name!r}"
        raise ValueError(message) from exc
