"""Resident workers: the tasks of small runs in Python processes that stay, without a Spark job.

    run of few tasks --> enough workers free? --yes--> each does one task --> what they reported
                                 '--no---------------------------------> a Spark job, as ever

A job that does next to nothing costs many times what its tasks do, and a dataflow with a cycle
runs many in a row. A worker gets the same work as Spark's Python workers do and runs the same
code with the same settings (`resident_worker`); it is started once runs come often, beside them.

Guaranteed: nothing depends on it but how long a run takes. Whatever a worker cannot finish
(it died, its code raised) is done by Spark from the start, with its retries and its errors; the
files of the attempt that was lost are named by nobody. A cancelled run's workers are killed.
Absent on purpose: clusters, where state's copies lie on the executors; shuffles; SQL.
"""

from __future__ import annotations

import logging
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing import Pipe
from types import MappingProxyType
from typing import Any

from pyspark import cloudpickle

from cbp.engine.spark.work import Work

__all__ = ["Residents"]

HOT_RUNS = 8
"""Small runs behind which workers are worth their start, a second of a processor each.

They are counted anew where a worker was lost, or has ended because it had nothing to do.
"""

STOP_SECONDS = 5.0

_OWN = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
"""As Spark sets them for its Python workers, unless told: an author's code behaves the same."""

_MODULE = "cbp.engine.spark.resident_worker"
_pickled: Callable[[Any], bytes] = cloudpickle.dumps
_log = logging.getLogger(__name__)


class _Worker:
    """One process, at one end of a pipe; used by one thread at a time, killed by any."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._link, theirs = Pipe()
        # Nothing is ever sent: that it is closed tells the worker, whatever it does, that
        # this process is gone.
        watched, self._alive = Pipe(duplex=False)
        with theirs, watched:
            ends = theirs.fileno(), watched.fileno()
            self._process = subprocess.Popen(
                [sys.executable, "-m", _MODULE, *map(str, ends)],
                env={**_OWN, **os.environ, **environment},
                stdin=subprocess.DEVNULL,
                pass_fds=ends,
            )

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether the process is gone, as after a long idle time."""
        return self._process.poll() is not None

    def ready(self) -> None:
        """Wait until it has imported what tasks need; EOFError: it died."""
        self._link.recv_bytes()

    def send(self, request: bytes) -> None:
        """Let it begin; whether it is there is told by `answer`."""
        with suppress(OSError):
            self._link.send_bytes(request)

    def answer(self) -> list[str] | str:
        """Wait for what the task reported, or for the text of what it raised.

        Raises:
            EOFError, OSError: If the process ended.
        """
        found: list[str] | str = pickle.loads(self._link.recv_bytes())
        return found

    def kill(self) -> None:
        """End it at once, whatever it does."""
        self._process.kill()

    def close(self) -> None:
        """End it, and leave nothing of it."""
        self._link.close()  # it ends by itself, once it is done
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._alive.close()


class Residents:
    """The resident workers of one executor; safe to use from several threads.

    Args:
        most: Workers, 0: none. Each holds some hundred megabytes.
        environment: What Spark's workers are given, on top of this process's own.

    Attributes:
        most: Workers.
    """

    def __init__(self, most: int, environment: Mapping[str, str] = MappingProxyType({})) -> None:
        self._environment = environment
        self.most = most
        self._lock = threading.Lock()
        self._free: list[_Worker] = []
        self._serving: dict[str, list[_Worker]] = {}
        self._seen = self._starting = 0
        self._closed = False

    @property
    def free(self) -> list[int]:
        """The processes that wait for work."""
        with self._lock:
            return [worker.pid for worker in self._free]

    def start(self) -> None:
        """Start all workers now, and wait until they are ready, or could not be started."""
        with self._lock:
            missing = 0 if self._closed else self._claimed()
        threads = [threading.Thread(target=self._start) for _ in range(missing)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def reports(
        self, run: str, work: Work, tasks: int, *, attempt: str, going: Callable[[], None]
    ) -> list[str] | None:
        """Do a run's tasks at the same time; `None`: it is Spark's to do them.

        Args:
            run: Its id, for `cancel`.
            work: Is pickled, and called once per task.
            tasks: How many.
            attempt: No other call has it; stands in the names of files.
            going: Raises if the run was cancelled; asked once `cancel` would be heard.
        """
        workers = self._take(run, tasks)
        if workers is None:
            return None
        busy: list[_Worker] = []
        try:
            going()
            found = _answers(workers, busy, _pickled((work, attempt)))
        finally:
            self._give_back(run, workers, lost=busy)
        if isinstance(found, str):
            going()  # cancelled: that is why it ended
            _log.warning("a resident worker failed, Spark does its run: %s", found)
            return None
        return found

    def cancel(self, run: str) -> None:
        """Kill the workers that serve a run."""
        with self._lock:
            for worker in self._serving.get(run, ()):
                worker.kill()

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

    def _take(self, run: str, tasks: int) -> list[_Worker] | None:
        with self._lock:
            if tasks > self.most or self._closed:
                return None
            there = [worker for worker in self._free if not worker.ended]
            self._seen = self._seen + 1 if there == self._free else 1
            self._free = there
            if len(self._free) >= tasks:
                taken, self._free = self._free[:tasks], self._free[tasks:]
                self._serving[run] = taken
                return taken
            missing = 0 if self._seen <= HOT_RUNS else self._claimed()
        for _ in range(missing):
            threading.Thread(target=self._start, name="cbp-resident", daemon=True).start()
        return None

    def _claimed(self) -> int:
        """Return how many workers are missing; whoever asked starts them."""
        busy = sum(map(len, self._serving.values()))
        missing = self.most - len(self._free) - busy - self._starting
        self._starting += missing
        return missing

    def _give_back(self, run: str, workers: Sequence[_Worker], *, lost: Sequence[_Worker]) -> None:
        with self._lock:
            del self._serving[run]
            lost = workers if self._closed else lost
            # Who worked last has the warmest memory.
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
            _log.warning("no resident worker could be started: %r", error)
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
    """Return what all tasks reported, or why one did not.

    Args:
        workers: Task by task.
        busy: Takes those that have begun and did not answer: they are lost.
        request: For all of them.
    """
    reports: list[str] = []
    failure = ""
    for part, worker in enumerate(workers):
        busy.append(worker)
        worker.send(part.to_bytes(4, "big") + request)
    for worker in workers:
        try:
            found = worker.answer()
        except (EOFError, OSError) as error:
            found = f"it ended: {error!r}"
        else:
            busy.remove(worker)
        if isinstance(found, str):
            failure = failure or found
        else:
            reports += found
    return failure or reports
