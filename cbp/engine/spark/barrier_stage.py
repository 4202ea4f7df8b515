"""A loop of several tasks on Spark: one job, whose last stage begins all tasks together.

    enough slots? --yes--> (shuffle -->) barrier stage: tasks that exchange messages --> reports
        '--no----> TooFewSlotsError: the loop gets fewer tasks

Why, and how it is tried again: cbp/engine/spark/README.md, "Tasks of a loop run together". A task
that loses its peer reports the loss and does not fail. So the error of a job is always the original
failure, not a consequence that Spark may hear of first.

Guaranteed: a job that needs more slots than Spark has is not made; `TooFewSlotsError` is raised,
too, if a slot is lost meanwhile and Spark refuses the job. After a failure, a loop waits for slots
to come back.
Not guaranteed: that the slots are free when the job begins; Spark waits until they are.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark import BarrierTaskContext, SparkContext, TaskContext

from cbp.clock import MACHINE, Clock
from cbp.engine.interface.runs import RunPlan
from cbp.engine.run.executor import joined_reports, run_together
from cbp.engine.shuffle.exchange import LOOPBACK, PeerGoneError
from cbp.engine.spark.placement import Placement
from cbp.engine.spark.tasks import task_identity
from cbp.engine.task.reports import decode, encode, has_succeeded
from cbp.engine.task.stage_task import StageTask
from cbp.engine.task.task_plan import TaskPlan
from cbp.engine.workers.ended_workers import end_of_worker

SLOTS_SECONDS = 60.0
"""How long a loop waits for slots to come back after a task of its job failed."""

_POLL_SECONDS = 0.5
_GIVEN_UP = "Could not recover from a failed barrier ResultStage"
_REFUSED = ("SPARK-24819", "SPARK-24942")
"""Spark's errors for a barrier job that needs more slots than there are, and for any barrier job
with dynamic allocation.
"""

_DYNAMIC = "spark.dynamicAllocation.enabled"

_log = logging.getLogger(__name__)


class TooFewSlotsError(Exception):
    """Spark has fewer slots (at least 1) than a job has tasks that must run together."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        super().__init__(slots)


def loop_tasks_of(asked: int, slots: int, conf: Mapping[str, str], *, is_local: bool) -> int:
    """Return how many tasks a loop has: `asked`, or one per slot if 0; Spark may allow only one."""
    if asked != 1 and not is_local and conf.get(_DYNAMIC, "false").lower() == "true":
        _log.warning(
            "each loop runs in one task, because Spark cannot run several tasks together if %s is "
            "true (SPARK-24942)",
            _DYNAMIC,
        )
        return 1
    return asked or slots


def own_host(addresses: Sequence[str], part: int) -> str:
    """Return the host at which a task of a barrier stage listens, so that all others reach it.

    That is the host of its executor in the driver's list (`addresses`, as `host:port`, by task), or
    the loopback interface if all tasks are on one host.
    """
    hosts = [address.rpartition(":")[0].strip("[]") for address in addresses]
    return LOOPBACK if len({*hosts}) == 1 else hosts[part]


def exchanged(
    plan: TaskPlan, kind: type[StageTask], batches: Iterable[pa.RecordBatch] | None = None
) -> str:
    """Run one of the tasks of a loop, in a barrier stage; without batches it reads the increment.

    Returns its reports, or how a peer was lost, as JSON text.
    """
    context, (part, attempt) = TaskContext.get(), task_identity()
    # Not `BarrierTaskContext.get`, which finds none in a worker that was in a barrier before.
    assert isinstance(context, BarrierTaskContext), "this task is not in a barrier stage"
    host = own_host([one.address for one in context.getTaskInfos()], part)
    try:
        return encode(
            run_together(kind, plan, part, attempt, context.allGather, host=host, batches=batches)
        )
    except PeerGoneError as gone:
        return json.dumps(str(gone))


def exchanged_by_number(
    plan: TaskPlan, kind: type[StageTask], number: Iterable[int]
) -> Iterator[str]:
    """Run a task that reads the increment itself; the number that Spark sends is not used."""
    deque(number, maxlen=0)  # Spark discards a worker that leaves part of its input unread
    yield exchanged(plan, kind)


def exchange_task(
    plan: TaskPlan, kind: type[StageTask]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that runs a task on its shuffled records."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        body = exchanged(plan, kind, batches)
        yield pa.RecordBatch.from_pydict({"body": pa.array([body], pa.string())})

    return run


@dataclass(frozen=True)
class BarrierJobs:
    """One Spark's jobs for loops that have several tasks."""

    context: SparkContext
    placement: Placement
    clock: Clock = MACHINE
    slots_seconds: float = SLOTS_SECONDS

    def slots(self) -> int:
        """Return how many tasks Spark can run at the same time on its present executors."""
        scala: Any = self.context._jsc.sc()
        profile = scala.resourceProfileManager().defaultResourceProfile()
        return int(scala.maxNumConcurrentTasks(profile))

    def running(self) -> int:
        """Return how many tasks Spark runs now."""
        executors: Any = self.context._jsc.sc().statusTracker().getExecutorInfos()
        return sum(int(one.numRunningTasks()) for one in executors)

    def arranged(self, task: TaskPlan, kind: type[StageTask]) -> list[str]:
        """Run the job whose tasks each read the complete increment; return its texts, by task."""
        numbers = self.placement.numbers(task.tasks).barrier()
        return numbers.mapPartitions(partial(exchanged_by_number, task, kind)).collect()

    def reports(
        self, plan: RunPlan, tasks: int, job: Callable[[], list[str]], going: Callable[[], None]
    ) -> str:
        """Run a loop, again if one of its tasks is lost; return what its tasks report, as JSON.

        `job` returns the texts of its tasks; `going` raises if the run was cancelled. Raises
        `TooFewSlotsError`, or `WorkerEndedError` if tasks were lost as often as a task is tried.
        """
        tries, seconds = self.tries(), 0.0
        for left in reversed(range(tries)):
            self._await_slots(tasks, seconds, going)
            seconds = self.slots_seconds
            try:
                texts = job()
            except Exception as exc:
                text = str(exc)
                if any(code in text for code in _REFUSED):
                    raise TooFewSlotsError(1) from exc
                if _GIVEN_UP not in text or not left:
                    raise
                going()
                cause = text.partition(_GIVEN_UP)[2].strip(" .").splitlines()[:2]
                _log.warning(
                    "run %s: its loop starts again, because a task failed: %s",
                    plan.run,
                    " ".join(cause),
                )
                continue
            lost = [json.loads(text) for text in texts if text.startswith('"')]
            by_task = [decode(text) for text in texts if not text.startswith('"')]
            if not lost or any(one and not has_succeeded(one) for one in by_task):
                return encode(joined_reports(by_task))
            if not left:
                raise end_of_worker(plan.run, (plan.node, *plan.fused), "", lost[0])
            going()
            _log.warning(
                "run %s: its loop starts again, because a task was lost: %s", plan.run, lost[0]
            )
        raise AssertionError(tries)

    def tries(self) -> int:
        """Return how often Spark tries a task."""
        return int(self.context._jsc.sc().taskScheduler().maxTaskFailures())

    def _await_slots(self, tasks: int, seconds: float, going: Callable[[], None]) -> None:
        until = self.clock.seconds() + seconds
        while (slots := self.slots()) < tasks:
            if self.clock.seconds() >= until:
                raise TooFewSlotsError(max(1, slots))
            going()
            self.clock.wait(_POLL_SECONDS)
