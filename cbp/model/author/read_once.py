"""`Once`: a flow of a group that can be read only once; reading it again is an error.

A group can exceed memory, so its flows are iterators. A second loop over one would silently find
nothing, an inner loop over the same flow would consume the rest, and `if group.urls` would always
be true. `Once` raises an error instead. It costs a tenth of a microsecond per group. Engines leave
it out if the code of `translate` shows that the flow is read at most once and not used otherwise.
"""

from __future__ import annotations

import builtins
import dis
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from types import FunctionType
from typing import Any

from cbp.errors import AuthorMisuse, InputReadTwiceError

_CONSUMERS = frozenset(
    "all any dict frozenset list max min next set sorted sum tuple".split()  # noqa: SIM905
)
"""Builtins that iterate over their first argument exactly once."""


class Once:
    """The records of one flow of a group; setting `_given` reuses the object for the next group.

    It has no truth value, no length and no equality, since an iterator is always true and never
    equals a list, even if it is empty.
    """

    __slots__ = ("_flow", "_given", "_records")
    _given: Iterable[Any] | None
    _records: Iterator[Any]
    __hash__ = object.__hash__

    def __init__(self, records: Iterable[Any], flow: str) -> None:
        """Wrap the records of a flow; `flow` is its name for the error message."""
        self._given, self._flow = records, flow

    def __iter__(self) -> Iterator[Any]:
        """Return the iterator of the records; refuse a second call.

        So `rows = iter(group.urls)` can be read in parts, with `next` and with loops; only
        `group.urls` itself is limited to one read.
        """
        given = self._given
        if given is None:
            message = (
                f"the flow {self._flow!r} was read a second time, but a flow can be read only "
                f"once. Put its records into a list, rows = list(group.{self._flow}), or use one "
                f"iterator for all reads, rows = iter(group.{self._flow})"
            )
            raise AuthorMisuse(InputReadTwiceError, message)
        self._given = None
        self._records = records = iter(given)
        return records

    def __next__(self) -> Any:
        """Return the next record."""
        if self._given is None:
            return next(self._records)
        self._given = records = iter(self._given)
        return next(records)

    def __contains__(self, record: object) -> bool:
        """Search for a record; this reads the flow, so earlier records cannot be read again."""
        return any(record == one for one in self)

    def __bool__(self) -> bool:
        """Refuse a truth test, which would always be true."""
        message = (
            f"the flow {self._flow!r} is an iterator, so `if` and `bool` cannot show whether it "
            f"has records; test a list of them instead: rows = list(group.{self._flow})"
        )
        raise TypeError(message)

    def __eq__(self, other: object) -> bool:
        """Refuse a comparison, which would never be true."""
        message = (
            f"the flow {self._flow!r} is an iterator, which cannot be compared; compare a list of "
            f"its records instead: rows = list(group.{self._flow})"
        )
        raise TypeError(message)


Once.__name__ = "flow"  # as Python's errors name it, such as "object of type 'flow' has no len()"


def read_freely(translate: Callable[..., Any], flows: Iterable[str]) -> frozenset[str]:
    """Return the flows that a `translate` might read twice, as far as its code shows.

    A flow is certain to be read at most once if `group.<flow>` occurs once, outside loops, and
    is consumed in place, and if `group` has no other use.
    """
    every = frozenset(flows)
    function = getattr(translate, "__func__", None)
    if not isinstance(function, FunctionType) or function.__code__.co_argcount != 4:
        return every
    return _read_freely(function, every)


@lru_cache(maxsize=256)
def _read_freely(function: FunctionType, every: frozenset[str]) -> frozenset[str]:
    """Analyse the code of a `translate`; cached, since every bucket of every run needs it."""
    code, group = function.__code__, function.__code__.co_varnames[2]
    if group in code.co_cellvars:
        return every
    steps = [step for step in dis.get_instructions(code) if step.opname != "PRECALL"]
    back = [(s.argval, s.offset) for s in steps if "JUMP_BACKWARD" in s.opname]
    once: dict[str, bool] = {}
    for at, step in enumerate(steps):
        if not _names(step.argval, group):
            continue
        follows = steps[at + 1] if at + 1 < len(steps) else step
        if step.opname != "LOAD_FAST" or follows.opname != "LOAD_ATTR":
            return every
        flow = follows.argval
        loops = any(first <= step.offset < last for first, last in back)
        consumed = steps[at + 2].opname == "GET_ITER" or _consumes(steps[at - 1], function)
        once[flow] = flow not in once and consumed and not loops
    return frozenset(flow for flow in every if not once.get(flow, True))


def _names(argval: Any, name: str) -> bool:
    return argval == name or (isinstance(argval, tuple) and name in argval)


def _consumes(step: dis.Instruction, function: FunctionType) -> bool:
    name = step.argval
    return (
        step.opname == "LOAD_GLOBAL"
        and name in _CONSUMERS
        and name not in function.__globals__
        and hasattr(builtins, name)
    )
