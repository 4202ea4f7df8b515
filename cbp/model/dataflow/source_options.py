"""Options of a source: the CSV dialect, time zones, and the handling of unknown columns.

All values are text:

    unknown        "refuse" (default): a key or column that is not in the schema rejects the file,
                   since a misspelt one would become nulls; "ignore": it is left out, and noted
    timezone       zone of times that have no zone, such as "UTC", "+02:00" or "Europe/Berlin";
                   without this option, a time without a zone is rejected

and for CSV:

    header         "true" (default): the first line names the columns, in any order
    delimiter      one character, "," by default
    quote          one character, '"' by default; "" when nothing is quoted
    null           the unquoted text that means null, "" by default
    final_newline  "required" (default): a last line without a line end is rejected, since a
                   file that was cut off inside its last value looks the same;
                   "optional": it is accepted, and noted

JSON lines need no `final_newline`, since an object that was cut off is not valid JSON.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

__all__ = ["STRICT", "CsvOptions", "ReadOptions", "ValueRules"]

_OFFSET = re.compile(r"([+-])(\d{2}):(\d{2})", re.ASCII)
_COMMON = ("unknown", "timezone")
_CSV = ("header", "delimiter", "quote", "null", "final_newline")


@dataclass(frozen=True, slots=True)
class ValueRules:
    """How a source's values are read.

    Attributes:
        zone: Zone of times that have none; `None`: such times are refused.
        ignore_unknown: Whether keys that are not in a STRUCT are left out.
    """

    zone: tzinfo | None = None
    ignore_unknown: bool = False


STRICT = ValueRules()


@dataclass(frozen=True, slots=True)
class CsvOptions:
    """How a CSV file is written; see the module header."""

    header: bool = True
    delimiter: str = ","
    quote: str = '"'
    null: str = ""
    final_newline_required: bool = True


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How a source's files are read; see the module header."""

    rules: ValueRules = STRICT
    csv: CsvOptions = field(default_factory=CsvOptions)

    @classmethod
    def parse(cls, format_: str, options: Mapping[str, Any]) -> ReadOptions:
        """Read a source's options.

        Raises:
            ValueError: An option is wrong. The message names it and what is allowed.
        """
        known = (*_COMMON, *_CSV) if format_ == "csv" else _COMMON
        for name, value in options.items():
            if name not in known:
                message = f"{name!r} is no option of {format_}; use one of {', '.join(known)}"
                raise ValueError(message)
            if not isinstance(value, str):
                message = f"{name} must be text, not {value!r}; write it in quotes"
                raise ValueError(message)
        rules = ValueRules(
            zone=_zone(options["timezone"]) if "timezone" in options else None,
            ignore_unknown=not _is_first(options, "unknown", "refuse", "ignore"),
        )
        return cls(rules, _csv_options(options) if format_ == "csv" else CsvOptions())


def _csv_options(options: Mapping[str, str]) -> CsvOptions:
    made = CsvOptions(
        header=_is_first(options, "header", "true", "false"),
        delimiter=options.get("delimiter", ","),
        quote=options.get("quote", '"'),
        null=options.get("null", ""),
        final_newline_required=_is_first(options, "final_newline", "required", "optional"),
    )
    if len(made.delimiter) != 1 or made.delimiter in "\r\n\0\ufeff":
        message = f"delimiter must be one character, not {made.delimiter!r}"
        raise ValueError(message)
    if len(made.quote) > 1 or made.quote in ("\r", "\n", "\0", "\ufeff", made.delimiter):
        message = f"quote must be one character, not the delimiter, or empty; not {made.quote!r}"
        raise ValueError(message)
    if made.delimiter in made.null or "\n" in made.null or "\r" in made.null:
        message = f"null must be text that a cell can hold, not {made.null!r}"
        raise ValueError(message)
    if made.quote and made.quote in made.null:
        message = f"null is text without quotes, not {made.null!r}"
        raise ValueError(message)
    return made


def _is_first(options: Mapping[str, str], name: str, first: str, second: str) -> bool:
    """Return whether an option is its first, default value."""
    value = options.get(name, first)
    if value.lower() not in (first, second):
        message = f"{name} must be {first!r} or {second!r}, not {value!r}"
        raise ValueError(message)
    return value.lower() == first


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
        message = f"timezone must be UTC, an offset such as +02:00, or a zone's name; not {name!r}"
        raise ValueError(message) from exc
