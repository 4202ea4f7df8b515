"""Resident workers of a test."""

from __future__ import annotations

from typing import Any

from cbp.engine.spark.worker_pool import WorkerPool
from tests.fresh import REPOSITORY
from tests.spark.resident_work import told
from tests.waiting import until

PATH = {"PYTHONPATH": str(REPOSITORY)}
"""Where workers find `resident_work`."""


def asked(
    pool: WorkerPool, work: Any, *, run: str = "r1", tasks: int = 1, after: int = 0
) -> list[str] | None:
    """Ask a pool as an executor does."""
    return pool.reports(run, work, tasks, attempt="a7", going=lambda: None, after=after)


def started(pool: WorkerPool, count: int) -> list[int]:
    """Wait until so many workers are ready; return their processes."""
    asked(pool, told)
    until(lambda: len(pool.free) == count)
    return pool.free
