"""An executor whose Spark starts in the background, so that the service answers immediately.

    registrations, uploads, reads    do not wait
    runs                             wait in `execute` until Spark has started
    registrations of SQL             the controller refuses them meanwhile (`waits_for`)

Guaranteed: a run that waits can be cancelled. After a failed start, every run that waited for it
gets its error, and the next run starts Spark again (tests/spark/test_deferred.py).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Sequence

from cbp.clock import MACHINE
from cbp.engine.interface.runs import ProcessStack, RunPlan, needs_spark
from cbp.engine.run.executor import Executor
from cbp.engine.task.reports import TaskReport
from cbp.engine.task.task_plan import TaskPlan
from cbp.errors import CbpError, RunCancelledError, SparkUnstartedError
from cbp.model.dataflow.dataflow import StageNode
from cbp.model.plan.spark_or_worker import Bypass

_log = logging.getLogger(__name__)


class DeferredExecutor:
    """Passes tasks to an executor that `make` creates in a separate thread; see `SparkExecutor`."""

    shuffles = True

    def __init__(
        self,
        make: Callable[[], Executor],
        *,
        slots: int,
        bypass: Bypass,
        loop_tasks_max: int = 1,
        seconds: Callable[[], float] = MACHINE.seconds,
    ) -> None:
        self._seconds = seconds
        self._make, self.slots, self.bypass = make, slots, bypass
        self._loop_tasks_max = loop_tasks_max or slots
        self._changed = threading.Condition()
        self._executor: Executor | None = None
        self._error: CbpError | None = None
        self._cancelled: set[str] = set()
        self._attempts = self._ended = 0
        self._since, self._closed = self._seconds(), False
        with self._changed:
            self._begin()

    def waits_for(self) -> str:
        """Return `""` once Spark has started; until then, a text with its state or last error."""
        with self._changed:
            if self._executor is not None:
                return ""
            if self._error is not None:
                return f"Spark. {self._error.message}"
            return f"Spark, which has been starting for {self._seconds() - self._since:.0f} s"

    def warm(self) -> None:
        """Do nothing: Spark is already starting."""

    def refuse(self, dataflow: str, nodes: Sequence[StageNode]) -> None:
        """Refuse SQL that Spark refuses; before the start, leave this check to `execute`."""
        if self._executor is not None:
            self._executor.refuse(dataflow, nodes)

    def execute(self, plan: RunPlan, task: TaskPlan) -> list[TaskReport]:
        """Run every task of a plan, once Spark has started.

        `RunCancelledError` if the run was cancelled meanwhile, `SparkUnstartedError` if Spark could
        not be started.
        """
        try:
            executor = self._started(plan.run)
        finally:
            with self._changed:
                self._cancelled.discard(plan.run)
        nodes = [plan.node, *plan.fused]
        if needs_spark(nodes):  # `refuse` may have been called before the start
            executor.refuse(plan.dataflow, nodes)
        return executor.execute(plan, task)

    def cancel(self, run: str) -> None:
        """Stop a run, also one that waits for Spark."""
        with self._changed:
            executor = self._executor
            if executor is None:
                self._cancelled.add(run)
                self._changed.notify_all()
        if executor is not None:
            executor.cancel(run)

    @property
    def loop_tasks_max(self) -> int:
        """How many tasks of a loop can exchange messages; before the start, the setting."""
        executor = self._executor
        return self._loop_tasks_max if executor is None else executor.loop_tasks_max

    def loop_slots(self) -> int:
        """Return how many tasks of a loop could run together; all of them before the start."""
        executor = self._executor
        return self._loop_tasks_max if executor is None else executor.loop_slots()

    def stacks(self, run: str) -> Sequence[ProcessStack]:
        """Return where the processes of a run are now; none before the start."""
        return self._executor.stacks(run) if self._executor is not None else ()

    def starved(self, runs: Collection[str]) -> Collection[str]:
        """Return the runs that wait for a slot; none before the start."""
        return self._executor.starved(runs) if self._executor is not None else ()

    def forget(self, folder: str) -> None:
        """Drop cached data of a folder's stages."""
        if self._executor is not None:
            self._executor.forget(folder)

    def close(self) -> None:
        """Release the executor; if it is still being made, release it as soon as it exists."""
        with self._changed:
            self._closed = True
            executor = self._executor
            self._changed.notify_all()
        if executor is not None:
            executor.close()

    def _begin(self) -> None:
        self._error, self._since = None, self._seconds()
        self._attempts += 1
        _log.info("Spark is starting; runs wait for it")
        threading.Thread(target=self._start, name="spark-start", daemon=True).start()

    def _start(self) -> None:
        executor: Executor | None = None
        error: CbpError | None = None
        try:
            executor = self._make()
        except CbpError as caught:
            error = caught
        except BaseException as caught:  # PySpark and py4j raise anything; waiting runs must know
            error = SparkUnstartedError(f"{type(caught).__name__}: {caught}")
        with self._changed:
            self._executor, self._error, closed = executor, error, self._closed
            self._ended = self._attempts
            seconds = self._seconds() - self._since
            self._changed.notify_all()
        if executor is not None and closed:
            executor.close()
        elif error is None:
            _log.info("Spark started after %.1f s", seconds)
        else:
            _log.error("%s", error.message)

    def _started(self, run: str) -> Executor:
        with self._changed:
            if self._error is not None and self._executor is None and not self._closed:
                self._begin()
            attempt = self._attempts
            while True:
                if run in self._cancelled or (self._closed and self._executor is None):
                    raise RunCancelledError(run)
                if self._executor is not None:
                    return self._executor
                if self._ended >= attempt and self._error is not None:
                    raise self._error
                self._changed.wait()
