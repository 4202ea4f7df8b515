"""Pool of resident workers: long-lived Python processes that run small runs without a Spark job.

    run of few tasks --> enough workers free? --yes--> each does one task --> what they reported
                                 '--no---------------------------------> a Spark job, as usual

A worker gets the same work as Spark's Python workers and runs the same code with the same settings
(`worker_main`). Workers are started in the background once small runs are frequent.

Guaranteed: only the time of a run depends on the pool. If a worker cannot finish (it died, or its
code raised), Spark does the run from the start, with its retries and its errors; no record names
the files of the lost attempt. The workers of a cancelled run are killed.
Absent on purpose: clusters, where the index copies are on the executors; shuffles; SQL.
"""

from __future__ import annotations

import logging
import os
import pickle
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from pyspark import cloudpickle

from cbp.engine.interface.runs import ProcessStack
from cbp.engine.spark.tasks import Work
from cbp.engine.workers.process_stack import ask_all
from cbp.engine.workers.worker_process import WorkerProcess

_MODULE = "cbp.engine.spark.worker_main"
_pickled: Callable[[Any], bytes] = cloudpickle.dumps
_log = logging.getLogger(__name__)


def safe_path() -> dict[str, str]:
    """Return the variables that keep a Python process from importing from its working directory.

    There are none if this process itself imports from there, as under `python -m`.
    """
    here = os.getcwd()
    mine = any(not entry or os.path.abspath(entry) == here for entry in sys.path)
    return {} if mine else {"PYTHONSAFEPATH": "1"}


class _Worker(WorkerProcess):
    """One resident worker; if its process `is_changed` by author's code, it ends by itself."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        super().__init__([sys.executable, "-m", _MODULE], environment)
        self.is_changed = False

    def ready(self) -> None:
        """Wait until it has imported the modules of tasks; raises `EOFError` if it died."""
        self.receive()

    def answer(self) -> list[str] | str:
        """Wait for the task's report, or for the text of what it raised; raises as `receive`."""
        answer: list[str] | str
        answer, self.is_changed = pickle.loads(self.receive())
        return answer


class WorkerPool:
    """The resident workers of one executor, `most` of them; safe to use from several threads."""

    def __init__(self, most: int, environment: Mapping[str, str] = MappingProxyType({})) -> None:
        # Copied now, since author's code in this process, such as a Runnable, may change it later.
        self._environment = {**os.environ, **safe_path(), **environment}
        self.most = most
        self._lock = threading.Lock()
        self._free: list[_Worker] = []
        self._serving: dict[str, list[_Worker]] = {}
        self._seen = self._starting = 0
        self._closed = False

    @property
    def free(self) -> list[int]:
        """The process ids of the workers that wait for work."""
        with self._lock:
            return [worker.pid for worker in self._free]

    def start(self) -> None:
        """Start all workers now, and wait until each is ready or has failed to start."""
        with self._lock:
            missing = 0 if self._closed else self._claimed()
        threads = [threading.Thread(target=self._start) for _ in range(missing)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def reports(
        self,
        run: str,
        work: Work,
        tasks: int,
        *,
        attempt: str,
        going: Callable[[], None],
        after: int,
    ) -> list[str] | None:
        """Do a run's tasks, all at the same time; `None` if Spark has to do them.

        The work is pickled, and called once per task. `going` raises if the run was cancelled; it
        is called as soon as `cancel` can find the workers. Workers are started after `after` small
        runs.
        """
        workers = self._take(run, tasks, after)
        if workers is None:
            return None
        busy: list[_Worker] = []
        try:
            going()
            answers = _answers(workers, busy, _pickled((work, attempt)))
        finally:
            self._give_back(run, workers, lost=busy)
        if isinstance(answers, str):
            going()  # raises if the worker ended because the run was cancelled
            _log.warning(
                "a resident worker failed, so the run is repeated as a Spark job: %s", answers
            )
            return None
        return answers

    def cancel(self, run: str) -> None:
        """Kill the workers that serve a run."""
        with self._lock:
            for worker in self._serving.get(run, ()):
                worker.kill()

    def stacks(self, run: str) -> list[ProcessStack]:
        """Return where the workers that serve a run are now; empty if there are none."""
        with self._lock:
            workers = self._serving.get(run, [])
        stacks = ask_all(lambda worker: worker.stack(), workers)
        with self._lock:  # by now, other workers may serve the run, and these another run
            return stacks if self._serving.get(run) is workers else []

    def close(self) -> None:
        """End all workers."""
        with self._lock:
            self._closed = True
            ended, self._free = self._free, []
            for busy in self._serving.values():
                for worker in busy:
                    worker.kill()
        for worker in ended:
            worker.close()

    def _take(self, run: str, tasks: int, after: int) -> list[_Worker] | None:
        with self._lock:
            if tasks > self.most or self._closed:
                return None
            for worker in [worker for worker in self._free if worker.ended]:
                self._free.remove(worker)
                worker.close()  # hardly waits: its process has ended, or was killed
                self._seen = 0
            self._seen += 1
            if len(self._free) >= tasks:
                chosen, self._free = self._free[:tasks], self._free[tasks:]
                self._serving[run] = chosen
                return chosen
            missing = 0 if self._seen <= after else self._claimed()
        for _ in range(missing):
            threading.Thread(target=self._start, name="cbp-resident", daemon=True).start()
        return None

    def _claimed(self) -> int:
        """Count missing workers as starting, and return their number; the caller starts them."""
        busy = sum(map(len, self._serving.values()))
        missing = self.most - len(self._free) - busy - self._starting
        self._starting += missing
        return missing

    def _give_back(self, run: str, workers: Sequence[_Worker], *, lost: Sequence[_Worker]) -> None:
        with self._lock:
            del self._serving[run]
            lost = workers if self._closed else lost
            # The worker that was used last comes first, since its caches are warmest.
            self._free = [worker for worker in workers if worker not in lost] + self._free
            if lost:
                self._seen = 0
        for worker in lost:
            worker.kill()
            worker.close()

    def _start(self) -> None:
        worker = None
        try:
            worker = _Worker(self._environment)
            worker.ready()
        except (OSError, EOFError) as error:
            _log.warning("a resident worker did not start, so Spark runs its tasks: %r", error)
            with self._lock:
                self._seen = 0
            if worker is not None:
                worker.close()
            worker = None
        with self._lock:
            self._starting -= 1
            if worker is not None and not self._closed:
                self._free.append(worker)
                return
        if worker is not None:
            worker.close()


def _answers(workers: Sequence[_Worker], busy: list[_Worker], request: bytes) -> list[str] | str:
    """Return the reports of all tasks, or why one failed.

    Workers that began and did not answer, or were changed, stay in `busy`, as lost ones.
    """
    reports: list[str] = []
    failure = ""
    for part, worker in enumerate(workers):
        busy.append(worker)
        worker.send(part.to_bytes(4, "big") + request)
    for worker in workers:
        try:
            reply = worker.answer()
        except (EOFError, OSError) as error:
            reply = f"its process ended: {error!r}"
        else:
            if not worker.is_changed:
                busy.remove(worker)
        if isinstance(reply, str):
            failure = failure or reply
        else:
            reports += reply
    return failure or reports
