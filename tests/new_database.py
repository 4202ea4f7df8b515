"""A new SQLite database of the store, copied: to migrate each one takes as long as a small test."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from controller.store.base import open_store

__all__ = ["put_new_database"]


def put_new_database(path: Path) -> None:
    """Put a database of the newest schema at a path, unless there is a file."""
    if path.exists():
        return
    path.touch(0o600)
    path.write_bytes(_content())


@cache
def _content() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "cbp.db")
        open_store(f"sqlite:///{path}").close()
        return path.read_bytes()
