"""Records as a file: CSV by RFC 4180, or a JSON array; a page of a list as an attachment.

Guaranteed: CSV distinguishes a null from an empty string, since only strings are quoted. A nested
value, such as an array, is JSON in one cell. Values are written unchanged, even a text that a
spreadsheet would interpret as a formula.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fastapi import Response

CURSOR_HEADER = "X-CBP-Cursor"
"""Header of a page as a file: the cursor of the next page; the last page has no such header."""

TRUNCATED_HEADER = "X-CBP-Truncated"
"""Header of a query's rows as a file: `true` if the query had more rows than the file has."""


def csv_text(columns: Sequence[str], records: Sequence[Mapping[str, Any]]) -> str:
    """Return records, JSON values by column, as CSV with a header; a column left out is null."""
    return csv_of_rows(columns, ([record.get(name) for name in columns] for record in records))


def csv_of_rows(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return rows of JSON values as CSV with a header; names of columns may repeat."""
    lines = [",".join(_quoted(name) for name in columns)]
    lines += [",".join(_cell(value) for value in row) for row in rows]
    return "".join(f"{line}\r\n" for line in lines)


def json_text(records: Sequence[Mapping[str, Any]]) -> str:
    """Return records as a JSON array, one record a line."""
    lines = (json.dumps(record, ensure_ascii=False) for record in records)
    return "[\n" + ",\n".join(lines) + "\n]\n"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return _quoted(value)
    text = json.dumps(value, ensure_ascii=False)
    return _quoted(text) if isinstance(value, list | dict) else text


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


NEXT_CURSOR: dict[str, Any] = {
    "description": "Cursor of the next page; left out on the last page.",
    "schema": {"type": "string"},
}
"""The header `CURSOR_HEADER`, as the OpenAPI document describes it."""

_MEDIA_TYPES = {"csv": "text/csv; charset=utf-8", "json": "application/json"}


def file_page(content: str, filename: str, cursor: str | None) -> Response:
    """Return a page as an attachment, whose name ends with its format: `csv` or `json`."""
    headers = {
        "Content-Disposition": f'attachment; filename="{filename}"',
        "X-Content-Type-Options": "nosniff",
    }
    if cursor is not None:
        headers[CURSOR_HEADER] = cursor
    media_type = _MEDIA_TYPES[filename.rpartition(".")[2]]
    return Response(content, media_type=media_type, headers=headers)
