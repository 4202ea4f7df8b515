"""Describe an exception from an author's code: its line, its cause, and the names that exist.

Used by all callers of author's functions: `translate`, `route_by`, `order_by`, `combine`,
`frame_by` and Runnables. Nothing here depends on which function it was.

Guaranteed: every exception that an author's code raises is the author's fault, `sys.exit` included.
The exceptions: the end of the process, an interrupt from outside, and a planned crash of a test.
"""

from __future__ import annotations

import dis
import linecache
import signal
import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from cbp.errors.advice import Columns, advice
from cbp.errors.author import AuthorMisuse
from cbp.errors.message_limits import shortened


def is_authors(exc: BaseException) -> bool:
    """Return whether the author's code raised an exception.

    A `KeyboardInterrupt` is the author's only if a Python statement raised it, other than a
    statement in the process's handler of SIGINT (Spark's driver has one). Otherwise it came from a
    signal. Our own exceptions that represent a dead process have `ends_process` set.
    """
    if isinstance(exc, KeyboardInterrupt):
        return _raised_by_statement(exc.__traceback__)
    return not getattr(exc, "ends_process", False)


def _raised_by_statement(trace: TracebackType | None) -> bool:
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return False
    code = trace.tb_frame.f_code
    if code is getattr(signal.getsignal(signal.SIGINT), "__code__", None):
        return False
    return dis.opname[code.co_code[trace.tb_lasti]] == "RAISE_VARARGS"


def text_of(thing: object, write: Callable[[object], str] = str) -> str:
    """Return the text of an author's object, or the exception that its class raised instead."""
    try:
        return write(thing)
    except BaseException as exc:
        if not is_authors(exc):
            raise
        return f"<no text: showing {type(thing).__name__} raised {type(exc).__name__}>"


def author_line(exc: BaseException, place: str) -> str:
    """Return the innermost line of the author's file in a traceback, as `file.py:12`.

    Return `place` itself, the `file.py:12` of the function, if the file is not in the traceback.
    """
    file = place.rpartition(":")[0]
    frames = traceback.walk_tb(exc.__traceback__)
    lines = [line for frame, line in frames if frame.f_code.co_filename == file]
    return f"{file}:{lines[-1]}" if lines else place


def author_cause(exc: BaseException, place: str = "", columns: Columns | None = None) -> str:
    """Return the exception's type and text, the helper that raised it, and advice.

    For an unknown name, the text lists the existing names. For an exception without a text, it
    has the line of code. The middle of a long text is cut out. `columns` are what the author could
    emit at `place`, the function that was called.
    """
    if isinstance(exc, AuthorMisuse):
        return shortened(str(exc))
    said = text_of(exc)
    text = f"{type(exc).__name__}: {said}"
    helper, line = _innermost(exc, place)
    if isinstance(exc, SystemExit):
        text = (
            f"SystemExit({text_of(exc.code, repr)}): the code of a stage must not end its process; "
            "to report a failure, raise another exception"
        )
    elif not said:
        text = f"{type(exc).__name__}{f' in `{line}`' if line else ''}"
    what = advice(exc, said, columns or {})
    names = _names(getattr(exc, "obj", None)) if isinstance(exc, AttributeError) else ()
    if names and not what:
        text = f"{text}; use one of {', '.join(names)}{_declare(str(getattr(exc, 'name', '')))}"
    if helper:
        text = f"{text} (raised in {helper})"
    return shortened(f"{text}; {what}" if what else text)


_OURS = str(Path(__file__).parents[1])
_INSTALLED = tuple({sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib")})


def _innermost(exc: BaseException, place: str) -> tuple[str, str]:
    """Return the innermost function of the author's code, and its line of text.

    Code of Python, of installed packages and of cbp is passed over. The function is given as
    `clean, helper.py:12`; it is empty if it is in the file of `place`.
    """
    file = place.rpartition(":")[0]
    innermost, line = "", ""
    for frame, number in traceback.walk_tb(exc.__traceback__):
        code = frame.f_code
        if code.co_filename == file:
            innermost = ""
        elif code.co_filename.startswith((_OURS, *_INSTALLED, "<")):
            continue
        else:
            innermost = f"{code.co_name}, {code.co_filename}:{number}"
        line = linecache.getline(code.co_filename, number).strip()
    return (innermost if file else ""), line


_OF_CHANGES = {"sign": "sign INT", "change_type": "change_type STRING"}
"""Columns that an input with `changes="signed"` has only if its schema declares them."""


def _declare(name: str) -> str:
    column = _OF_CHANGES.get(name)
    if column is None:
        return ""
    return f'; to read {name} of an input with changes="signed", declare `{column}` in its schema'


def _names(thing: object) -> tuple[str, ...]:
    """Return the columns of a record or the flows of a group; empty for anything else."""
    if isinstance(thing, tuple):
        return tuple(getattr(thing, "_fields", ()))
    return tuple(getattr(thing, "_flow_names", ()))
