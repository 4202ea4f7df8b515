"""How a child process ends together with its service, and limits on its resources."""

from __future__ import annotations

import fcntl
import os
import signal
import threading
from contextlib import suppress

_END_FIRST = b"500"


def end_with(alive: int) -> None:
    """End this process when the other end of a pipe is closed, as it is when the parent is gone."""
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    with suppress(OSError, AttributeError):
        # The default action of the signal ends the process, whatever holds the interpreter.
        fcntl.fcntl(alive, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(alive, fcntl.F_SETFL, fcntl.fcntl(alive, fcntl.F_GETFL) | os.O_ASYNC)
    end = os._exit

    def watch() -> None:
        with suppress(OSError):
            os.read(alive, 1)
        end(0)

    threading.Thread(target=watch, name="cbp-alive", daemon=True).start()


def end_first() -> None:
    """Let the system end this process before its parent if the machine's memory runs out."""
    with suppress(OSError), open("/proc/self/oom_score_adj", "wb", buffering=0) as file:
        file.write(_END_FIRST)
