"""Spark's Python daemon with the engine's code already imported: workers are forks of it.

Spark ends a worker that was idle for a minute. A new one that is forked from here has pyarrow,
NumPy and the engine imported already, and shares their memory.

The imported objects are frozen for the garbage collector, so the collection that Spark's daemon
does after every task examines only the task's own objects. A worker that Spark has ended gets a
broken pipe when it reports; this is expected, so it prints no error.

A worker that author's code has changed (`cbp.model.author.process_state`) asks Spark not to use it
again. Functions of an author's own plan in SQL are watched, too, although no report names them.

Spark starts it as `python -m cbp.engine.spark.daemon` (`spark.python.daemon.module`).
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from typing import Any

import numpy.random
from pyspark import daemon
from pyspark import worker as worker_code  # what a worker would import first
from pyspark.serializers import SpecialLengths

from cbp.engine.spark import spark_executor
from cbp.engine.spark.sql import job as sql
from cbp.model.author.process_state import watch_process

PREPARED = (worker_code, spark_executor, sql, numpy.random)


def ended_quietly(work: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a worker's loop: if Spark has closed the pipe, the process ends without a message."""

    def run(*arguments: Any) -> Any:
        try:
            return work(*arguments)
        except BrokenPipeError:
            os._exit(0)

    return run


def watch_workers() -> None:
    """Inspect the process of each worker right before it loads a task's code, and after the task.

    Replaces the two functions that Spark's worker calls at these points, in its own module.
    """
    of_spark: Any = worker_code
    set_up, end = of_spark.setup_broadcasts, of_spark.send_accumulator_updates

    def before(infile: Any) -> None:
        set_up(infile)
        watch.begin()

    def behind(outfile: Any) -> None:
        end(outfile)
        watch.ended()
        if watch.is_changed:
            # Spark's own worker writes this at this point if it must not be used again.
            of_spark.write_int(SpecialLengths.END_OF_DATA_SECTION, outfile)
            sys.exit(-1)

    of_spark.setup_broadcasts, of_spark.send_accumulator_updates = before, behind
    watch = watch_process()  # after the replacements, which are no author's changes


if __name__ == "__main__":
    daemon.worker = ended_quietly(daemon.worker)
    watch_workers()
    gc.collect()
    gc.freeze()
    daemon.manager()
