"""Measures the most memory that a process and its children held: resident, mapped files included.

The kernel keeps the greatest value of each process. `forget_peak` begins anew, so that loading does
not count. The values of several processes are added, though they need not fall together: the sum is
an upper bound.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

__all__ = ["forget_peak", "peak_bytes"]

_BEGIN_ANEW = "5"


def peak_bytes() -> int:
    """Return the greatest resident memory of this process and all its children; 0 if unknown."""
    return sum(map(_peak_of, _tree()))


def forget_peak() -> None:
    """Let the greatest memory begin with what is held now."""
    for pid in _tree():
        with suppress(OSError):
            Path(f"/proc/{pid}/clear_refs").write_text(_BEGIN_ANEW)


def _peak_of(pid: int) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
    return 0


def _tree() -> list[int]:
    """Return the ids of this process and of all that it started."""
    children: dict[int, list[int]] = {}
    with suppress(OSError):
        for name in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError):
                text = Path(f"/proc/{name}/stat").read_text(errors="replace")
                parent = int(text.rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(name))
    pids, waiting = [], [os.getpid()]
    while waiting:
        pids.append(waiting.pop())
        waiting += children.get(pids[-1], ())
    return pids
