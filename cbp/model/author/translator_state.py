"""Translator state: every task gets a fresh translator object, and detects changes to it.

Values that a translator stores on itself would exist only in some tasks, for some time. So every
task of an epoch gets its own copy of the registered instance, made without calling `__init__`. At
the end of the task, the copy must be as `__init__` left it: its attributes, those of its classes,
and the default values of its methods.

    with StateWatch(spec.translate, name="UrlCount.translate", place=spec.place) as fresh:
        fresh.function(...)

Guaranteed: a change of an attribute is found, and so is a change inside a list, dict, set, array or
Python object in it (tests/cbp/sdk/test_author_state.py). After `LOOKED_AT_MAX` values, only
identity and length are compared. `functools.cached_property` and `lru_cache` do not count as
changes.
Absent on purpose: globals of modules, and closures. The test kit finds their changes by running
twice.
"""

from __future__ import annotations

import array
import dis
import functools
import random
import sys
import weakref
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import suppress
from types import CodeType, FunctionType, MethodType, TracebackType
from typing import Any, Self

from cbp.errors import AuthorStateError
from cbp.model.author.bytecode import nested

LOOKED_AT_MAX = 10_000

_OURS = __name__.partition(".")[0]
_LISTS = (list, deque)
_DICTS = (dict, OrderedDict, defaultdict, Counter)
_COPIED = frozenset({*_LISTS, *_DICTS, set, bytearray})
_ATOMS = (str, bytes, int, bool, complex, type(None), type, FunctionType)

_first: dict[int, dict[str, Hashable]] = {}
"""Maps the id of each object to its outline before its first call in this process."""


class StateWatch:
    """Detects changes that an author's function makes to its object, if it belongs to one."""

    def __init__(
        self, function: Callable[..., Any], *, stage: str = "", name: str, place: str
    ) -> None:
        self._stage, self._name, self._place = stage, name, place
        owner = _owner(function)
        self._owner, self.function = owner, function
        if owner is None:
            return
        self._before = _first_outline(owner)
        self._fresh = _copy(owner)
        self.function = self._fresh
        if isinstance(function, MethodType):
            self.function = MethodType(function.__func__, self._fresh)

    def check(self) -> None:
        """Raise `AuthorStateError`, with the line that made the change, if the object changed."""
        if self._owner is None:
            return
        self._keep_cached()
        before = self._before
        for one in (self._fresh, self._owner):
            after = _outline(one)
            if after != before:
                names = {**after, **before}
                raise self._changed(next(n for n in names if after.get(n) != before.get(n)))

    def _keep_cached(self) -> None:
        """Keep the values of `cached_property` for later tasks, except mutable containers."""
        attributes = getattr(self._owner, "__dict__", {})
        for name, value in vars(self._fresh).items() if attributes is not None else ():
            cached = isinstance(getattr(type(self._owner), name, None), functools.cached_property)
            if cached and type(value) not in _COPIED:
                attributes.setdefault(name, value)

    def _changed(self, name: str) -> AuthorStateError:
        place = _line_that_changes(type(self._owner), name.rpartition(".")[2]) or self._place
        return AuthorStateError(
            stage=self._stage,
            function=self._name,
            place=place,
            cause=f"{name} was changed after __init__. Such a change is lost when the task ends, "
            "and other machines do not see it. Keep the value in a State (in a Runnable or "
            "framed(...): in its memo), or compute it in __init__ or in a cached_property",
            attribute=name,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        if kind is None:
            self.check()


def _owner(function: Any) -> Any:
    """Return the object on which a function could store values; `None` if there is none."""
    if isinstance(function, MethodType):
        owner = function.__self__
        return None if isinstance(owner, type) else owner
    if isinstance(function, FunctionType | functools.partial) or _is_ours(type(function)):
        return None
    return function if hasattr(function, "__dict__") and not isinstance(function, type) else None


def _first_outline(owner: Any) -> dict[str, Hashable]:
    outline = _first.get(id(owner))
    if outline is None:
        outline = _outline(owner)
        with suppress(TypeError):  # without a weak reference, it is outlined each time
            weakref.finalize(owner, _first.pop, id(owner), None)
            _first[id(owner)] = outline
    return outline


def _is_ours(class_: type) -> bool:
    package = class_.__module__.partition(".")[0]
    return package == _OURS or package in sys.stdlib_module_names


def _copy(owner: Any) -> Any:
    """Return an object of the same class with the same attributes; containers are copied."""
    left = [LOOKED_AT_MAX]
    try:
        copied = object.__new__(type(owner))
    except TypeError:  # a class written in C
        return owner
    for name, value in _attributes(owner):
        object.__setattr__(copied, name, _copied(value, left))
    for name, value in getattr(owner, "__dict__", {}).items():
        if isinstance(getattr(type(owner), name, None), functools.cached_property):
            copied.__dict__[name] = value
    return copied


def _copied(value: Any, left: list[int]) -> Any:
    kind = type(value)
    if kind not in _COPIED or left[0] <= 0:
        return value
    left[0] -= len(value) + 1
    if left[0] <= 0 or kind is bytearray:
        return value if left[0] <= 0 else bytearray(value)
    made = value.copy()
    if kind in _LISTS:
        made.clear()
        made.extend(_copied(item, left) for item in value)
    elif kind is not set:
        for key, item in value.items():
            made[key] = _copied(item, left)
    return made


def _attributes(owner: Any) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of an object, without the values of `cached_property`."""
    for class_ in type(owner).__mro__:
        slots = vars(class_).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(owner, name):
                yield name, getattr(owner, name)
    for name, value in list(getattr(owner, "__dict__", {}).items()):
        if not isinstance(getattr(type(owner), name, None), functools.cached_property):
            yield name, value


def _outline(owner: Any) -> dict[str, Hashable]:
    """Return, by attribute, a value that stays equal as long as the attribute is not changed."""
    left = [LOOKED_AT_MAX]
    shapes = {f"self.{name}": shape(value, left) for name, value in _attributes(owner)}
    for class_ in type(owner).__mro__:
        if _is_ours(class_):
            continue
        for name, value in list(vars(class_).items()):
            function = _function_of(value)
            if function is not None:
                defaults = function.__defaults__, function.__kwdefaults__
                if defaults != (None, None):
                    shapes[f"{class_.__name__}.{name}"] = shape(defaults, left)
            elif not name.startswith("__") and name != "_abc_impl":
                shapes[f"{class_.__name__}.{name}"] = shape(value, left)
    return shapes


def _function_of(value: Any) -> FunctionType | None:
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    return value if isinstance(value, FunctionType) else None


def shape(value: Any, left: list[int], inside: frozenset[int] = frozenset()) -> Hashable:
    """Return a value that is equal for containers of equal values and for identical objects.

    `left` is the number of values that may still be compared. `inside` has the ids of the objects
    around the value, since objects can refer to each other.
    """
    kind = type(value)
    if kind is float:
        return repr(value)
    if kind in _ATOMS:
        atom: Hashable = value
        return atom
    left[0] -= 1
    if left[0] <= 0:
        return id(value) if not hasattr(value, "__len__") else (kind, len(value))
    if kind is tuple or kind in _LISTS:
        return (kind, tuple([shape(item, left, inside) for item in value]))
    if kind in _DICTS:
        pairs = [(shape(k, left, inside), shape(v, left, inside)) for k, v in value.items()]
        return (kind, tuple(pairs))
    if kind in (set, frozenset):
        return (kind, frozenset([shape(item, left, inside) for item in value]))
    if kind is bytearray:
        return (kind, bytes(value))
    return _shape_of_object(value, left, inside)


def _shape_of_object(value: Any, left: list[int], inside: frozenset[int]) -> Hashable:
    kind = type(value)
    if isinstance(value, random.Random):
        return (id(value), value.getstate())
    if isinstance(value, array.array) or kind.__module__ == "numpy":
        data = value.tobytes() if hasattr(value, "tobytes") else b""
        return (kind, hash(data))
    if kind.__module__ == "itertools":
        return (id(value), repr(value))  # the text of `count` shows its position
    if _is_ours(kind) or not hasattr(value, "__dict__"):
        sized = isinstance(value, set | dict | list | deque)
        return (id(value), len(value)) if sized else id(value)
    if id(value) in inside:
        return id(value)
    inside |= {id(value)}
    parts = [(name, shape(part, left, inside)) for name, part in _attributes(value)]
    return (id(value), tuple(parts))


def _line_that_changes(class_: type, name: str) -> str:
    """Return the first line that stores an attribute, else that reads it, as `file.py:12`."""
    reads = ""
    for base in class_.__mro__:
        if _is_ours(base):
            continue
        for method, value in vars(base).items():
            function = _function_of(value)
            if function is None or method == "__init__":
                continue
            if method == name:
                return f"{function.__code__.co_filename}:{function.__code__.co_firstlineno}"
            for code in nested(function.__code__):
                for line, stores in _uses(code, name):
                    place = f"{code.co_filename}:{line}"
                    if stores:
                        return place
                    reads = reads or place
    return reads


def _uses(code: CodeType, name: str) -> Iterator[tuple[int, bool]]:
    line = code.co_firstlineno
    for instruction in dis.get_instructions(code):
        if instruction.starts_line:  # its number; from 3.13 on, whether `line_number` is new
            line = int(getattr(instruction, "line_number", None) or instruction.starts_line)
        if instruction.argval == name and "ATTR" in instruction.opname:
            yield line, instruction.opname.startswith(("STORE", "DELETE"))
        elif instruction.argval == name and instruction.opname == "LOAD_METHOD":
            yield line, False
