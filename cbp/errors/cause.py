"""Describe an exception from an author's code: its line, its cause, and the names that exist.

Used by all callers of author's functions: `translate`, `route_by`, `order_by`, `combine`,
`frame_by` and Runnables. Nothing here depends on which function it was.

Guaranteed: every exception that an author's code raises is the author's fault, `sys.exit` included.
The exceptions: the end of the process, an interrupt from outside, and a planned crash of a test.
"""

from __future__ import annotations

import dis
import traceback
from types import TracebackType

from cbp.errors.author import AuthorMisuse
from cbp.errors.message_limits import shortened

__all__ = ["author_cause", "author_line", "is_authors"]


def is_authors(exc: BaseException) -> bool:
    """Tell whether the author's code raised an exception, and so is at fault.

    A `KeyboardInterrupt` is the author's only if a Python statement raised it; otherwise a signal
    came from outside. Our own classes that stand for a dead process have `ends_process` set.
    """
    if isinstance(exc, KeyboardInterrupt):
        return _raised_by_statement(exc.__traceback__)
    return not getattr(exc, "ends_process", False)


def _raised_by_statement(trace: TracebackType | None) -> bool:
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return False
    raising = dis.opname[trace.tb_frame.f_code.co_code[trace.tb_lasti]]
    return raising == "RAISE_VARARGS"


def author_line(exc: BaseException, place: str) -> str:
    """Return the innermost line of the author's file in a traceback, as `file.py:12`.

    Args:
        exc: The exception.
        place: `file.py:12` of the function; returned if its file is not in the traceback.
    """
    file = place.rpartition(":")[0]
    frames = traceback.walk_tb(exc.__traceback__)
    lines = [line for frame, line in frames if frame.f_code.co_filename == file]
    return f"{file}:{lines[-1]}" if lines else place


def author_cause(exc: BaseException) -> str:
    """Return the exception's type and text; for an unknown name, also the names that exist.

    A long text loses its middle.
    """
    text = str(exc) if isinstance(exc, AuthorMisuse) else f"{type(exc).__name__}: {exc}"
    if isinstance(exc, SystemExit):
        text = f"SystemExit: {exc.code!r}: the code of a stage must not end its process"
    if isinstance(exc, AttributeError) and (names := _names(getattr(exc, "obj", None))):
        text = f"{text}; there is {', '.join(names)}"
    return shortened(text)


def _names(thing: object) -> tuple[str, ...]:
    """Return the columns of a record or the flows of a group; empty for anything else."""
    if isinstance(thing, tuple):
        return tuple(getattr(thing, "_fields", ()))
    return tuple(getattr(thing, "_flow_names", ()))
