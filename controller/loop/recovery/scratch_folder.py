"""Scratch folders of roll-backs: temporary, and removed also if their process was killed.

    /tmp/cbp-rollback-3f9a.../lock    locked for as long as the folder is in use
    /tmp/cbp-rollback-3f9a.../...     the scratch store

A process that is killed removes nothing. The next one of this machine and user that makes such a
folder removes those whose lock is free.

Guaranteed: a folder that is in use is never removed
(tests/controller/loop/recovery/test_scratch_folder.py).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX, _LOCK = "cbp-rollback-", "lock"


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Give a new folder for temporary files; removed at the end, as are those of dead processes.

    Raises `OSError`.
    """
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        _remove_dead(folder)
    made, lock = _make()
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
        os.close(lock)


def _make() -> tuple[Path, int]:
    """Make a folder; return it with the descriptor of its lock."""
    while True:
        made = Path(tempfile.mkdtemp(prefix=_PREFIX))
        lock = os.open(made / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if (made / _LOCK).exists():
                return made, lock
        os.close(lock)  # another process took it for that of a dead one, and removes it


def _remove_dead(folder: Path) -> None:
    """Remove a folder that nobody uses; one without a lock is being made."""
    with suppress(OSError):  # it is removed by another process, or belongs to another user
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)
