"""Starts the Spark session of a benchmark, and counts the tasks that run at the same time."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from tests.bench.options import NO_SPARK, BenchOptions

__all__ = ["slots_of", "start_spark"]

_SLOTS_WITHOUT_SPARK = 2
_LOCAL = re.compile(r"local\[(\d+|\*)")


def start_spark(options: BenchOptions, folder: Path) -> Any:
    """Start this process's session; its own files lie in the folder."""
    from cbp.engine.spark import SparkSettings, start_session

    conf = {
        "spark.local.dir": str(folder / "spark"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        # transformWithState starts a further Python process, which takes long on a busy machine.
        "spark.python.authenticate.socketTimeout": "120s",
        # Else one candidate's code evicts another's between two rounds.
        "spark.sql.codegen.cache.maxEntries": "2000",
    }
    settings = SparkSettings(
        options.master, options.driver_memory, "cbp-bench", room=False, conf=conf
    )
    return start_session(settings)


def slots_of(options: BenchOptions, spark: Any) -> int:
    """Return how many tasks run at the same time; candidates without Spark use the same number."""
    if spark is not None:
        return int(spark.sparkContext.defaultParallelism)
    if options.master == NO_SPARK or not (local := _LOCAL.match(options.master)):
        return _SLOTS_WITHOUT_SPARK
    return (os.cpu_count() or 1) if local[1] == "*" else int(local[1])
