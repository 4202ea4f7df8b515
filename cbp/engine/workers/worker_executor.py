"""Executor of the local engine in a service: a worker process does the tasks of a run.

An author's code can end its process: by a crash in C, by `os._exit`, by using up all memory. In the
service's own process it would stop every dataflow, again after each restart. Here it ends a worker:

    run -> a free worker, or a new one -> all tasks of the run, one after the other
             |-- answers    it is free again, or replaced if author's code has changed it
             '-- ends       the run fails; the error has the author's line if the worker wrote it

A cancelled run's worker is killed. A large loop within a run can have a worker for each free
processor; they exchange messages (`cbp.engine.shuffle.flight_exchange`). If one ends, all do.

A new worker takes seconds to start. So one is ready for each run that can be under way at a time:
`warm`, which a service calls from time to time, starts them one by one, also while others work. A
worker that has done runs ends once it was idle for `IDLE_SECONDS`, which frees its memory. The
worker that was used last, and those that have done nothing yet, stay.

Guaranteed (tests/cbp/engine/workers/test_worker_executor.py): a worker does one run at a time and
never outlives the service; runs of a recomputation share no worker with other runs; a worker begins
with the environment and the folder that the service had at its start.
Absent on purpose: a second try; the controller's loop counts tries.
"""

from __future__ import annotations

import logging
import os
import pickle
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from cbp.clock import MACHINE
from cbp.engine.interface.runs import ProcessStack, RunPlan
from cbp.engine.run.cancelled_runs import CancelledRuns
from cbp.engine.run.executor import LocalExecutor, joined_reports, run_together
from cbp.engine.shuffle.exchange import PeerGoneError
from cbp.engine.task.reports import JobLane, TaskReport, has_succeeded
from cbp.engine.task.task_plan import TaskPlan
from cbp.engine.workers.carried_errors import carried_error
from cbp.engine.workers.ended_workers import end_of_worker, status_text
from cbp.engine.workers.process_stack import ask_all
from cbp.engine.workers.task_worker import Answer, Coded, Done, LogLine, Meeting, Raised, gather
from cbp.engine.workers.worker_process import POLL_SECONDS, WorkerProcess
from cbp.errors import CodeNotLoadedError, RunCancelledError, error_from_dict
from cbp.model.plan.spark_or_worker import Lane

_CODE = (
    "import sys; sys.path.append({path!r}); from cbp.engine.workers.task_worker import main; "
    "main({memory}, *map(int, sys.argv[1:]))"
)
IDLE_SECONDS = 600.0
"""Workers that did runs and then were idle for this long are ended to free memory, except one."""

_SERVICE = "CBP_"
"""How the names of the service's own variables begin; an author's code does not get them."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Idle:
    """A worker without a run, `since` a time in seconds; `used` if it has done a run.

    Attributes:
        shared_by: The runs that can use it: those of a folder's recomputation, or those of the
            stages whose code has changed it (`_own`); `""`: any.
    """

    shared_by: str
    worker: _Worker
    since: float
    used: bool


class _Worker(WorkerProcess):
    """One worker of the local engine."""

    def __init__(
        self, memory_bytes_max: int, environment: Mapping[str, str], folder: str | None
    ) -> None:
        code = _CODE.format(path=str(Path(__file__).parents[3]), memory=memory_bytes_max)
        super().__init__([sys.executable, "-P", "-c", code], environment, folder)
        path = [os.path.abspath(entry) for entry in sys.path]
        self.send(pickle.dumps((path, logging.getLogger().getEffectiveLevel())))


class WorkerExecutor(LocalExecutor):
    """Carries out the tasks of a run in a worker process; safe to use from several threads.

    Args:
        free_max: Maximum number of idle workers that are kept.
        ready: Number of workers, busy ones included, that `warm` starts before runs need them.
        memory_bytes_max: Limit of a worker's own memory; 0 means no limit.
        loop_tasks_max: Maximum number of workers that a loop has; 0 means one per processor.
    """

    def __init__(
        self,
        *,
        free_max: int = 2,
        ready: int = 1,
        memory_bytes_max: int = 0,
        loop_tasks_max: int = 1,
        seconds: Callable[[], float] = MACHINE.seconds,
    ) -> None:
        super().__init__()
        self._processors = len(os.sched_getaffinity(0))
        self.loop_tasks_max = loop_tasks_max or self._processors
        self._free_max, self._ready, self._seconds = free_max, ready, seconds
        # Both are copied now: author's code that runs in the service, such as a Runnable, may
        # change them later. The service's own settings are left out, since they hold its secrets.
        own = {name: value for name, value in os.environ.items() if not name.startswith(_SERVICE)}
        self._start = partial(_Worker, memory_bytes_max, own, _folder())
        self._lock = threading.Lock()
        self._free: list[_Idle] = []
        self._serving: dict[_Worker, str] = {}
        self._cancelled = CancelledRuns()
        self._closed = False

    @property
    def pids(self) -> list[int]:
        """Ids of all processes; busy ones first."""
        with self._lock:
            return [worker.pid for worker in (*self._serving, *(one.worker for one in self._free))]

    def loop_slots(self) -> int:
        """Return how many workers a loop could have on processors that no other run uses now."""
        with self._lock:
            return max(1, min(self.loop_tasks_max, self._processors - len(self._serving)))

    def execute(self, plan: RunPlan, task: TaskPlan) -> list[TaskReport]:
        """Run the same task code as Spark's workers, in one worker process, or in one per task.

        Raises:
            AuthorProcessError: If the author's code ended the process.
            AuthorUnsendableError: If the translator cannot be sent to it.
            WorkerEndedError: If the process ended for an unknown reason.
            RunCancelledError: If `cancel` ended the process.
        """
        if task.spec.supersteps > 1 and task.tasks > 1:
            return self._execute_together(plan, task)
        (answer,) = self._answered(plan, [self.work(plan, task)])
        if not isinstance(answer, Done):
            raise _error(answer)
        reports: list[TaskReport] = answer.result
        return reports

    def _execute_together(self, plan: RunPlan, task: TaskPlan) -> list[TaskReport]:
        works = [
            partial(run_together, self._kind, task, part, "0", gather) for part in range(task.tasks)
        ]
        lost: PeerGoneError | None = None
        by_task: list[list[TaskReport]] = []
        for answer in self._answered(plan, works):
            if isinstance(answer, Done):
                by_task.append(answer.result)
                if answer.result and not has_succeeded(answer.result):
                    break  # the first task that failed
            elif isinstance(error := _error(answer), PeerGoneError):
                lost = error
            else:
                raise error
        else:
            if lost is not None:  # though no process has ended
                nodes = plan.node, *plan.fused
                raise end_of_worker(plan.run, nodes, "", str(lost)) from lost
        return [*joined_reports(by_task), JobLane(Lane.LOCAL)]

    def _answered(
        self, plan: RunPlan, works: Sequence[Callable[[], list[TaskReport]]]
    ) -> list[Answer]:
        try:
            requests = [_pickled(work) for work in works]
        except Exception:  # an author's object may raise anything
            from cbp.engine.workers.shipping import refuse_unsendable

            refuse_unsendable((plan.node, *plan.fused))
            raise
        return self._asked(plan, requests)

    def warm(self) -> None:
        """Start a worker that any run can use, if too few are ready; end workers idle for long.

        One at a time, so that the runs under way keep most of the processors.
        """
        with self._lock:
            idle = [one for one in self._free if not one.shared_by and not one.worker.ended]
            kept = idle[-1:]  # the one that was used last
            over = [one for one in self._free if one not in kept and self._is_over(one)]
            self._free = [one for one in self._free if one not in over]
            has_room = len(self._free) < self._free_max and not self._closed
            ready = len([one for one in idle if one not in over]) + len(self._serving)
        for one in over:
            one.worker.close()
        if has_room and ready < self._ready:
            self._replace("")
            _pickled(int)  # imports the modules that send runs to it

    def _is_over(self, one: _Idle) -> bool:
        idle_seconds = self._seconds() - one.since
        return one.worker.ended or (one.used and idle_seconds >= IDLE_SECONDS)

    def cancel(self, run: str) -> None:
        """Kill the worker of a run."""
        with self._lock:
            self._cancelled.add(run)
            self._kill(lambda one: one == run)

    def stacks(self, run: str) -> list[ProcessStack]:
        """Return where the workers of a run are now."""
        with self._lock:
            workers = [worker for worker, served in self._serving.items() if served == run]
        asked = zip(workers, ask_all(lambda worker: worker.stack(), workers), strict=True)
        with self._lock:  # one that has ended the run meanwhile may be in the code of another one
            return [stack for worker, stack in asked if self._serving.get(worker) == run]

    def close(self) -> None:
        """End all workers; the runs of busy ones are cancelled."""
        with self._lock:
            self._closed = True
            ended, self._free = self._free, []
            self._kill(lambda one: True)
        for one in ended:
            one.worker.kill()  # without waiting for its imports, if it is still starting
            one.worker.close()

    def _kill(self, chosen: Callable[[str], bool]) -> None:
        for worker, run in self._serving.items():
            if chosen(run):
                worker.kill()

    def _asked(self, plan: RunPlan, requests: Sequence[bytes]) -> list[Answer]:
        shared_by = plan.folder if plan.recomputes else ""
        own = _own(plan)
        workers: list[_Worker] = []
        answers: list[Answer] = []
        try:
            for _ in requests:
                worker = self._idle(own, shared_by) or self._start()
                workers.append(worker)
                with self._lock:
                    self._serving[worker] = plan.run
                    self._require_going(plan.run)
            answers = answers_of(workers, requests)
        except TaskEndedError as ended:
            with self._lock:
                self._require_going(plan.run)
            victim = workers[ended.part]
            status = status_text(victim.status())
            _log.warning(
                "a worker process of run %s ended (%s); the run fails",
                plan.run,
                status or "unknown status",
            )
            nodes = plan.node, *plan.fused
            raise end_of_worker(plan.run, nodes, victim.crash(), status) from None
        finally:
            for part, worker in enumerate(workers):
                changed = not answers or answers[part].by_calls
                loaded = bool(answers) and answers[part].by_loading
                self._give_back(own if loaded else shared_by, worker, ended=changed)
        for answer in answers:
            if answer.by_calls:
                name = own if answer.by_loading else shared_by
                threading.Thread(target=self._replace, args=(name,), daemon=True).start()
        return answers

    def _require_going(self, run: str) -> None:
        """Refuse a cancelled run, also if it was cancelled while its previous job ended."""
        if self._closed or run in self._cancelled:
            self._cancelled.discard(run)
            raise RunCancelledError(run)

    def _idle(self, *shared_by: str) -> _Worker | None:
        """Take an idle worker that one of these shares, preferably the first; close ended ones."""
        with self._lock:
            ended = [one for one in self._free if one.worker.ended]
            self._free = [one for one in self._free if one not in ended]
            idle = [one for runs in shared_by[::-1] for one in self._free if one.shared_by == runs]
            if idle:
                self._free.remove(idle[-1])
        for one in ended:
            one.worker.close()
        return idle[-1].worker if idle else None

    def _give_back(self, shared_by: str, worker: _Worker, *, ended: bool) -> None:
        with self._lock:
            del self._serving[worker]
        if ended or worker.ended:  # it can be killed after its answer
            worker.kill()
            worker.close()
        else:
            self._keep(shared_by, worker, used=True)

    def _replace(self, shared_by: str) -> None:
        """Start a worker before a run needs it, for example in place of one that was ended."""
        with suppress(OSError):  # the next run starts one, and reports what is wrong
            self._keep(shared_by, self._start(), used=False)

    def _keep(self, shared_by: str, worker: _Worker, *, used: bool) -> None:
        """Keep an idle worker; close the one that was idle for longest if there are too many."""
        surplus = [worker]
        with self._lock:
            if not self._closed:
                # Used workers are taken first: they have mapped files and remembered values.
                place = len(self._free) if used else 0
                self._free.insert(place, _Idle(shared_by, worker, self._seconds(), used))
                surplus = [one.worker for one in self._free[: -self._free_max or None]]
                del self._free[: len(surplus)]
        for one in surplus:
            one.close()


def _pickled(work: Callable[[], Any]) -> bytes:
    # Imported here, as it imports PySpark, which a service without runs does not need.
    from cbp.engine.workers.shipping import pickled

    return pickled(work)


def _error(answer: Answer) -> Exception:
    if isinstance(answer, Coded):
        return error_from_dict(answer.kind, answer.error)
    assert isinstance(answer, Raised)
    if (carried := carried_error(str(answer.exception))) is not None:
        from cbp.engine.workers.shipping import with_differences

        return with_differences(carried) if isinstance(carried, CodeNotLoadedError) else carried
    with suppress(AttributeError):  # an exception may refuse attributes
        answer.exception.add_note(f"in a worker:\n{answer.trace}")
    return answer.exception


def _own(plan: RunPlan) -> str:
    code = [f"{node.name}={node.translator.code}" for node in (plan.node, *plan.fused)]
    return f"{plan.folder} {' '.join(code)}"


def _folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return None


class TaskEndedError(Exception):
    """A worker, by its number among those of the run, ended without an answer."""

    def __init__(self, part: int) -> None:
        self.part = part
        super().__init__(part)


def answers_of(workers: Sequence[WorkerProcess], requests: Sequence[bytes]) -> list[Answer]:
    """Let the workers do their requests at the same time; return their answers, by worker.

    They may meet first: each sends a `Meeting`, then gets the texts of all. If one answers before
    all have met, those that wait are notified. If one ends without an answer, `TaskEndedError`
    names it at once, whatever the others do.
    """
    for worker, request in zip(workers, requests, strict=True):
        worker.send(request)
    answers: dict[int, Answer] = {}
    met: dict[int, str] = {}
    while len(answers) < len(workers):
        for part in _ready(workers, answers):
            try:
                message = pickle.loads(workers[part].link.recv_bytes())
            except (EOFError, OSError) as exc:
                raise TaskEndedError(part) from exc
            match message:
                case LogLine(logger, level, text):
                    # Logged here, in the thread of the run, so that the entries have its fields.
                    logging.getLogger(logger).log(level, "%s", text)
                case Meeting(text):
                    met[part] = text
                    _introduce(workers, met, answers)
                case _:
                    answers[part] = message
                    _introduce(workers, met, answers)
    return [answers[part] for part in range(len(workers))]


def _introduce(
    workers: Sequence[WorkerProcess], met: dict[int, str], answers: Mapping[int, Answer]
) -> None:
    """Send waiting workers the texts of all, or `None` if one has answered; clears `met`."""
    if len(met) == len(workers):
        told: list[str] | None = [met[part] for part in range(len(workers))]
    elif met and answers:
        told = None
    else:
        return
    for part in met:
        workers[part].send(pickle.dumps(told))
    met.clear()


def _ready(workers: Sequence[WorkerProcess], answers: Mapping[int, Answer]) -> list[int]:
    """Wait until workers without an answer have sent a message; return their numbers.

    `TaskEndedError` if one has ended without an unread message.
    """
    links = {one.link: part for part, one in enumerate(workers) if part not in answers}
    ready = [links[link] for link in wait([*links], POLL_SECONDS) if link in links]
    for part in links.values():
        # A process that the author's code forked may hold the pipe open beyond the worker's end.
        if not ready and workers[part].ended and not workers[part].link.poll(0):
            raise TaskEndedError(part)
    return sorted(ready)
