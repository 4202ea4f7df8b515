"""The error for a Python worker that ended without an answer, from Spark's error text; pure.

A crash in C leaves the stack of Python frames, innermost first (`faulthandler`). If an author's
line comes before any line of the engine, the author's code crashed. Without a stack, the process
was ended by `os._exit`, by the system when memory ran out, or by a person. The cause is then
unknown, and the error names both the author's code and the machine as possible causes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from cbp.errors import AuthorProcessError, CbpError, WorkerEndedError
from cbp.model.dataflow.dataflow import StageNode

__all__ = ["ended_worker"]

_ENDED = "Python worker exited unexpectedly"
_FATAL = re.compile(r"Fatal Python error: ([^\n]+)")
_FRAME = re.compile(r'^ *File "([^"\n]+)", line (\d+) in ', re.MULTILINE)
_ENGINE = str(Path(__file__).parents[1]) + "/"


def ended_worker(run: str, nodes: Iterable[StageNode], text: str) -> CbpError | None:
    """Return the error of a run whose worker ended; `None` if no worker did.

    Args:
        run: Id of the run.
        nodes: The stages that ran.
        text: The whole text of Spark's error.
    """
    _, ended, told = text.partition(_ENDED)
    if not ended:
        return None
    nodes = tuple(nodes)
    fatal = _FATAL.search(told)
    by_file = {node.translator.place.rpartition(":")[0]: node for node in nodes}
    for file, line in _FRAME.findall(told):
        if (node := by_file.get(file)) is not None:
            return AuthorProcessError(
                stage=node.name,
                function=f"{node.translator.name}.translate",
                place=f"{file}:{line}",
                cause=f"{fatal[1] if fatal else 'it ended'}: the code has ended its process",
            )
        if file.startswith(_ENGINE):
            break  # the engine's own line, such as when a disk fails under a memory map
    code = [f"{n.name!r} ({n.translator.name}, {n.translator.place})" for n in nodes]
    return WorkerEndedError(run, stages=code, cause=fatal[1] if fatal else "")
