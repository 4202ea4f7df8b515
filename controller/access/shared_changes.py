"""A count in shared memory: how often a token or a session was ended.

The service's own process ends them, and counts. Processes that only read remember callers, too, and
forget them when the count has changed. A message could arrive too late for the next request.
"""

from __future__ import annotations

import mmap
import os
from typing import Self

_BYTES = 8


class SharedChanges:
    """Counts ended credentials, in memory shared by a file descriptor, which is closed here."""

    def __init__(self, descriptor: int) -> None:
        try:
            self._memory = mmap.mmap(descriptor, mmap.PAGESIZE)
        finally:
            os.close(descriptor)

    @classmethod
    def make(cls) -> tuple[Self, int]:
        """Return a new count, and a descriptor by which other processes share it."""
        # Not a file: a write to a file that is mapped from a full disk would end the process.
        descriptor = os.memfd_create("cbp-changes", os.MFD_CLOEXEC)
        os.ftruncate(descriptor, mmap.PAGESIZE)
        return cls(os.dup(descriptor)), descriptor

    @property
    def count(self) -> int:
        """Number of times that a token or a session was ended."""
        return int.from_bytes(self._memory[:_BYTES], "little")

    def note(self) -> None:
        """Increase the count; only one process calls this, under its own lock."""
        self._memory[:_BYTES] = (self.count + 1).to_bytes(_BYTES, "little")
