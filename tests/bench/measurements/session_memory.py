"""Measures the memory and the time of all processes of a session: a service with all it started."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

__all__ = ["session_cpu_seconds", "session_memory_bytes"]

_SESSION, _TIMES = 3, slice(11, 15)
"""Positions in `/proc/<pid>/stat`, behind the name of the program."""


def session_memory_bytes(session: int, proc: Path = Path("/proc")) -> int:
    """Return the memory of a session's processes in bytes; pages that several share count once.

    Args:
        session: Id of the process that leads the session.
        proc: Where the kernel shows its processes.
    """
    return sum(_proportional_bytes(one) for one in _processes(session, proc))


def session_cpu_seconds(session: int, proc: Path = Path("/proc")) -> float:
    """Return the processor time of a session's processes, and of their children that have ended."""
    ticks = 0
    for one in _processes(session, proc):
        with suppress(OSError):
            ticks += sum(map(int, _fields(one)[_TIMES]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _processes(session: int, proc: Path) -> Iterator[Path]:
    for name in os.listdir(proc):
        if name.isdigit():
            with suppress(OSError):  # it has ended
                if int(_fields(proc / name)[_SESSION]) == session:
                    yield proc / name


def _fields(process: Path) -> list[bytes]:
    return (process / "stat").read_bytes().rpartition(b")")[2].split()


def _proportional_bytes(process: Path) -> int:
    try:
        lines = (process / "smaps_rollup").read_bytes().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith(b"Pss:")), 0)
