"""The floor: what a Spark job costs that does nothing, with as many Python tasks."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

__all__ = ["floor_seconds"]


def floor_seconds(spark: Any, tasks: Sequence[int]) -> float:
    """Run one empty job per number of tasks; return the seconds of all of them.

    The largest is run once before: Spark has ended Python workers that were idle for a minute.
    """
    _run(spark, max(tasks, default=1))
    started = time.perf_counter()
    for count in tasks:
        _run(spark, count)
    return time.perf_counter() - started


def _run(spark: Any, tasks: int) -> None:
    spark.range(0, tasks, 1, tasks).mapInArrow(_nothing, "n BIGINT").collect()


def _nothing(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = sum(batch.num_rows for batch in batches)
    yield pa.RecordBatch.from_pydict({"n": pa.array([rows], pa.int64())})
