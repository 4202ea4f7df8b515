"""Executes the work of a simulation in one thread, when a step or a waiter asks for it."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import Executor, Future, wait
from typing import Any

from cbp.engine.interface.runs import RunPlan
from cbp.engine.run.executor import LocalExecutor
from cbp.engine.task.reports import TaskReport
from cbp.engine.task.task_plan import TaskPlan


class Job(Future[Any]):
    """A piece of work that is under way."""

    def __init__(self, work: Callable[[], Any], jobs: list[Job]) -> None:
        super().__init__()
        self._work, self._jobs = work, jobs
        jobs.append(self)

    def end(self) -> None:
        """Do it."""
        self._jobs.remove(self)
        self.set_result(self._work())


class Waiting(Executor):
    """Runs are under way until a step ends one, or somebody waits for them."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return Job(lambda: fn(*args, **kwargs), self.jobs)

    def end(self, number: int) -> bool:
        """End the n-th run of those under way; tell whether there is any."""
        if not self.jobs:
            return False
        self.jobs[number % len(self.jobs)].end()
        return True


class Here(Executor):
    """Verifies at once, and returns when that has ended."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future = Future[Any]()
        future.set_result(fn(*args, **kwargs))
        return future


def wait_for(futures: list[Future[Any]], timeout: float | None = None) -> Any:
    """Stand in for waiting: what is waited for ends."""
    for one in futures:
        if isinstance(one, Job) and not one.done():
            one.end()
    return wait(futures, timeout=0)


class Tasks(LocalExecutor):
    """A cluster: runs tasks, now and then twice, and hands in the rows of one of the two.

    Attributes:
        twice: Whether the next tasks are executed twice.
        before: Called with this and the plan of a run before its tasks are executed.
        meanwhile: What goes on while the next tasks are executed, if anything does.
    """

    def __init__(self, rng: random.Random, before: Callable[[Tasks, RunPlan], None]) -> None:
        super().__init__()
        self._rng, self.before = rng, before
        self.twice = False
        self.meanwhile: Callable[[], None] | None = None

    def execute(self, plan: RunPlan, work: TaskPlan) -> list[TaskReport]:
        """See `Executor.execute`."""
        self.before(self, plan)
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        if not self.twice or work.spec.record_wise:
            return super().execute(plan, work)
        self.twice = False
        actual: list[TaskReport] = []
        for part in range(work.tasks):
            attempts = [list(self._kind(work, part, n).run_arranged()) for n in ("0", "1")]
            actual += attempts[self._rng.randrange(2)]
        return actual


class Serial:
    """Stands in for the threads that wait for the disk."""

    def map(self, function: Callable[[Any], Any], items: Any) -> list[Any]:
        return [function(item) for item in sorted(items)]
