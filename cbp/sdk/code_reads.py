"""What an author's code reads, found without calling it: the run (`group.run`, a table in SQL)."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator
from types import FunctionType

from cbp.model.author.bytecode import nested, reads_of_a_local, texts_of

_RUN = re.compile(r"(?:\b(?:from|join)|,)\s*`?run\b", re.IGNORECASE)
"""A query that names the table `run`, or a column of that name after a comma."""

_COMMENT = re.compile(r"/\*.*?\*/|--[^\n]*", re.DOTALL)


def reads_run(stage: object) -> bool:
    """Return whether a method of a translator, or a function in an attribute, reads `group.run`."""
    return any("run" in reads_of_a_local(f.__code__) for f in _functions(stage))


def names_attribute(stage: object, name: str) -> bool:
    """Return whether a method of a translator, or a function stored on it, uses an attribute.

    For example `remote` in `out.<state>.remote`, or `note` in `out.note`.
    """
    return any(name in one.co_names for f in _functions(stage) for one in nested(f.__code__))


def reads_run_table(stage: object, texts: Iterable[str]) -> bool:
    """Return whether a translator in SQL reads the table `run`, in queries or by `frames.run`."""
    every = [*map(str, texts), *(text for f in _functions(stage) for text in texts_of(f.__code__))]
    return reads_run(stage) or any(_RUN.search(_COMMENT.sub(" ", text)) for text in every)


def _functions(stage: object) -> Iterator[FunctionType]:
    """Yield the author's functions in a translator: in its class, its bases and its instance."""
    held = [vars(class_) for class_ in type(stage).__mro__ if not _is_ours(class_)]
    functions = (_function(value) for one in (*held, vars(stage)) for value in one.values())
    return (function for function in functions if function is not None)


def _is_ours(class_: type) -> bool:
    return class_ is object or class_.__module__.startswith(__package__)


def _function(value: object) -> FunctionType | None:
    """Return the function of a method, a static or class method, or a property."""
    value = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
    value = inspect.unwrap(value) if callable(value) else value
    return value if isinstance(value, FunctionType) else None
