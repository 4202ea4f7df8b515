"""Measures processor seconds of this process and all its descendants.

A child's time stays counted after it ends, since its parent waits for it.
"""

from __future__ import annotations

import os

__all__ = ["cpu_seconds"]

_PARENT, _TIMES = 1, slice(11, 15)
"""Fields of `/proc/PID/stat` after the name: parent, and four times (own, of ended children)."""


def cpu_seconds() -> float | None:
    """Return user and system seconds so far; None where there is no `/proc`."""
    stats = _stats()
    if not stats:
        return None
    children: dict[int, list[int]] = {}
    for pid, fields in stats.items():
        children.setdefault(int(fields[_PARENT]), []).append(pid)
    ticks, waiting = 0, [os.getpid()]
    while waiting:
        pid = waiting.pop()
        ticks += sum(map(int, stats[pid][_TIMES])) if pid in stats else 0
        waiting += children.get(pid, ())
    return ticks / os.sysconf("SC_CLK_TCK")


def cpu_below(pid: int) -> dict[int, float]:
    """Return process id -> user and system seconds, of a process and all below it."""
    stats = _stats()
    children: dict[int, list[int]] = {}
    for one, fields in stats.items():
        children.setdefault(int(fields[_PARENT]), []).append(one)
    found, waiting = dict[int, float](), [pid]
    while waiting:
        one = waiting.pop()
        if one in stats:
            ticks = sum(map(int, stats[one][_TIMES]))
            found[one] = ticks / os.sysconf("SC_CLK_TCK")
        waiting += children.get(one, ())
    return found


def _stats() -> dict[int, list[str]]:
    stats: dict[int, list[str]] = {}
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return stats
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                # The name may contain anything, including spaces and brackets.
                stats[pid] = file.read().rpartition(")")[2].split()
        except OSError:  # the process has ended
            continue
    return stats
