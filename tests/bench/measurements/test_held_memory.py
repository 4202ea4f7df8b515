"""Held memory: what is free is not counted, what is held is."""

from __future__ import annotations

import pyarrow as pa

from tests.bench.measurements.held_memory import held_memory_bytes

MEGABYTE = 1 << 20


def test_memory_that_was_freed_is_not_counted_and_what_is_held_is() -> None:
    """Many small pieces, which the allocator keeps when they are freed, and Arrow's, too."""
    before = held_memory_bytes()
    pieces = [bytes(2000) for _ in range(50_000)]
    table = pa.array(range(4_000_000), pa.int64())
    held = held_memory_bytes()
    assert held - before > 100 * MEGABYTE
    kept = pieces[::1000]
    del pieces, table
    freed = held_memory_bytes()
    assert freed - before < 20 * MEGABYTE
    assert len(kept) == 50
