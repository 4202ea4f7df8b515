"""Spark's Python daemon with the engine's code already imported: a worker is its fork.

Spark ends a worker that was idle for a minute. Without this, the first run after a quiet
minute waits until every new worker has imported pyarrow, NumPy and the engine; so would
each run after a worker died. Forked from here a worker has them, and shares the memory.

What is imported is frozen for the garbage collector, so that the collection that Spark's
daemon does behind every task looks at the task's own objects alone.

A worker that Spark has ended finds its pipe broken when it says so; that is no error, and is
not told.

Started by Spark as `python -m cbp.engine.spark.daemon` (`spark.python.daemon.module`).
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from typing import Any

from pyspark import daemon
from pyspark import worker as worker_code  # what a worker would import first

from cbp.engine.spark import executor, sql

__all__ = ["ended_quietly"]

PREPARED = (worker_code, executor, sql)


def ended_quietly(work: Callable[..., Any]) -> Callable[..., Any]:
    """Return a worker's loop that ends the process without a word where Spark is gone."""

    def run(*arguments: Any) -> Any:
        try:
            return work(*arguments)
        except BrokenPipeError:
            os._exit(0)

    return run


if __name__ == "__main__":
    daemon.worker = ended_quietly(daemon.worker)
    gc.collect()
    gc.freeze()
    daemon.manager()
