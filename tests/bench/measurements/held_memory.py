"""Measures the memory that a process holds: resident, after what is unused was given back.

Allocators keep freed memory for later. A process that did more before than it does now gives
pages back at some moment, and this would hide a leak of the same size, or look like the opposite
of one. So the garbage collector, Arrow's pool and the C library give back what they can first.
"""

from __future__ import annotations

import ctypes
import gc
import os
from pathlib import Path

import pyarrow as pa

__all__ = ["held_memory_bytes"]


def held_memory_bytes() -> int:
    """Return the resident memory of this process in bytes; takes some milliseconds."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of the GNU C library
    if trim is not None:
        trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
