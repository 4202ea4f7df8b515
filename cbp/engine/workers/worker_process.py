"""One worker process behind a pipe, and the files to which it writes a crash and its stack."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from multiprocessing import Pipe

from cbp.engine.interface.runs import ProcessStack
from cbp.engine.workers.process_stack import StackFile

POLL_SECONDS, STOP_SECONDS = 1.0, 5.0
CRASH_BYTES_MAX = 1 << 20

_OWN = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
"""Spark's defaults for its Python workers, so that an author's code behaves the same everywhere."""


class WorkerProcess:
    """A process with a pipe; one thread at a time uses it, any may kill it or ask for its stack.

    Its command is given four descriptors as arguments: its end of the pipe, one that closes when
    this process is gone, and the files of its crash and stack. Its environment is the given one
    and the defaults that all workers have.
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], folder: str | None = None
    ) -> None:
        self._killed = False
        self.link, theirs = Pipe()
        # Nothing is ever sent through this pipe. When it closes, a thread of the worker ends the
        # worker, since this process is gone.
        watched, self._alive = Pipe(duplex=False)
        with theirs, watched, ExitStack() as left:
            left.callback(self.link.close)
            left.callback(self._alive.close)
            self._crash, name = tempfile.mkstemp(prefix="cbp-crash-")
            left.callback(os.close, self._crash)
            os.unlink(name)  # it lasts as long as its descriptors
            self._stack = StackFile()
            left.callback(self._stack.close)
            ends = theirs.fileno(), watched.fileno(), self._crash, self._stack.descriptor
            self._process = subprocess.Popen(
                [*command, *map(str, ends)],
                env={**_OWN, **environment},
                cwd=folder if folder and os.path.isdir(folder) else None,
                stdin=subprocess.DEVNULL,
                pass_fds=ends,
            )
            self._files = left.pop_all()

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether the process has ended, as after a long idle time, or was killed."""
        return self._killed or self._process.poll() is not None

    def send(self, message: bytes) -> None:
        """Send a message; if the process has ended, only `receive` raises."""
        with suppress(OSError):
            self.link.send_bytes(message)

    def receive(self) -> bytes:
        """Wait for the next message. Raises `EOFError` or `OSError` if the process ended."""
        # A process that the author's code forked may hold the pipe open beyond the worker's end.
        while not self.link.poll(POLL_SECONDS):
            if self.ended and not self.link.poll(0):
                raise EOFError
        return self.link.recv_bytes()

    def status(self) -> int | None:
        """Return an ended process's exit status (-9 after SIGKILL); `None` if it still runs."""
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(STOP_SECONDS)
        return None

    def crash(self) -> str:
        """Return the output of a crashed process; empty if there is none."""
        return os.pread(self._crash, CRASH_BYTES_MAX, 0).decode(errors="replace")

    def stack(self) -> ProcessStack:
        """Return where the process is now; see `cbp.engine.workers.process_stack`."""
        calls = self._stack.ask(self._process.send_signal, lambda: self.ended)
        return ProcessStack(self.pid, calls)

    def kill(self) -> None:
        """Kill the process at once."""
        self._killed = True
        self._process.kill()

    def close(self) -> None:
        """End the process and close both pipes."""
        self.link.close()  # the process ends by itself once its task is done
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._files.close()
