"""Main program of a resident worker: it runs one task after the other from a pipe.

`worker_pool` starts it as `python -m cbp.engine.spark.worker_main FD ALIVE CRASH STACK` and keeps
the other ends of both pipes. The worker ends when one is closed, even while an author's code hangs,
so it never outlives its driver. It also ends after a long time without a request. Output that an
author's code prints goes to stderr, as from Spark's workers; the pipe carries only answers.

A request is the task's number (4 bytes) and the pickled work and attempt. The answer is the
pickled list of what the task reports, or the text of the exception that it raised; and whether
author's code has changed the process (`cbp.model.author.process_state`), which then ends.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import sys
import traceback
from multiprocessing.connection import Connection

import numpy.random

from cbp.engine.spark import tasks as work
from cbp.engine.workers.end_with_parent import end_with
from cbp.engine.workers.process_stack import write_stack_when_asked
from cbp.model.author.process_state import ProcessWatch, watch_process

IDLE_SECONDS = 600.0
"""A worker that was idle for this long ends, to free its memory."""

PREPARED = (work, numpy.random)


def answer(request: bytes) -> list[str] | str:
    """Do one task; return its report, or the text of its exception."""
    try:
        task, attempt = pickle.loads(request[4:])
        reports: list[str] = task(int.from_bytes(request[:4], "big"), attempt)
    except Exception:  # any: Spark runs the tasks again, and reports the error
        return traceback.format_exc()
    return reports


def serve(link: Connection, watch: ProcessWatch) -> None:
    """Do tasks until the other end is closed, or no request arrives for `IDLE_SECONDS`."""
    link.send_bytes(b"ready")
    while not watch.is_changed and link.poll(IDLE_SECONDS):
        try:
            request = link.recv_bytes()
        except EOFError:
            return
        watch.begin()
        answered = answer(request)
        if isinstance(answered, str):  # no task has compared the process
            watch.ended()
        link.send_bytes(pickle.dumps((answered, watch.is_changed)))
        gc.collect()  # after the answer, while no caller waits


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to the whole group
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    end_with(int(sys.argv[2]))
    write_stack_when_asked(int(sys.argv[4]))
    process_watch = watch_process()
    gc.collect()
    gc.freeze()
    try:
        serve(Connection(int(sys.argv[1])), process_watch)
    except BrokenPipeError:
        os._exit(0)  # the driver is gone
