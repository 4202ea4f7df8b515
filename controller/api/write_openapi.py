"""Writes the OpenAPI document (`openapi_document.py`), from which the page's types are made.

    python -m controller.api.write_openapi

The text depends on the routes alone: its keys are sorted, and the package's version is left out.
"""

from __future__ import annotations

import json
from pathlib import Path

import controller
from controller.api.app import describe_api

DOCUMENT = Path(controller.__file__).parent / "ui" / "openapi.json"
"""The document's place in the sources."""


def document_text() -> str:
    """Return the OpenAPI document as JSON text."""
    document = describe_api()
    document["info"]["version"] = "1"
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    DOCUMENT.write_text(document_text(), encoding="utf-8")
