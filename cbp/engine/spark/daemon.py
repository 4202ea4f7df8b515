"""Spark's Python daemon with the engine's code already imported: a worker is its fork.

Spark ends a worker that was idle for a minute. Without this, the first run after a quiet
minute waits until every new worker has imported pyarrow, NumPy and the engine; so would
each run after a worker died. Forked from here a worker has them, and shares the memory.

What is imported is frozen for the garbage collector, so that the collection that Spark's
daemon does behind every task looks at the task's own objects alone.

Started by Spark as `python -m cbp.engine.spark.daemon` (`spark.python.daemon.module`).
"""

from __future__ import annotations

import gc

from pyspark import worker  # what a worker would import first
from pyspark.daemon import manager

from cbp.engine.spark import executor, sql

PREPARED = (worker, executor, sql)

if __name__ == "__main__":
    gc.collect()
    gc.freeze()
    manager()
