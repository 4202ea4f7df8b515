"""The direct engine on Spark, with a master `local[*]`, standalone, YARN or Kubernetes."""

from __future__ import annotations

from functools import partial
from typing import Any

from cbp.engine.direct import DirectEngine
from cbp.engine.spark.deferred import DeferredExecutor
from cbp.engine.spark.session import SparkSettings, local_slots, start_session
from cbp.engine.spark.spark_executor import SparkExecutor
from cbp.model.plan.spark_or_worker import Bypass

__all__ = ["SparkEngine", "SparkExecutor", "SparkSettings", "start_session"]


class SparkEngine(DirectEngine):
    """Executes runs as Spark jobs, small ones in resident workers; owns the process's session.

    If `deferred`, a local Spark starts in the background, and the first runs wait for it. A cluster
    is contacted before the engine exists, since only the cluster knows its slots.
    """

    def __init__(
        self, settings: SparkSettings, *, cache: str, deferred: bool = False, **options: Any
    ) -> None:
        slots = local_slots(settings.master) if settings.room else None
        if not deferred or slots is None:
            super().__init__(_executor(settings), cache=cache, **options)
            return
        bypass = Bypass(min(settings.resident_workers, slots), settings.job_start_seconds)
        executor = DeferredExecutor(
            partial(_executor, settings),
            slots=slots,
            bypass=bypass,
            loop_tasks_max=settings.loop_tasks_max,
        )
        super().__init__(executor, cache=cache, **options)


def _executor(settings: SparkSettings) -> SparkExecutor:
    executor = SparkExecutor(
        start_session(settings),
        resident_workers=settings.resident_workers,
        job_start_seconds=settings.job_start_seconds,
        plan_optimisations=settings.plan_optimisations,
        loop_tasks_max=settings.loop_tasks_max,
    )
    executor.warm_up()
    return executor
