"""Scratch folders: each is written only by the process that made it, and removed after its end.

    <root>/spark-3f9a.../lock       locked for as long as the folder is in use
    <root>/spark-3f9a.../...        temporary files of Spark, its JVM and its Python workers

A process that is killed removes nothing: Spark leaves some 90 MB. The next process of this machine
and user that makes a folder of the same kind removes all such folders whose lock is free.

Guaranteed: a folder that is in use is never removed
(tests/cbp/engine/storage/test_scratch_folders.py).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_LOCK = "lock"


def take_scratch(root: Path, prefix: str) -> tuple[Path, int]:
    """Make a scratch folder below `root` for this process; remove those of dead processes.

    Also returns the file descriptor of its lock; keep it open while the folder is in use.
    """
    for folder in root.glob(f"{prefix}*"):
        _remove_dead(folder)
    while True:
        made = Path(tempfile.mkdtemp(prefix=prefix, dir=root))
        lock = os.open(made / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if (made / _LOCK).exists():
                return made, lock
        os.close(lock)  # another process took the folder for a dead one's, and removes it


@contextmanager
def scratch_folder(prefix: str) -> Iterator[Path]:
    """Yield a scratch folder in the system's folder for temporary files; remove it at the end."""
    folder, lock = take_scratch(Path(tempfile.gettempdir()), prefix)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _remove_dead(folder: Path) -> None:
    """Remove a folder that no process uses; skip one without a lock, which is being made."""
    with suppress(OSError):  # it is removed by another process, or belongs to another user
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)
