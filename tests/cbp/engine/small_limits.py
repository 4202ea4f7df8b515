"""Limits of the engine that are made small, so that tests reach them."""

from __future__ import annotations

from cbp.engine.storage.engine_limits import EngineLimits


def small_limits(*, pending_rows: int = 4) -> EngineLimits:
    """Return limits of windows, groups, files and spools that few records pass."""
    return EngineLimits(
        window_rows=7,
        large_group_rows=7,
        rows_per_record_task=5,
        spool_bytes=500,
        sort_run_bytes=300,
        sort_block_bytes=100,
        merge_rows=6,
        pending_rows=pending_rows,
        spill_block_rows=2,
        file_rows=20,
        listed_rows=2,
        named_rows=3,
        timers_ahead=2,
        beside_bytes=1,
        whole_run_bytes=10_000,
        whole_run_spill=1 << 20,
        message_sort_bytes=800,
        message_group_rows_max=5,
    )
