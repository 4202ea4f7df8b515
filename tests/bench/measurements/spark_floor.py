"""The floor: the time of the cheapest Spark job with as many Python tasks, an empty RDD job.

An empty DataFrame job takes about twice as long, since it is planned first.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

__all__ = ["floor_seconds"]


def floor_seconds(spark: Any, tasks: Sequence[int]) -> float:
    """Run one empty RDD job per number of tasks; return the seconds of all of them.

    The largest one runs once before, unmeasured: Spark ends Python workers that were idle for a
    minute.
    """
    _run(spark, max(tasks, default=1))
    started = time.perf_counter()
    for count in tasks:
        _run(spark, count)
    return time.perf_counter() - started


def _run(spark: Any, tasks: int) -> None:
    spark.sparkContext.parallelize(range(tasks), tasks).mapPartitions(_nothing).collect()


def _nothing(numbers: Iterable[int]) -> Iterator[int]:
    yield sum(1 for _ in numbers)
