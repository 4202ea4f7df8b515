"""Scratch folder of one Spark driver: only this driver writes it; removed after its process ends.

    <root>/spark-3f9a.../lock    locked for as long as the process lives
    <root>/spark-3f9a.../...     temporary files of Spark, its JVM and its Python workers

A process that is killed removes nothing: Spark leaves some 90 MB. The next driver that starts
below the same root removes every folder whose lock is free; these belong to dead processes of
this machine and user. The root is in the system's folder for temporary files, since sockets are
in it too, and their paths have to be short.

Guaranteed: a folder whose process lives is never removed (tests/cbp/engine/test_spark_scratch.py).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from cbp.errors import SparkSettingError

_PREFIX = "spark-"
_LOCK = "lock"


def root_of_user() -> Path:
    """Return the root of the scratch folders of this user on this machine."""
    return Path(tempfile.gettempdir()) / f"cbp-scratch-{os.geteuid()}"


def take_scratch(root: Path) -> tuple[Path, int]:
    """Make a scratch folder for this process; remove the folders of dead processes.

    Args:
        root: A folder on a disk of this machine; made if it is missing.

    Returns:
        The folder, and the file descriptor of its lock; keep it open while the folder is in use.

    Raises:
        SparkSettingError: If the root is a link, or belongs to another user.
    """
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    if root.is_symlink() or root.stat().st_uid != os.geteuid():
        found = f"{root}, which belongs to another user"
        raise SparkSettingError("TMPDIR", found=found, expected="one of ours")
    turn = os.open(root / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        # One process at a time: a folder is made and locked before another process sees it.
        fcntl.flock(turn, fcntl.LOCK_EX)
        for folder in sorted(root.glob(f"{_PREFIX}*")):
            _remove_dead(folder)
        made = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=root))
        lock = os.open(made / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(turn)
    return made, lock


def _remove_dead(folder: Path) -> None:
    if folder.is_symlink() or not folder.is_dir():
        return
    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return  # its process lives
    else:
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)
