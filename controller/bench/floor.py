"""The floor: what a Spark job costs that does nothing, with as many Python tasks."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

__all__ = ["floor_seconds"]


def floor_seconds(spark: Any, tasks: Sequence[int]) -> float:
    """Run one empty job per number of tasks; return the seconds of all of them."""
    started = time.perf_counter()
    for count in tasks:
        spark.range(0, count, 1, count).mapInArrow(_nothing, "n BIGINT").collect()
    return time.perf_counter() - started


def _nothing(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = sum(batch.num_rows for batch in batches)
    yield pa.RecordBatch.from_pydict({"n": pa.array([rows], pa.int64())})
