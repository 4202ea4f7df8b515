"""How tests wait for what another thread or process does: they look again and again.

A wait that succeeds costs nothing, so each gives up late: a busy machine is no reason to fail.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

__all__ = ["PATIENCE_SECONDS", "looks", "pause", "until", "wait_for_file"]

PATIENCE_SECONDS = 120.0

T = TypeVar("T")


def looks(
    why: Callable[[], object] = lambda: "did not happen in time",
    *,
    seconds: float = PATIENCE_SECONDS,
    pause_seconds: float = 0.01,
) -> Iterator[None]:
    """Yield for each look, a little apart; fail once the time is over.

    Args:
        why: Returns what to say then.
        seconds: How long it may take.
        pause_seconds: Between two looks; 0 if a look itself takes time.
    """
    deadline = time.monotonic() + seconds
    while True:
        yield
        assert time.monotonic() < deadline, why()
        if pause_seconds:
            pause(pause_seconds)


def until(
    condition: Callable[[], T], *, seconds: float = PATIENCE_SECONDS, pause_seconds: float = 0.01
) -> T:
    """Look until a condition holds, and return what it returned."""
    found = condition()
    if not found:
        for _ in looks(seconds=seconds, pause_seconds=pause_seconds):
            if found := condition():
                break
    return found


def wait_for_file(path: Path) -> None:
    """Return once a file is there; called by what a test lets hang."""
    while not path.exists():
        pause(0.05)


def pause(seconds: float) -> None:
    """Let others go on."""
    time.sleep(seconds)
