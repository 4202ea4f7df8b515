"""Limits of the engine that are made small, so that tests reach them."""

from __future__ import annotations

import pytest

from cbp.engine.state import multiset_diff as difference
from cbp.engine.storage import file_sizes as sizes
from cbp.engine.storage.engine_limits import EngineLimits


def shrink(monkeypatch: pytest.MonkeyPatch, *, pending_rows_max: int = 4) -> EngineLimits:
    """Make windows, groups in memory, files and spools so small that few records pass them."""
    monkeypatch.setattr(difference, "PENDING_ROWS_MAX", pending_rows_max)
    monkeypatch.setattr(difference, "_BLOCK_ROWS", 2)
    monkeypatch.setattr(sizes, "FILE_ROWS_MAX", 20)
    return EngineLimits(
        window_rows=7,
        large_group_rows=7,
        rows_per_record_task=5,
        spool_bytes=500,
        sort_run_bytes=300,
        sort_block_bytes=100,
        merge_rows=6,
    )
