"""Pool of reader processes: each reads one request at a time, within limits of time and memory.

    free process --request--> reads --answer--> free again, or ended after many files
                      |         '--died--> read again in another --died--> rejected
                      '-- too slow, stopped, device hangs --> killed

The time of a file is processor time: `seconds_max`, and one second more for each given number of
bytes read; in a batch each file has its own time. So a machine under load, or a slow disk, is no
reason to reject a file. If a process neither answers nor computes, it is shown (`stuck`) and later
killed; its file is left to the next pass.

Guaranteed: `__call__` returns, whatever the file holds, soon after `stopping` returned true or a
limit was passed. A process that is gone leaves parts that `PartNames.discard` removes. A small file
costs one message each way (tests/controller/ingest/reader/test_reader_pool.py measures).
"""

from __future__ import annotations

import logging
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from errno import ETIMEDOUT
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import controller
from cbp.clock import MACHINE
from controller.ingest.errors import IntakeStoppedError
from controller.ingest.formats.file_bytes import never
from controller.ingest.reader.file_reader import ReadRequest, ReadResult, StuckReader
from controller.ingest.reader.reader_process import HURRY, PLACE_BYTES, memory_bytes
from controller.ingest.rejection import FileRejectedError, manifest_refused

FREE_MAX = 2
"""Idle processes that are kept, some 90 MB each: one for a backlog, and one for other sources."""

FILES_MAX = 2_000
GROWTH_BYTES_MAX = 256 << 20
"""A process is replaced after `FILES_MAX` files, or once it holds this much more than at first."""

QUICK_SECONDS, POLL_SECONDS = 0.02, 0.05
START_SECONDS = 120.0
STOP_SECONDS = 5.0

_OWN = {"PYTHONSAFEPATH": "1", "OMP_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}
_NOT_PASSED = ("CBP_", "AWS_", "OTEL_", "PG", "PYTHONPATH", "PYTHONSTARTUP")
"""Variables with settings and secrets: of the service, of S3, of telemetry, of PostgreSQL."""

_CODE = "import sys; sys.path.append({path!r}); from {module} import main; main({fds})"
_MODULE = "controller.ingest.reader.reader_process"
_log = logging.getLogger(__name__)


class _Died(Exception):
    """The process ended while it was reading."""

    def __init__(self, status: int | None) -> None:
        super().__init__(status)
        self.status = status


class _Process:
    """One reader process and our end of its pipe; used by one thread at a time, killed by any."""

    def __init__(self, files_max: int) -> None:
        with ExitStack() as theirs, ExitStack() as ours:
            self._link, link = Pipe()
            ours.callback(self._link.close)
            theirs.callback(link.close)
            # Nothing is ever sent here: when this end closes, the reader knows that we are gone.
            alive, held_open = os.pipe()
            ours.callback(os.close, held_open)
            theirs.callback(os.close, alive)
            self._place = ours.enter_context(tempfile.TemporaryFile())
            fds = (link.fileno(), alive, self._place.fileno())
            code = _CODE.format(
                path=str(Path(controller.__file__).parents[1]),
                module=_MODULE,
                fds=", ".join(map(str, fds)),
            )
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", code],
                env={**_environment(), **_OWN},
                stdin=subprocess.DEVNULL,
                pass_fds=fds,
            )
            self._ours = ours.pop_all()
        self.files, self.files_max = 0, files_max
        self._first_bytes = 0
        self.watch: _Watch | None = None

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def worn(self) -> bool:
        """Whether it ended, has read many files, or holds much more memory than at its start."""
        if self._process.poll() is not None or self.files >= self.files_max:
            return True
        return memory_bytes(self.pid)[1] > self._first_bytes + GROWTH_BYTES_MAX

    def ready(self) -> None:
        if not self._link.poll(START_SECONDS):
            raise OSError(ETIMEDOUT, f"the reader process did not start within {START_SECONDS:g} s")
        self._receive()
        self._first_bytes = memory_bytes(self.pid)[1]

    def send(self, request: ReadRequest) -> None:
        self.files += 1
        os.pwrite(self._place.fileno(), bytes(PLACE_BYTES + len(HURRY)), 0)
        try:
            self._link.send_bytes(pickle.dumps(request))
        except OSError as exc:
            raise _Died(self._process.poll()) from exc

    def message(self, seconds: float) -> Any:
        return pickle.loads(self._receive()) if self._link.poll(seconds) else None

    def processor_seconds(self) -> float:
        try:
            with open(f"/proc/{self.pid}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def position(self) -> int:
        """Return the batch position of the file being read, even after the process ended."""
        return int.from_bytes(os.pread(self._place.fileno(), PLACE_BYTES, 0), "little")

    def hurry(self) -> None:
        """Make the process answer without beginning another file of its batch."""
        os.pwrite(self._place.fileno(), HURRY, PLACE_BYTES)

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> None:
        """Kill the process and reap it, unless it hangs inside the kernel."""
        self._process.kill()
        self._ours.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_SECONDS)

    def _receive(self) -> bytes:
        try:
            return self._link.recv_bytes()
        except (EOFError, OSError) as exc:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_SECONDS)
            raise _Died(self._process.poll()) from exc


class ReaderPool:
    """The reader processes of a service; a `FileReader` that gives each calling thread one."""

    def __init__(
        self, *, files_max: int = FILES_MAX, seconds: Callable[[], float] = MACHINE.seconds
    ) -> None:
        self._files_max, self._seconds = files_max, seconds
        self._lock = threading.Lock()
        self._free: list[_Process] = []
        self._busy: set[_Process] = set()
        self._closed = False

    @property
    def pids(self) -> list[int]:
        """Ids of all processes; busy ones first."""
        with self._lock:
            return [process.pid for process in (*self._busy, *self._free)]

    def stuck(self) -> list[StuckReader]:
        """Return the readers that have neither computed nor read for some time."""
        now = self._seconds()
        with self._lock:
            watches = [process.watch for process in self._busy]
        return [one for watch in watches if watch and (one := watch.stuck(now)) is not None]

    def __call__(
        self,
        request: ReadRequest,
        stopping: Callable[[], bool] = never,
        hurried: Callable[[], bool] = never,
    ) -> ReadResult:
        """Read the first files; arguments and errors are those of `FileReader`.

        A file that ends the process, or takes too long, ends the batch before it. If the files are
        read `whole`, a file that ends the process is read once more; then it is refused, and all
        others with it.
        """
        ends = 0
        while request.files:
            process = self._take(request.path, stopping)
            try:
                process.watch = _Watch(process, request, self._seconds)
                return _answer(process, request, stopping, hurried, process.watch)
            except (_Died, FileRejectedError) as failed:
                if self._closed:
                    raise IntakeStoppedError(request.path) from failed
                position = process.position()
                if not request.whole:
                    if isinstance(failed, FileRejectedError) and failed.rule != "file_too_slow":
                        # Which file it was is not known, so fewer files are tried.
                        position = min(position, len(request.files) // 2)
                    path = request.files[position].path
                    _log.warning("a batch failed; it is read again without %s and the rest", path)
                    request = replace(request, files=request.files[:position])
                    continue
                if isinstance(failed, FileRejectedError):
                    return _refused_at(request, position, failed)
                ends += 1
                if ends > 1:
                    return _refused_at(request, position, _lost(failed.status))
                path = request.files[position].path
                _log.warning("a reader ended with status %s while it read %s", failed.status, path)
            finally:
                self._give_back(process)
        return ReadResult("", (), ())

    def warm(self) -> None:
        """Start a process if fewer than `FREE_MAX` exist, and wait until it can read.

        A service calls it at its start and from time to time, so that no file waits for a process
        to start, even while a backlog of another source is read.
        """
        with self._lock:
            worn = [one for one in self._free if one.worn]
            self._free = [one for one in self._free if one not in worn]
            are_there = len(self._free) + len(self._busy) >= FREE_MAX
        for process in worn:
            process.end()
        if not are_there:
            with suppress(OSError, IntakeStoppedError):  # the next file says what is wrong
                self._give_back(self._started("", never))

    def close(self) -> None:
        """End all processes; waiting callers get the error that the service is stopping."""
        with self._lock:
            self._closed = True
            ended, self._free = self._free, []
            for process in self._busy:
                process.kill()
        for process in ended:
            process.end()

    def _take(self, path: str, stopping: Callable[[], bool]) -> _Process:
        with self._lock:
            if self._closed:
                raise IntakeStoppedError(path)
            process = self._free.pop() if self._free else None
            if process is not None:
                self._busy.add(process)
                return process
        return self._started(path, stopping)

    def _started(self, path: str, stopping: Callable[[], bool]) -> _Process:
        if stopping() or self._closed:
            raise IntakeStoppedError(path)
        started = _Process(self._files_max)
        with self._lock:
            self._busy.add(started)
        try:
            started.ready()
        except (_Died, OSError) as exc:
            started.files = started.files_max
            self._give_back(started)
            if self._closed:
                raise IntakeStoppedError(path) from exc
            raise OSError(ETIMEDOUT, "no process could be started to read the file") from exc
        return started

    def _give_back(self, process: _Process) -> None:
        worn, process.watch = process.worn, None
        with self._lock:
            self._busy.discard(process)
            if not worn and not self._closed and len(self._free) < FREE_MAX:
                self._free.append(process)
                return
        process.end()


def _environment() -> dict[str, str]:
    """Return this process's environment without the service's variables and secrets."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_NOT_PASSED)}


def _answer(
    process: _Process,
    request: ReadRequest,
    stopping: Callable[[], bool],
    hurried: Callable[[], bool],
    watch: _Watch,
) -> ReadResult:
    files, process.files = process.files, process.files_max  # worn, unless it answers
    process.send(request)
    wait = QUICK_SECONDS
    while True:
        message = process.message(wait)
        if wait > QUICK_SECONDS and hurried():  # not at once: a batch is more than one file
            process.hurry()
        wait = POLL_SECONDS
        if isinstance(message, int):
            watch.worked = message
        elif message is not None:
            process.files = files + 1
            if isinstance(message, FileRejectedError | OSError):
                raise message
            assert isinstance(message, ReadResult), f"the reader sent {type(message).__name__}"
            return message
        if stopping():
            raise IntakeStoppedError(request.path)
        watch.check()


def _refused_at(request: ReadRequest, position: int, error: FileRejectedError) -> ReadResult:
    """Return a refusal of a file and of all files that were to be taken in with it."""
    others = manifest_refused(request.files[position].file, error)
    outcomes = [others] * len(request.files)
    outcomes[position] = error
    return ReadResult("", (), tuple(outcomes))


class _Watch:
    def __init__(
        self, process: _Process, request: ReadRequest, seconds: Callable[[], float]
    ) -> None:
        self._process, self._request, self._seconds = process, request, seconds
        self._begun, self._worked_before = process.processor_seconds(), 0
        self._moved = seconds(), self._begun, 0
        self.worked, self._position = 0, 0

    def check(self) -> None:
        limits, now = self._request.limits, self._seconds()
        computed = self._process.processor_seconds()
        if (position := self._process.position()) != self._position:  # the next file begins
            self._position = position
            self._begun, self._worked_before = computed, self.worked
        worked_by_file = self.worked - self._worked_before
        allowed = limits.seconds_max + worked_by_file / limits.bytes_per_second_min
        if computed - self._begun > allowed:
            raise _too_slow(computed - self._begun, worked_by_file)
        since, before, worked = self._moved
        if computed > before or self.worked > worked:
            self._moved = now, computed, self.worked
        elif now - since > limits.silent_seconds_max:
            message = (
                f"no byte could be read for {limits.silent_seconds_max:g} s; the disk of the file "
                "does not answer"
            )
            raise OSError(ETIMEDOUT, message, self._request.files[self._position].path)

    def stuck(self, now: float) -> StuckReader | None:
        """Return the known facts about a stuck reader; called from any thread."""
        limits, silent = self._request.limits, now - self._moved[0]
        if silent < limits.silent_seconds_shown:
            return None
        ends = max(0.0, limits.silent_seconds_max - silent)
        file = self._request.files[self._position]
        return StuckReader(file.path, file.file, self._request.source.name, silent, ends)


def _too_slow(seconds: float, worked: int) -> FileRejectedError:
    message = (
        f"reading the first {worked} bytes took {seconds:.0f} s of processor time, which is more "
        "than a valid file needs; if the file is valid, raise CBP_FILE_SECONDS_MAX"
    )
    return FileRejectedError("file_too_slow", message)


def _lost(status: int | None) -> FileRejectedError:
    how = f"status {status}"
    if status is not None and status < 0:
        how = signal.Signals(-status).name
    message = (
        f"the process that read the file ended twice ({how}). Either the file is damaged, or the "
        "machine ran out of memory: see the service's log, then drop the file again"
    )
    return FileRejectedError("file_ends_reader", message, cause=how)
