"""Placement of tasks on a cluster: a task prefers the executor that has its index copies.

Task `p` of `n` owns the same share of the hashes in every stage and run, up to the rounding of
`n`. So it asks for the executor at this share of all executors.

Guaranteed: results do not depend on it, only speed. Not covered: runs that Spark shuffles; Spark
places their tasks. When executors come or go, shares move to other executors.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from pyspark import RDD, SparkContext
from pyspark.serializers import CPickleSerializer

_DRIVER = "driver"


def homes(tasks: int, executors: Sequence[str]) -> list[str]:
    """Return the executor of every task; each gets nearly the same number of adjacent tasks."""
    return [executors[part * len(executors) // tasks] for part in range(tasks)]


class Placement:
    """Makes RDDs of task numbers, each with the executor where it should run."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self.is_local: bool = context._jsc.sc().isLocal()
        self._numbers: dict[int, tuple[list[str], RDD[int]]] = {}

    def numbers(self, tasks: int) -> RDD[int]:
        """Return an RDD with the numbers of this many tasks, one in each partition."""
        executors = [] if self.is_local else self._executors()
        before, numbers = self._numbers.get(tasks, (None, None))
        if numbers is None or before != executors:
            plain = partial(self._context.parallelize, range(tasks), tasks)  # no data is sent
            numbers = self._placed(homes(tasks, executors)) if executors else plain()
            self._numbers[tasks] = executors, numbers
        return numbers

    def _placed(self, places: Sequence[str]) -> RDD[int]:
        # PySpark offers no preferred locations; the JVM's `makeRDD` does.
        context = self._context
        jvm: Any = context._jvm
        serializer: Any = CPickleSerializer()
        rows = [
            jvm.scala.Tuple2(serializer.dumps(part), jvm.PythonUtils.toSeq([place]))
            for part, place in enumerate(places)
        ]
        bytes_ = jvm.java.lang.Class.forName("[B")
        tag = getattr(getattr(jvm.scala.reflect, "ClassTag$"), "MODULE$").apply(bytes_)
        placed = context._jsc.sc().makeRDD(jvm.PythonUtils.toSeq(rows), tag)
        return RDD(placed.toJavaRDD(), context, serializer)

    def _executors(self) -> list[str]:
        """Return Spark's location names of the live executors, in a stable order."""
        status = self._context._jsc.sc().env().blockManager().master().getMemoryStatus()
        places, ids = [], status.keys().iterator()
        while ids.hasNext():
            manager = ids.next()
            if manager.executorId() != _DRIVER:
                name = str(manager.executorId())
                places.append((len(name), name, f"executor_{manager.host()}_{name}"))
        return [place for _, _, place in sorted(places)]
