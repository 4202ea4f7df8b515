"""Main program of a worker of the local engine: it runs the tasks of one run after the other.

`cbp.engine.workers.worker_executor` starts it, holds the other ends of its pipes, and kills it to
cancel a run. It ends with the service, even while an author's code holds the interpreter. What an
author's code prints goes to stderr.

    first message   the service's `sys.path` and its level of logging, pickled
    request         a pickled function without arguments
    log lines       any number of pickled `LogLine`s, while the function is called
    meeting         a pickled `Meeting`, if the function calls `gather`; the answer is a list
    answer          the pickled `Done`, `Coded` or `Raised`

A crash in C leaves its stack of Python frames in the file of crashes. `os._exit` does so, too, so
that the error can name the line that ends the process. If the machine's memory runs out, the system
ends this process before the service.
"""

from __future__ import annotations

import faulthandler
import gc
import logging
import os
import pickle
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import IO, Any, NoReturn

import numpy.random

from cbp.engine.shuffle.exchange import PeerGoneError
from cbp.engine.task import stage_task as _tasks  # imported before the first request
from cbp.engine.workers.end_with_parent import end_first, end_with
from cbp.engine.workers.process_stack import write_stack_when_asked
from cbp.errors import CbpError, text_of
from cbp.model.author.process_state import ProcessWatch, watch_process

LINES_MAX, LINE_CHARACTERS_MAX = 10_000, 8_000
"""How many log lines of a request are sent, and how many characters of a line."""

PREPARED = (_tasks, numpy.random)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A worker's answer to a request, and whether author's code has changed its process.

    Attributes:
        by_loading: Whether loading the code has changed the process; it then runs the same stage
            only.
        by_calls: Whether calls have changed the process, so that it ends after the answer.
    """

    by_loading: bool = False
    by_calls: bool = False


@dataclass(frozen=True, slots=True)
class Done(Answer):
    """What the function returned."""

    result: Any


@dataclass(frozen=True, slots=True)
class Coded(Answer):
    """A coded error: the name of its class, and `as_dict()`."""

    kind: str
    error: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Raised(Answer):
    """Another exception, and its traceback."""

    exception: Exception
    trace: str


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line that the author's code logged during a request; it is sent before the answer."""

    logger: str
    level: int
    message: str


@dataclass(frozen=True, slots=True)
class Meeting:
    """The message of one worker of a run to all others before they begin."""

    text: str


_meet: list[Callable[[str], Sequence[str] | None]] = []
"""In a worker: the function that sends a text to all workers of a run."""


def gather(text: str) -> Sequence[str]:
    """Return the texts of all workers of the run; `PeerGoneError` if one does not send its own."""
    (meet,) = _meet
    if (texts := meet(text)) is None:
        raise PeerGoneError(-1, False)
    return texts


def answer(request: bytes) -> Answer:
    """Do the work of a request; return its result, or the error that it raised."""
    try:
        return Done(pickle.loads(request)())
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
    return RuntimeError(f"{type(error).__name__}: {text_of(error)}")


def _limit_memory(more: int) -> None:
    """Limit the writable memory to `more` bytes beyond its use now; mapped files do not count."""
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


class _Lines(logging.Handler):
    """Sends log lines written during a request; other lines belong to no run, and are dropped."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter())  # the message, and the stack of an exception
        self._send, self._left, self._own = send, 0, os.getpid()

    def emit(self, record: logging.LogRecord) -> None:
        if self._left <= 0 or os.getpid() != self._own:  # forked by the author's code
            return
        self._left -= 1
        try:
            text = self.format(record)[:LINE_CHARACTERS_MAX]
            self._send(pickle.dumps(LogLine(record.name, record.levelno, text)))
        except Exception:  # a log must not end what it describes
            self.handleError(record)

    def answer(self, request: bytes, watch: ProcessWatch) -> None:
        self._left = LINES_MAX
        watch.begin()
        answered = answer(request)
        if isinstance(answered, Raised):  # no task has compared the process yet
            watch.ended()
        answered = replace(answered, by_loading=watch.by_loading, by_calls=watch.by_calls)
        with self.lock or nullcontext():
            self._left = 0
            self._send(pickle.dumps(answered))


def _serve(link: Connection, watch: ProcessWatch) -> None:
    path, level = pickle.loads(link.recv_bytes())
    sys.path[:] = path
    lines = _Lines(link.send_bytes)

    def meet(text: str) -> Sequence[str] | None:
        with lines.lock or nullcontext():
            link.send_bytes(pickle.dumps(Meeting(text)))
        texts: Sequence[str] | None = pickle.loads(link.recv_bytes())
        return texts

    _meet[:] = [meet]
    logging.basicConfig(handlers=[lines], level=level, force=True)
    while not watch.by_calls:
        try:
            request = link.recv_bytes()
        except EOFError:
            return
        lines.answer(request, watch)
        gc.collect()  # after the answer, while no caller waits


def main(memory_bytes_max: int, link: int, alive: int, crash: int, stack: int) -> None:
    """Serve until the service closes its ends of the pipes.

    Args:
        memory_bytes_max: Limit of what this process may use, without its libraries; 0: none.
        alive: Its other end is closed when the service is gone.
        crash: The file in which a crash leaves its stack.
        stack: The file in which this process writes its stack when it is asked for it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal signals the whole group
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    end_with(alive)
    end_first()
    crash_file = os.fdopen(crash, "w", encoding="utf-8")
    faulthandler.enable(crash_file, all_threads=False)
    _tell_exits(crash_file)
    write_stack_when_asked(stack)
    if memory_bytes_max:
        _limit_memory(memory_bytes_max)
    watch = watch_process()
    gc.collect()
    gc.freeze()
    with suppress(BrokenPipeError, ConnectionResetError, EOFError):
        _serve(Connection(link), watch)
    sys.exit(0)
