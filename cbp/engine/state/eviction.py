"""Which files of the cache folders go: what no map needs is a question of age and bytes alone.

    <cache>/<boot>/*.arrow            copies; the least recently used go, beyond a bound
    <cache>/<boot>-scratch/*          files of tasks; what is older than a task goes
    <cache>/<other boot>[-scratch]/   goes as a whole once nobody has touched it for days

A file is unlinked, never cut off: whoever has mapped it keeps it. Only names that the cache
gives are removed, since a cache folder may be one that others use. A folder may be shared by
machines, so another boot's is not of the past for being another's: its age tells. Taken too
early, copies are made again.

Nothing here fails for a file that is gone or may not be removed: that one stays.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

__all__ = ["BOOT_SECONDS_MAX", "SCRATCH_KINDS", "evict", "remove_boots", "remove_older"]

BOOT_SECONDS_MAX = 7 * 86400.0
"""Age of the newest file from which a boot's folder is one of the past."""

SCRATCH_KINDS = ("called", "own")
"""How names of what a task writes down end, behind a dot."""

_BOOT = re.compile(r"([0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|process-\d+)(-scratch)?")
_OURS = {".arrow", ".tmp", *(f".{kind}" for kind in SCRATCH_KINDS)}


def evict(folder: Path, *, bytes_max: int) -> list[str]:
    """Unlink the least recently used files until the rest fits; return their names."""
    found = [(time, size, path) for path, time, size in _files(folder)]
    total = sum(size for _, size, _ in found)
    gone = []
    for _, size, path in sorted(found):
        if total <= bytes_max:
            break
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
            gone.append(path.name)
            total -= size
    return gone


def remove_older(folder: Path, *, seconds: float, now: float) -> None:
    """Unlink the files that nobody has touched for so long."""
    for path, time, _ in _files(folder):
        if now - time > seconds:
            with contextlib.suppress(OSError):
                path.unlink()


def remove_boots(cache: Path, *, own: str, now: float) -> None:
    """Remove what other boots have left, once it is older than `BOOT_SECONDS_MAX`.

    Args:
        cache: Folder that holds a folder per boot.
        own: The name of this boot, whose folders stay.
        now: Seconds, as the times of files.
    """
    with contextlib.suppress(OSError):
        for folder in list(cache.iterdir()):
            found = _BOOT.fullmatch(folder.name)
            if found is not None and found[1] != own:
                _remove_boot(folder, now)


def _remove_boot(folder: Path, now: float) -> None:
    with contextlib.suppress(OSError):
        times = [folder.stat().st_mtime, *(time for _, time, _ in _files(folder))]
        if now - max(times) <= BOOT_SECONDS_MAX:
            return
        for path, _, _ in _files(folder):
            if path.suffix in _OURS:
                path.unlink(missing_ok=True)
        folder.rmdir()  # stays, if it holds anything else


def _files(folder: Path) -> Iterator[tuple[Path, float, int]]:
    """Yield the files of a folder with the seconds of their last use, and their bytes."""
    with contextlib.suppress(OSError):
        for path in list(folder.iterdir()):
            with contextlib.suppress(OSError):
                status = path.stat()
                yield path, status.st_mtime, status.st_size
