"""The direct engine on Spark, with a master `local[*]`, standalone, YARN or Kubernetes."""

from __future__ import annotations

from typing import Any

from cbp.engine.direct import DirectEngine
from cbp.engine.spark.executor import SparkExecutor
from cbp.engine.spark.session import SparkSettings, start_session

__all__ = ["SparkEngine", "SparkExecutor", "SparkSettings", "start_session"]


class SparkEngine(DirectEngine):
    """Executes runs as Spark jobs, small ones in resident workers; owns the process's session."""

    def __init__(self, settings: SparkSettings, *, cache: str, **options: Any) -> None:
        executor = SparkExecutor(
            start_session(settings),
            resident_workers=settings.resident_workers,
            job_start_seconds=settings.job_start_seconds,
            plan_optimisations=settings.plan_optimisations,
        )
        executor.warm_up()
        super().__init__(executor, cache=cache, **options)
