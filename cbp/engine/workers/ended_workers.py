"""The error for a Python worker that ended without an answer, from its traces; pure.

A crash in C leaves the stack of Python frames, innermost first (`faulthandler`); so does `os._exit`
in a worker of the local engine (`cbp.engine.workers.task_worker`). If an author's line comes before
any line of the engine, the author's code ended the process. Without a stack, the process was ended
by the system when memory ran out, by a person, or on Spark by `os._exit`. The error then names both
the author's code and the machine as possible causes.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable
from pathlib import Path

from cbp.errors import AuthorProcessError, CbpError, WorkerEndedError
from cbp.model.dataflow.dataflow import StageNode

_ENDED = "Python worker exited unexpectedly"
_FATAL = re.compile(r"Fatal Python error: ([^\n]+)")
_FRAME = re.compile(r'^ *File "([^"\n]+)", line (\d+) in ', re.MULTILINE)
_ENGINE = str(Path(__file__).parents[1]) + "/"


def ended_worker(run: str, nodes: Iterable[StageNode], text: str) -> CbpError | None:
    """Return the error of a run whose worker ended; `None` if no worker did."""
    _, ended, rest = text.partition(_ENDED)
    return end_of_worker(run, nodes, rest) if ended else None


def end_of_worker(run: str, nodes: Iterable[StageNode], report: str, status: str = "") -> CbpError:
    """Return the error of a run, from its ended worker's report and exit status, if known."""
    nodes = tuple(nodes)
    fatal = _FATAL.search(report)
    cause = fatal[1] if fatal else status
    by_file = {node.translator.place.rpartition(":")[0]: node for node in nodes}
    for file, line in _FRAME.findall(report):
        if (node := by_file.get(file)) is not None:
            return AuthorProcessError(
                stage=node.name,
                function=f"{node.translator.name}.translate",
                place=f"{file}:{line}",
                cause=f"the code ended its process ({cause or 'no cause is known'})",
            )
        if file.startswith(_ENGINE):
            break  # the engine's own line, such as when a disk fails under a memory map
    code = [f"{n.name!r} ({n.translator.name}, {n.translator.place})" for n in nodes]
    return WorkerEndedError(run, stages=code, cause=cause)


def status_text(status: int | None) -> str:
    """Return how a process ended in words: `exit status 3`, or `SIGKILL`."""
    if status is None:
        return ""
    if status >= 0:
        return f"exit status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"
