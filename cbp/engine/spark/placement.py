"""Where tasks run on a cluster: a bucket goes to the executor that has its index copies.

Task `p` of `n` owns the same share of the hashes whatever the stage and the run, up to the
rounding of `n`. So it asks for the executor that holds this share of all executors. Spark
itself gives tasks to whoever is free first.

Guaranteed: nothing but speed. An executor that is gone or busy is replaced by any other
after `spark.locality.wait`. Not covered: runs that Spark shuffles; their tasks stand where
Spark puts them. When executors come or go, shares move.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark import RDD, SparkContext
from pyspark.serializers import CPickleSerializer

__all__ = ["Placement", "homes"]

_DRIVER = "driver"


def homes(tasks: int, executors: Sequence[str]) -> list[str]:
    """Return the executor of every task: each gets a run of neighbors, all nearly as many."""
    return [executors[part * len(executors) // tasks] for part in range(tasks)]


class Placement:
    """Gives jobs of numbered tasks, each with the place where it should run.

    Args:
        context: Whose executors these are.

    Attributes:
        is_local: Whether tasks run on the driver's machine, in its own JVM.
    """

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self.is_local: bool = context._jsc.sc().isLocal()
        self._numbers: dict[int, tuple[list[str], RDD[int]]] = {}

    def numbers(self, tasks: int) -> RDD[int]:
        """Return the numbers of so many tasks, one in each partition."""
        executors = [] if self.is_local else self._executors()
        before, numbers = self._numbers.get(tasks, (None, None))
        if numbers is None or before != executors:
            numbers = self._placed(homes(tasks, executors)) if executors else self._plain(tasks)
            self._numbers[tasks] = executors, numbers
        return numbers

    def _plain(self, tasks: int) -> RDD[int]:
        # A range: nothing is sent to a task.
        return self._context.parallelize(range(tasks), tasks)

    def _placed(self, places: Sequence[str]) -> RDD[int]:
        # PySpark has no preferred locations; the JVM's `makeRDD` has.
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
        """Return Spark's names of the live executors as places, in a lasting order."""
        status = self._context._jsc.sc().env().blockManager().master().getMemoryStatus()
        found, ids = [], status.keys().iterator()
        while ids.hasNext():
            manager = ids.next()
            if manager.executorId() != _DRIVER:
                name = str(manager.executorId())
                found.append((len(name), name, f"executor_{manager.host()}_{name}"))
        return [place for _, _, place in sorted(found)]
