"""The folder of one call of the demo, and when it is removed.

    ended well, nothing kept          removed
    interrupted (Ctrl-C, SIGTERM)     removed
    ended well with --keep or --root  stays
    failed                            stays, since the log and the tables show why

Guaranteed: SIGTERM and SIGHUP unwind like Ctrl-C, so that the service is stopped.
"""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

from controller.demo.errors import FolderUnusableError

__all__ = ["interruptible", "new_folder", "removed_at_end"]

_PREFIX = "cbp-demo-"
_SIGNAL_STATUS = 128


def new_folder(root: Path | None) -> Path:
    """Create a new folder, in `root` or in the system's temporary folder.

    Raises:
        FolderUnusableError: If it cannot be created.
    """
    try:
        if root is not None:
            root.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=_PREFIX, dir=root)).resolve()
    except OSError as error:
        where = str(root or tempfile.gettempdir())
        raise FolderUnusableError(where, error.strerror or str(error)) from error


@contextmanager
def removed_at_end(folder: Path, *, stays: bool) -> Iterator[None]:
    """Remove the folder at the end, with the exceptions in the module header."""
    try:
        yield
    except Exception:
        raise
    except BaseException:  # interrupted
        shutil.rmtree(folder, ignore_errors=True)
        raise
    if not stays:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def interruptible() -> Iterator[None]:
    """Make SIGTERM and SIGHUP raise `SystemExit` inside this context."""
    before = {which: signal.signal(which, _exit) for which in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for which, handler in before.items():
            signal.signal(which, handler)


def _exit(number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(_SIGNAL_STATUS + number)
