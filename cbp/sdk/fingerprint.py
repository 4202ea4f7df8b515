"""The fingerprint of an author's class: whether it is the code that made a state.

It covers the source text of the class and of the author's classes that it derives from,
without blank lines and comments. Not covered: functions of the module that it calls, and
the packages that these use; who changes those says so by registering with a choice.
"""

from __future__ import annotations

import hashlib
import inspect
import io
import sys
import threading
import tokenize
from collections.abc import Callable

__all__ = ["ONE_PARSES", "fingerprint", "function_fingerprint"]

_PASSED_OVER = frozenset({tokenize.COMMENT, tokenize.NL})
_OURS = __package__
# Up to Python 3.12, two threads that parse at once trip over each other's depth: SystemError.
ONE_PARSES = threading.Lock()


def fingerprint(class_: type) -> str:
    """Return 16 hex digits that tell the class's code; `""` where its source is not known."""
    digest = hashlib.sha256()
    for base in class_.__mro__:
        package = base.__module__.partition(".")[0]
        if package in sys.stdlib_module_names or base.__module__.startswith(_OURS):
            continue
        try:
            with ONE_PARSES:
                source = inspect.getsource(base)
        except (OSError, TypeError):
            return ""
        digest.update("\0".join(_words(source)).encode())
    return digest.hexdigest()[:16]


def function_fingerprint(function: Callable[..., object]) -> str:
    """Return 16 hex digits that tell a function's code; `""` where its source is not known.

    Of a lambda, that is the line that it begins on, up to where its statement ends.
    """
    try:
        with ONE_PARSES:
            source = inspect.getsource(function)
    except (OSError, TypeError, SyntaxError):
        return ""
    return hashlib.sha256("\0".join(_words(source)).encode()).hexdigest()[:16]


def _words(source: str) -> list[str]:
    """Return the tokens of a class; its text as it stands where it is not a whole one."""
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(inspect.cleandoc(source)).readline))
    except (tokenize.TokenError, SyntaxError):
        return [source]
    return [token.string for token in tokens if token.type not in _PASSED_OVER]
