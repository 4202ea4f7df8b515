"""Eviction in the cache folders, by age and bytes: old index copies, scratch files, old boots.

    <cache>/<boot>/*.arrow            copies; beyond a bound, the least recently used are removed
    <cache>/<other boot>[-scratch]/*  the same, together with ours, if the disk is full
    <cache>/<boot>-scratch/*          files of tasks; removed if they are older than a task can be
    <cache>/<other boot>[-scratch]/   removed completely once it has not been touched for days

A file is unlinked, never truncated: a process that has mapped it keeps it. Only files with names
that the cache gives are removed, since other programs may use the folder. Machines may share it, so
the folder of another boot is judged by its age alone. Files that cannot be removed are skipped.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

BOOT_SECONDS_MAX = 7 * 86400.0
"""A boot's folder is removed once its newest file is older than this."""

SCRATCH_KINDS = ("called", "own")
"""File name extensions of scratch files that tasks write."""

_BOOT = re.compile(r"([0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|process-\d+)(-scratch)?")
_OURS = {".arrow", ".tmp", *(f".{kind}" for kind in SCRATCH_KINDS)}


def evict(
    folders: Sequence[Path], *, room: int, bytes_max: int, full: bool
) -> tuple[list[str], int]:
    """Unlink the least recently used files until the rest and a new file fit in the bound.

    The bound is at most half of the sum of these files' bytes and the free space. If the new file
    cannot fit on the disk at all, nothing is removed. Returns the names of the removed files, and
    the bound in bytes.

    Args:
        folders: Folders of one cache, at least one; they need not exist.
        room: Bytes of the new file; if it is larger than the bound, all others are removed.
        full: Whether the disk refused a write (a quota may be used up), so that its free space
            does not count.
    """
    every = ((time, size, path) for folder in folders for path, time, size in _files(folder))
    copies = [one for one in every if one[2].suffix in _OURS]
    total, free = sum(size for _, size, _ in copies), _free(folders[0].parent)
    most = min(bytes_max, (total if full else total + free) // 2)
    gone: list[str] = []
    if room > total + free:
        return gone, most
    for _, size, path in sorted(copies):
        if total + room <= most:
            break
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
            gone.append(path.name)
            total -= size
    return gone, most


def remove_older(folder: Path, *, seconds: float, now: float) -> None:
    """Unlink the files that have not been touched for `seconds`."""
    for path, time, _ in _files(folder):
        if now - time > seconds:
            with contextlib.suppress(OSError):
                path.unlink()


def remove_boots(cache: Path, *, own: str, now: float) -> None:
    """Remove the folders of other boots than `own` that are older than `BOOT_SECONDS_MAX`."""
    for folder in other_boots(cache, own=own):
        with contextlib.suppress(OSError):
            times = [folder.stat().st_mtime, *(time for _, time, _ in _files(folder))]
            if now - max(times) > BOOT_SECONDS_MAX:
                for path, _, _ in _files(folder):
                    if path.suffix in _OURS:
                        path.unlink(missing_ok=True)
                folder.rmdir()  # fails if there is anything else in it


def other_boots(cache: Path, *, own: str) -> list[Path]:
    """Return the folders of other boots, their scratch folders included."""
    folders: list[Path] = []
    with contextlib.suppress(OSError):
        matches = ((folder, _BOOT.fullmatch(folder.name)) for folder in cache.iterdir())
        folders += [folder for folder, match in matches if match is not None and match[1] != own]
    return folders


def _free(folder: Path) -> int:
    with contextlib.suppress(OSError):
        status = os.statvfs(folder)
        return status.f_bavail * status.f_frsize
    return 0


def _files(folder: Path) -> Iterator[tuple[Path, float, int]]:
    with contextlib.suppress(OSError):
        for path in list(folder.iterdir()):
            with contextlib.suppress(OSError):
                status = path.stat()
                yield path, status.st_mtime, status.st_size
