"""Which files of the cache folders go: what no map needs is a question of age and bytes alone.

    <cache>/<boot>/*.arrow            copies; the least recently used go, beyond a bound
    <cache>/<other boot>[-scratch]/*  the same, beside ours, where the disk is full
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
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

__all__ = [
    "BOOT_SECONDS_MAX",
    "SCRATCH_KINDS",
    "evict",
    "other_boots",
    "remove_boots",
    "remove_older",
]

BOOT_SECONDS_MAX = 7 * 86400.0
"""Age of the newest file from which a boot's folder is one of the past."""

SCRATCH_KINDS = ("called", "own")
"""How names of what a task writes down end, behind a dot."""

_BOOT = re.compile(r"([0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|process-\d+)(-scratch)?")
_OURS = {".arrow", ".tmp", *(f".{kind}" for kind in SCRATCH_KINDS)}


def evict(
    folders: Sequence[Path], *, room: int, bytes_max: int, full: bool = False
) -> tuple[list[str], int]:
    """Unlink the least recently used files until the rest fits, and a new one beside it.

    Half of what they have and what is free of their disk is left to others. For a file that finds
    no place even so, nothing goes.

    Args:
        folders: Of one cache, at least one; need not be there.
        room: Bytes of the new file, which may be larger than the bound: then it is alone.
        full: The disk refuses more, whatever it tells of free space: a quota may be used up.

    Returns:
        The names of what went, and the bytes that all together may have.
    """
    found = [
        (time, size, path)
        for folder in folders
        for path, time, size in _files(folder)
        if path.suffix in _OURS
    ]
    total, free = sum(size for _, size, _ in found), _free(folders[0].parent)
    most = min(bytes_max, (total if full else total + free) // 2)
    gone: list[str] = []
    if room > total + free:
        return gone, most
    for _, size, path in sorted(found):
        if total + room <= most:
            break
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
            gone.append(path.name)
            total -= size
    return gone, most


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
    for folder in other_boots(cache, own=own):
        _remove_boot(folder, now)


def other_boots(cache: Path, *, own: str) -> list[Path]:
    """Return the folders of other boots than this one, of scratch files too."""
    folders: list[Path] = []
    with contextlib.suppress(OSError):
        for folder in cache.iterdir():
            found = _BOOT.fullmatch(folder.name)
            if found is not None and found[1] != own:
                folders.append(folder)
    return folders


def _remove_boot(folder: Path, now: float) -> None:
    with contextlib.suppress(OSError):
        times = [folder.stat().st_mtime, *(time for _, time, _ in _files(folder))]
        if now - max(times) <= BOOT_SECONDS_MAX:
            return
        for path, _, _ in _files(folder):
            if path.suffix in _OURS:
                path.unlink(missing_ok=True)
        folder.rmdir()  # stays, if it holds anything else


def _free(folder: Path) -> int:
    """Return the free bytes of a folder's disk; where they are not told, none."""
    with contextlib.suppress(OSError):
        status = os.statvfs(folder)
        return status.f_bavail * status.f_frsize
    return 0


def _files(folder: Path) -> Iterator[tuple[Path, float, int]]:
    """Yield the files of a folder with the seconds of their last use, and their bytes."""
    with contextlib.suppress(OSError):
        for path in list(folder.iterdir()):
            with contextlib.suppress(OSError):
                status = path.stat()
                yield path, status.st_mtime, status.st_size
