"""Limits of the engine that are made small, so that tests reach them."""

from __future__ import annotations

import pytest

from cbp.engine.kernel import groupwise as bucket
from cbp.engine.kernel import window
from cbp.engine.shuffle import spool
from cbp.engine.state import compaction
from cbp.engine.state import multiset_diff as difference
from cbp.engine.storage import external_sort as external
from cbp.engine.storage import file_sizes as sizes
from cbp.engine.task import record_task as records


def shrink(monkeypatch: pytest.MonkeyPatch, *, pending_rows_max: int = 4) -> None:
    """Make windows, groups in memory, files and spools so small that few records pass them."""
    monkeypatch.setattr(bucket, "WINDOW_ROWS", 7)
    monkeypatch.setattr(window, "LARGE_ROWS", 7)
    monkeypatch.setattr(records, "ROWS_PER_TASK_MIN", 5)
    monkeypatch.setattr(spool, "SPOOL_BYTES", 500)
    monkeypatch.setattr(external, "RUN_BYTES", 300)
    monkeypatch.setattr(external, "_BLOCK_BYTES", 100)
    monkeypatch.setattr(difference, "PENDING_ROWS_MAX", pending_rows_max)
    monkeypatch.setattr(difference, "_BLOCK_ROWS", 2)
    monkeypatch.setattr(sizes, "FILE_ROWS_MAX", 20)
    monkeypatch.setattr(compaction, "_PIECE_ROWS", 6)
