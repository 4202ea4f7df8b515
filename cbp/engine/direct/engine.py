"""The direct engine: state is never shuffled, and a run costs what its increment touches.

It is the engine that a service uses. `cbp.engine.run.preparer` prepares a run, and one of three
executors carries out its tasks, all by the same code on the same files:

    cbp.engine.spark.spark_executor      as one Spark job, or in resident workers
    cbp.engine.workers.worker_executor   in worker processes without Spark (`engine=local`)
    cbp.engine.run.executor              in this process (tests and simulations)

Guaranteed: a prepared run is not published; publication is redo and can be repeated.
Not guaranteed: that files of failed attempts are removed; they stay until the collector finds them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from cbp.clock import MACHINE
from cbp.engine.direct.publication_writer import PublicationWriter
from cbp.engine.direct.readers import HistoryReader, IncrementTables, RecordTables, WholeTables
from cbp.engine.direct.table_changes import TableChanges
from cbp.engine.direct.table_collector import TableCollector
from cbp.engine.interface.runs import RunControl
from cbp.engine.run.executor import Executor, LocalExecutor
from cbp.engine.run.preparer import Preparer
from cbp.engine.run.table_cache import OpenTables
from cbp.engine.run.task_planner import Planner
from cbp.engine.storage.engine_limits import DEFAULT_LIMITS, EngineLimits
from cbp.engine.storage.failpoints import NO_FAULTS, Faults
from cbp.engine.storage.files import Files, LocalFiles


class DirectEngine:
    """The direct engine; implements `cbp.engine.interface.engine.Engine`.

    `cache` is a folder for index copies, on every worker's machine. Only tests narrow `hash_mask`,
    to force collisions.
    """

    def __init__(
        self,
        executor: Executor,
        *,
        cache: str,
        files: Files | None = None,
        clock_ms: Callable[[], int] = MACHINE.now_ms,
        faults: Faults = NO_FAULTS,
        hash_mask: int = -1,
        limits: EngineLimits = DEFAULT_LIMITS,
    ) -> None:
        files = files or LocalFiles(faults)
        self._executor, self._open = executor, OpenTables(files, limits)
        planner = Planner(executor, self._open, cache, hash_mask, limits)
        self.preparer = Preparer(executor, planner, self._open, files, clock_ms, faults)
        self.control: RunControl = executor
        self.publisher = PublicationWriter(self._open, files, cache, limits)
        self.garbage = TableCollector(self._open, files, clock_ms)
        forgets = (self._open.forget, self.garbage.forget, executor.forget)
        self.tables = TableChanges(
            executor, self._open, files, cache, forgets, clock_ms, faults, limits, hash_mask
        )
        self.increments = IncrementTables(self._open, limits)
        self.records = RecordTables(self._open, cache, hash_mask, limits)
        self.history = HistoryReader(self._open)
        self.verification = WholeTables(self._open, files, cache, limits)
        self._beside = partial(
            DirectEngine,
            executor,
            cache=f"{cache}-beside",
            files=files,
            clock_ms=clock_ms,
            faults=faults,
            hash_mask=hash_mask,
            limits=limits,
        )

    def beside(self) -> DirectEngine:
        """Return an engine for recomputations; see `Engine.beside`."""
        return self._beside()

    def close(self) -> None:
        """Release the executor."""
        self._executor.close()


class LocalEngine(DirectEngine):
    """The direct engine without Spark; it has the same files and tables."""

    def __init__(self, *, cache: str, executor: Executor | None = None, **options: Any) -> None:
        super().__init__(executor or LocalExecutor(), cache=cache, **options)
