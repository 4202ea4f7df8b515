"""Spark's Python daemon with the engine's code already imported: workers are forks of it.

Spark ends a worker that was idle for a minute. Without this daemon, the first run after a quiet
minute would wait until every new worker has imported pyarrow, NumPy and the engine; so would each
run after a worker died. A worker that is forked from here has them, and shares their memory.

The imported objects are frozen for the garbage collector. So the collection that Spark's daemon
does after every task looks only at the task's own objects.

A worker that Spark has ended gets a broken pipe when it reports. That is no error, so the worker
prints none.

Spark starts it as `python -m cbp.engine.spark.daemon` (`spark.python.daemon.module`).
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from typing import Any

from pyspark import daemon
from pyspark import worker as worker_code  # what a worker would import first

from cbp.engine.spark import executor
from cbp.engine.spark.sql import job as sql

__all__ = ["ended_quietly"]

PREPARED = (worker_code, executor, sql)


def ended_quietly(work: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a worker's loop: if Spark has closed the pipe, the process ends without a message."""

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
