"""Resident workers beside Spark, as far as no Spark is needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cbp.engine.interface.runs import ProcessStack
from cbp.engine.spark.worker_pool import WorkerPool


class Asked:
    """A worker that is asked where it is."""

    def __init__(self, pid: int, meanwhile: Callable[[], object]) -> None:
        self._stack, self._meanwhile = ProcessStack(pid, ()), meanwhile

    def stack(self) -> ProcessStack:
        self._meanwhile()
        return self._stack


class Ended:
    """A worker whose process ended while it waited for work."""

    ended, is_closed = True, False

    def close(self) -> None:
        self.is_closed = True


def test_a_worker_that_ended_when_idle_is_closed() -> None:
    """Each has descriptors of files, which would otherwise stay open."""
    pool, worker = WorkerPool(1), Ended()
    free: Any = pool._free
    free.append(worker)
    assert pool.reports("r", lambda *_: [], 1, attempt="a", going=lambda: None, after=9) is None
    assert worker.is_closed
    assert free == []


@pytest.mark.parametrize("next_job", [False, True])
def test_a_stack_is_of_the_workers_that_still_serve_the_run(next_job: bool) -> None:
    """A run has several jobs in a row: its first workers may be in other code during the next."""
    pool = WorkerPool(0)
    serving: Any = pool._serving
    second = [Asked(3, lambda: None)]

    def meanwhile() -> None:
        if next_job:
            serving["run"] = second

    serving["run"] = [Asked(1, meanwhile), Asked(2, meanwhile)]
    assert [stack.pid for stack in pool.stacks("run")] == ([] if next_job else [1, 2])
    assert pool.stacks("another") == []
