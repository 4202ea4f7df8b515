"""Resident workers of a test."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from cbp.engine.spark.worker_pool import Residents
from tests.fresh import REPOSITORY
from tests.spark.resident_work import told

WAIT_SECONDS = 120


PATH = {"PYTHONPATH": str(REPOSITORY)}
"""Where workers find `resident_work`."""


def until(condition: Callable[[], Any]) -> Any:
    """Poll until it holds; return what it returned."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not (actual := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return actual


def asked(
    pool: Residents, work: Any, *, run: str = "r1", tasks: int = 1, after: int = 0
) -> list[str] | None:
    """Ask a pool as an executor does."""
    return pool.reports(run, work, tasks, attempt="a7", going=lambda: None, after=after)


def started(pool: Residents, count: int) -> list[int]:
    """Wait until so many workers are ready; return their processes."""
    asked(pool, told)
    until(lambda: len(pool.free) == count)
    return pool.free
