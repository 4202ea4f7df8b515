"""Main program of a worker of the local engine: it runs the tasks of one run after the other.

`cbp.engine.workers.executor` starts it, holds the other ends of its pipes, and kills it to cancel a
run. It ends with the service, even while an author's code holds the interpreter, and after a long
time without a request. What an author's code prints goes to stderr.

    first message   the service's `sys.path`, pickled
    request         a pickled function without arguments
    answer          the pickled `Done`, `Coded` or `Raised`

A crash in C leaves its stack of Python frames in the file of crashes. `os._exit` does so, too: code
that ends the process is to be named by its line.

If the machine's memory runs out, the system ends this process before the service.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import pickle
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import IO, Any, NoReturn

from cbp.engine.task import stage_task as _tasks  # imported before the first request
from cbp.engine.workers.lifetime import end_first, end_with
from cbp.errors import CbpError

__all__ = ["IDLE_SECONDS", "Answer", "Coded", "Done", "Raised", "answer", "main"]

IDLE_SECONDS = 600.0
"""A worker that was idle for this long ends, to free its memory."""

PREPARED = (_tasks,)


@dataclass(frozen=True, slots=True)
class Done:
    """What the function returned."""

    result: Any


@dataclass(frozen=True, slots=True)
class Coded:
    """A coded error: the name of its class, and `as_dict()`."""

    kind: str
    error: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Raised:
    """Another exception, and its traceback."""

    exception: Exception
    trace: str


Answer = Done | Coded | Raised


def answer(request: bytes) -> Answer:
    """Do the work of a request; return its result, or the error that it raised."""
    try:
        work: Callable[[], Any] = pickle.loads(request)
        return Done(work())
    except CbpError as error:
        return Coded(type(error).__name__, error.as_dict())
    except Exception as error:  # any: the service raises it again
        return Raised(_portable(error), traceback.format_exc())


def _portable(error: Exception) -> Exception:
    """Return an exception that survives pickling: this one, or one that describes it."""
    try:
        if type(pickle.loads(pickle.dumps(error))) is type(error):
            return error
    except Exception:  # an exception's own pickling may raise anything
        pass
    return RuntimeError(f"{type(error).__name__}: {error}")


def _limit_memory(more: int) -> None:
    """Limit the memory that this process may write to, to `more` bytes beyond what it has.

    Files that it maps, such as index copies, do not count.
    """
    try:
        with open("/proc/self/statm", "rb") as file:
            has = int(file.read().split()[5]) * resource.getpagesize()
    except OSError:
        has = 0
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    soft = has + more if hard == resource.RLIM_INFINITY else min(has + more, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _tell_exits(crash: IO[str]) -> None:
    """Make `os._exit` write its stack of frames first, as `faulthandler` writes that of a crash."""
    own, end = os.getpid(), os._exit

    def _exit(status: int) -> NoReturn:
        if os.getpid() == own:  # a process that the author's code forked ends as it likes
            frames = reversed(traceback.extract_stack(sys._getframe(1)))
            lines = [f'  File "{one.filename}", line {one.lineno} in {one.name}' for one in frames]
            crash.write("\n".join([f"Fatal Python error: os._exit({status})", "", *lines, ""]))
            crash.flush()
        end(status)

    os._exit = _exit


def _serve(link: Connection) -> None:
    sys.path[:] = pickle.loads(link.recv_bytes())
    while link.poll(IDLE_SECONDS):
        try:
            request = link.recv_bytes()
        except EOFError:
            return
        link.send_bytes(pickle.dumps(answer(request)))
        gc.collect()  # after the answer, while no caller waits


def main(memory_bytes_max: int, link: int, alive: int, crash: int) -> None:
    """Serve until the service closes its ends.

    Args:
        memory_bytes_max: Limit of what this process may use, without its libraries; 0: none.
        link: The pipe of requests and answers.
        alive: Its other end is closed when the service is gone.
        crash: The file in which a crash leaves its stack.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal signals the whole group
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    end_with(alive)
    end_first()
    crash_file = os.fdopen(crash, "w", encoding="utf-8")
    faulthandler.enable(crash_file, all_threads=False)
    _tell_exits(crash_file)
    if memory_bytes_max:
        _limit_memory(memory_bytes_max)
    gc.collect()
    gc.freeze()
    with suppress(BrokenPipeError, ConnectionResetError, EOFError):
        _serve(Connection(link))
    sys.exit(0)
