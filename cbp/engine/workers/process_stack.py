"""Where a worker process is now: the stack of its main thread, which it writes when asked.

    service: ask -- SIGURG --> worker: `faulthandler` writes its calls into a file of both
                 <-- calls --- read once the outermost one is there

The handler of the signal is in C and runs no Python, so it also shows code that hangs in C, or that
holds the interpreter. It writes only names and lines, no values. Most system calls are restarted;
`poll` or a sleep in a native library can return early (`man 7 signal`). The system ignores this
signal in a process without a handler: while it is starting, or after its code removed the handler.

Guaranteed: several processes are asked at the same time. If a process stays silent, the requests
that waited for it end together with the first one, without an answer
(tests/cbp/engine/workers/test_process_stack.py).
"""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from cbp.clock import MACHINE, Clock
from cbp.engine.interface.runs import StackCall

ANSWER_SECONDS = 2.0
"""A process that does not answer by then is starting, stopped, or waits in the system for a device;
or its code handles this signal."""

_LOOK_SECONDS = 0.01
_BYTES_MAX = 1 << 20
_Worker = TypeVar("_Worker")
_Stack = TypeVar("_Stack")
_HEADER = "Stack (most recent call first):\n"
_CALL = re.compile(r'^ *File "(.+)", line (\d+) in (.+)$', re.MULTILINE)
_OUTERMOST = re.compile(r"(?: in <module>| in _run_module_as_main|^  \.\.\.)\n\Z", re.MULTILINE)


def write_stack_when_asked(file: int) -> None:
    """Let this process write its stack into a file whenever another process asks for it."""
    faulthandler.register(signal.SIGURG, file, all_threads=False)


def calls_of(text: str) -> tuple[StackCall, ...]:
    """Return the last stack's calls as `faulthandler` wrote them, outermost first."""
    calls = [StackCall(f, int(line), name) for f, line, name in _CALL.findall(_last_stack(text))]
    return tuple(reversed(calls))


def _last_stack(text: str) -> str:
    """Return the text after the last header; empty if there is none."""
    _, header, stack = text.rpartition(_HEADER)
    return stack if header else ""


def ask_all(ask: Callable[[_Worker], _Stack], workers: Sequence[_Worker]) -> list[_Stack]:
    """Ask several workers for their stacks at the same time, so that silent ones add no time."""
    if not workers:
        return []
    with ThreadPoolExecutor(len(workers), thread_name_prefix="cbp-stack") as threads:
        return list(threads.map(ask, workers))


class StackFile:
    """The file for the stacks of one process, by `descriptor`; safe to use from several threads."""

    def __init__(self, clock: Clock = MACHINE) -> None:
        self._clock, self._lock, self._closed = clock, threading.Lock(), False
        self._silences = 0
        if hasattr(os, "memfd_create"):  # works on a full disk
            self.descriptor = os.memfd_create("cbp-stack")
        else:
            self.descriptor, name = tempfile.mkstemp(prefix="cbp-stack-")
            os.unlink(name)  # it lasts as long as its descriptors

    def ask(
        self, send: Callable[[int], object], ended: Callable[[], bool]
    ) -> tuple[StackCall, ...]:
        """Return the process's calls now, outermost first; none if it is silent."""
        came = self._silences
        with self._lock:
            # A stack is not shared: the process may be in another run by now.
            if self._closed or ended() or self._silences != came:
                return ()
            os.ftruncate(self.descriptor, 0)
            os.lseek(self.descriptor, 0, os.SEEK_SET)  # of both: they share the place
            send(signal.SIGURG)
            calls = calls_of(self._written(ended))
            self._silences += not calls
            return calls

    def close(self) -> None:
        """Close this process's descriptor, once nobody reads it."""
        with self._lock:
            if not self._closed:
                self._closed = True
                os.close(self.descriptor)

    def _written(self, ended: Callable[[], bool]) -> str:
        until, text = self._clock.seconds() + ANSWER_SECONDS, ""
        while self._clock.seconds() < until and not ended():
            before, text = text, os.pread(self.descriptor, _BYTES_MAX, 0).decode(errors="replace")
            if text == before and _OUTERMOST.search(_last_stack(text)):
                break
            self._clock.wait(_LOOK_SECONDS)
        return text
