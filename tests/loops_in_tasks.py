"""Loops within a run whose tasks are threads of this process, so that faults can be planned."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from cbp.engine.interface.runs import RunPlan
from cbp.engine.run.executor import LocalExecutor, joined_reports, run_together
from cbp.engine.shuffle.exchange import PeerGoneError
from cbp.engine.storage.failpoints import Faults
from cbp.engine.task.reports import JobLane, TaskReport
from cbp.engine.task.task_plan import TaskPlan
from cbp.model.plan.spark_or_worker import Lane

PATIENCE_SECONDS = 120


class Meeting:
    """Gathers a text of each of several threads."""

    def __init__(self, tasks: int) -> None:
        self._texts, self._all = [""] * tasks, threading.Barrier(tasks)

    def gather(self, part: int) -> Callable[[str], list[str]]:
        """Return the function of one of them."""

        def gather(text: str) -> list[str]:
            self._texts[part] = text
            self._all.wait(PATIENCE_SECONDS)
            return [*self._texts]

        return gather


def together(tasks: int, work: Callable[[int, Callable[[str], list[str]]], Any]) -> list[Any]:
    """Return what each task returned or raised, each in a thread that is given its number."""
    meeting, done = Meeting(tasks), [None] * tasks

    def run(part: int) -> None:
        try:
            done[part] = work(part, meeting.gather(part))
        except BaseException as exc:
            done[part] = exc  # type: ignore[call-overload]

    threads = [threading.Thread(target=run, args=(part,)) for part in range(tasks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive(), "a task waits for ever"
    return done


class ThreadsExecutor(LocalExecutor):
    """Runs the tasks of a loop at the same time, each in a thread.

    Attributes:
        ran: How many tasks each job had.
    """

    def __init__(self, tasks: int) -> None:
        super().__init__()
        self.loop_tasks_max = tasks
        self.ran: list[int] = []

    def loop_slots(self) -> int:
        """Return all of them."""
        return self.loop_tasks_max

    def execute(self, plan: RunPlan, task: TaskPlan) -> list[TaskReport]:
        """Run the tasks; raise what the one that failed raised."""
        self.ran.append(task.tasks)
        if task.tasks == 1:
            return super().execute(plan, task)
        done = together(
            task.tasks, lambda part, gather: run_together(self._kind, task, part, "0", gather)
        )
        errors = [one for one in done if isinstance(one, BaseException)]
        for error in sorted(errors, key=lambda one: isinstance(one, PeerGoneError)):
            raise error
        return [*joined_reports(done), JobLane(Lane.LOCAL)]


class OneByOne:
    """Faults that several threads pass."""

    def __init__(self, faults: Faults) -> None:
        self._faults, self._lock = faults, threading.Lock()

    def __call__(self, point: str) -> None:
        """Pass a point, alone."""
        with self._lock:
            self._faults(point)
