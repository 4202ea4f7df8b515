"""Tells whether every change of a folder is told to who watches it.

The kernel tells of what goes through itself. On a network file system, in a folder shared by a
virtual machine's host, or in a file system in user space, others write past it. So only the file
systems that are known to be this machine's own count; of any other, and of any other system than
Linux, nothing is assumed.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

__all__ = ["tells_every_change"]

_OWN = frozenset({"bcachefs", "btrfs", "exfat", "ext2", "ext3", "ext4", "f2fs", "jfs", "nilfs2"})
_OWN |= {"ntfs3", "overlay", "ramfs", "reiserfs", "tmpfs", "vfat", "xfs", "zfs"}
_MOUNTS = Path("/proc/self/mountinfo")
_ESCAPED = re.compile(rb"\\([0-7]{3})")


def tells_every_change(folder: Path, mounts: Path = _MOUNTS) -> bool:
    """Return whether no file comes into a folder without an event.

    Args:
        folder: The folder; links on the way to it are followed.
        mounts: In the format of Linux's `mountinfo`.
    """
    try:
        lines = mounts.read_bytes().splitlines()
    except OSError:
        return False
    path, kind, longest = os.fsencode(os.path.realpath(folder)) + b"/", b"", -1
    for line in lines:
        fields, _, more = line.partition(b" - ")
        point = _ESCAPED.sub(lambda m: bytes([int(m[1], 8)]), fields.split(b" ")[4])
        point = point.rstrip(b"/") + b"/"
        if path.startswith(point) and len(point) >= longest:  # the last one of a point covers it
            kind, longest = more.split(b" ")[0], len(point)
    return kind.decode("ascii", "replace") in _OWN
