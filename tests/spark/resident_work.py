"""Work for resident workers; they import it by this name, and nothing that costs time with it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.waiting import pause

__all__ = ["dying", "hanging", "raising", "told"]


def told(part: int, attempt: str) -> list[str]:
    """Report what it was given, where it runs, and what Spark's workers get, too."""
    print("what an author prints is no answer", flush=True)
    return [f"{part} {attempt}", str(os.getpid()), os.environ["PYTHONHASHSEED"]]


def raising(part: int, attempt: str) -> list[str]:
    """Raise what no task of ours raises."""
    raise LookupError(f"{part} {attempt}")


def dying(part: int, attempt: str) -> list[str]:
    """Die, but only the first task."""
    if not part:
        os.kill(os.getpid(), signal.SIGKILL)
    return [f"{part}"]


def hanging(mark: str, part: int, attempt: str) -> list[str]:
    """Tell that it runs, and never end."""
    Path(f"{mark}.{os.getpid()}").touch()
    while True:
        pause(0.05)
