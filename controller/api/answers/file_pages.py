"""A page of a list as an attachment, with the cursor of the next page in a header."""

from __future__ import annotations

from typing import Any

from fastapi import Response

from controller.api.answers.record_files import CURSOR_HEADER

NEXT_CURSOR: dict[str, Any] = {
    "description": "Cursor of the next page; left out with the last one.",
    "schema": {"type": "string"},
}
"""The header as the OpenAPI document describes it."""

_MEDIA_TYPES = {"csv": "text/csv; charset=utf-8", "json": "application/json"}


def file_page(content: str, filename: str, cursor: str | None) -> Response:
    """Return a page as an attachment.

    Args:
        content: The file.
        filename: Its name, which ends with its format: `csv` or `json`.
        cursor: Cursor of the next page; `None` if no page follows.
    """
    headers = {
        "Content-Disposition": f'attachment; filename="{filename}"',
        "X-Content-Type-Options": "nosniff",
    }
    if cursor is not None:
        headers[CURSOR_HEADER] = cursor
    media_type = _MEDIA_TYPES[filename.rpartition(".")[2]]
    return Response(content, media_type=media_type, headers=headers)
