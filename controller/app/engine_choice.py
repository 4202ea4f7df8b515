"""Which engine a service runs on, as its settings say."""

from __future__ import annotations

from cbp.engine.interface.engine import Engine
from cbp.engine.storage.engine_limits import DEFAULT_LIMITS, EngineLimits
from cbp.engine.storage.failpoints import NO_FAULTS, Faults
from controller.settings import Settings

__all__ = ["engine_for"]


def engine_for(
    settings: Settings, *, faults: Faults = NO_FAULTS, limits: EngineLimits = DEFAULT_LIMITS
) -> Engine:
    """Return the engine that the settings name; imports Spark only if needed.

    Args:
        settings: `engine`, `cache`, and the settings that begin with `spark_` or `worker_`.
        faults: Called at every durable effect.
        limits: The engine's limits.
    """
    cache = str(settings.cache)
    if settings.engine == "local":
        from cbp.engine.direct import LocalEngine
        from cbp.engine.workers.executor import WorkerExecutor

        workers = WorkerExecutor(
            free_max=settings.parallel_runs_max + 1,  # one for the express place
            memory_bytes_max=settings.worker_memory_bytes_max,
        )
        executor = workers if settings.worker_processes else None
        return LocalEngine(cache=cache, executor=executor, faults=faults, limits=limits)
    from cbp.engine.spark import SparkEngine, SparkSettings

    session = SparkSettings(
        master=settings.spark_master,
        conf=settings.spark_conf,
        driver_memory=settings.spark_driver_memory,
        resident_workers=settings.resident_workers,
        job_start_seconds=settings.job_start_seconds,
        plan_optimisations=settings.plan_optimisations,
        scratch=True,
    )
    return SparkEngine(session, cache=cache, deferred=True, faults=faults, limits=limits)
