"""A single process serves a SQLite database: a lock file beside it refuses a second controller.

The lock belongs to the open file, so a killed process leaves none behind. On PostgreSQL several
instances may run, and one of them leads (`controller.loop.leadership.lease_keeper`).
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from controller.store.errors import DatabaseInUseError


def lock_file(path: Path) -> int:
    """Take the lock file of a database; return its descriptor.

    Raises `DatabaseInUseError`, `OSError`.
    """
    file = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as exc:
        holder = os.read(file, 20).decode(errors="replace").strip()
        os.close(file)
        raise DatabaseInUseError(str(path), holder) from exc
    os.ftruncate(file, 0)
    os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
    return file
