"""The process of a resident worker: it takes one task after the other from a pipe.

Started as `python -m cbp.engine.spark.resident_worker FD ALIVE` by `resident`, which holds the
other ends. It ends when one of them is closed, also inside an author's code that hangs, so it
outlives no driver; and when nobody has asked for long. What an author's code prints goes where
errors go, as from Spark's workers; the pipe is its own.

A request is the task's number (4 bytes) and the pickled work and attempt; the answer is
the pickled list of what the task reports, or the text of what it raised.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import sys
import threading
import traceback
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection

from cbp.engine.spark import work

__all__ = ["IDLE_SECONDS", "answer", "serve"]

IDLE_SECONDS = 600.0
"""A worker that nobody needed for so long ends, and gives its memory back."""

PREPARED = (work,)


def answer(request: bytes) -> list[str] | str:
    """Do one task; return what it reports, or the text of what it raised."""
    try:
        task, attempt = pickle.loads(request[4:])
        reports: list[str] = task(int.from_bytes(request[:4], "big"), attempt)
    except Exception:  # whatever it was: Spark does the run again, and tells it
        return traceback.format_exc()
    return reports


def serve(link: Connection) -> None:
    """Do tasks until the other end is closed, or nobody has asked for long."""
    link.send_bytes(b"ready")
    while link.poll(IDLE_SECONDS):
        try:
            request = link.recv_bytes()
        except EOFError:
            return
        link.send_bytes(pickle.dumps(answer(request)))
        gc.collect()  # of what the task left, while nobody waits


def end_with(alive: Connection) -> None:
    """End this process when the other end is closed, as it is when its process is gone."""
    with suppress(EOFError, OSError):
        alive.recv_bytes()
    os._exit(0)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal tells the whole group
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    gc.collect()
    gc.freeze()
    watch = partial(end_with, Connection(int(sys.argv[2]), writable=False))
    threading.Thread(target=watch, name="cbp-alive", daemon=True).start()
    try:
        serve(Connection(int(sys.argv[1])))
    except BrokenPipeError:
        os._exit(0)  # the driver is gone
