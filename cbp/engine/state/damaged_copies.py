"""Log of the index copies that were found damaged on this machine.

    <cache>/damaged.jsonl     a line per copy: when, which copy, of which data file, and why

Tasks find the damage, in processes that end; users ask the service for it. Nothing needs these
notes, so a note that cannot be written is skipped. The file is bounded: the newest half stays.
"""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import Any

__all__ = ["NOTES_BYTES_MAX", "dropped_copies", "note_dropped"]

NOTES_BYTES_MAX = 256 << 10

_NAME = "damaged.jsonl"


def note_dropped(cache: Path, *, copy: Path, source: str, why: str) -> dict[str, Any]:
    """Record that a copy was dropped; return the note."""
    note = {"at": round(time.time(), 3), "copy": str(copy), "file": source, "why": why}
    path = cache / _NAME
    with contextlib.suppress(OSError):
        if path.exists() and path.stat().st_size > NOTES_BYTES_MAX:
            lines = path.read_bytes().splitlines(keepends=True)
            path.write_bytes(b"".join(lines[len(lines) // 2 :]))
        with path.open("ab") as file:
            file.write(json.dumps(note, separators=(",", ":")).encode() + b"\n")
    return note


def dropped_copies(cache: Path) -> list[dict[str, Any]]:
    """Return the notes, oldest first; unreadable lines are skipped."""
    notes: list[dict[str, Any]] = []
    with contextlib.suppress(OSError):
        for line in (cache / _NAME).read_bytes().splitlines():
            with contextlib.suppress(ValueError):
                notes.append(json.loads(line))
    return notes
