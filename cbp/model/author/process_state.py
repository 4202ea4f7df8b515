"""Changes that author's code makes to its process, and so to all code that runs there after it.

A worker runs tasks of many dataflows. A time zone, a seed or a global that one author sets would
change the numbers of the next author, and no recomputation in the same process would show it. So a
worker compares the state of its process before and after the calls of each task:

    begin()      before author's code is loaded
    loaded()     after that, before its first call     -> what loading it has changed
    ended()      after its last call                   -> what the calls have changed

The changes are reported with the stage. A process that was changed by calls ends after its task. A
process that was changed only by loading, for example by a library that sets a variable, may
continue with the same stage.

Guaranteed (tests/cbp/model/author/test_process_state.py): a worker finds a change of the
working directory, the environment, the time zone, the locale, signal handlers, Python's path and
limits, filters of warnings, NumPy's handling of errors, global random generators, or the default
decimal context; a descriptor of the worker that was closed or replaced; a function or class that
was replaced in any loaded module; and a global of an author's module that was set or, up to
`LOOKED_AT_MAX` values, changed inside. A global of an author's module that was `None` may be set
once, as by code that loads something at its first call.
Absent on purpose: values inside objects of other packages, such as the options of a library.
"""

from __future__ import annotations

import decimal
import locale
import os
import random
import signal
import sys
import time
import warnings
from collections.abc import Callable, Collection, Hashable, Mapping
from contextlib import suppress
from importlib import import_module
from types import FunctionType, ModuleType
from typing import Any

from cbp.model.author.code_fingerprint import modules_seen
from cbp.model.author.decimals import digits_text
from cbp.model.author.source_modules import source_names
from cbp.model.author.translator_state import shape

LOOKED_AT_MAX = 2_000
"""Maximum number of values inside the globals of one module that are compared."""

_SHOWN_MAX = 20
_PLAIN = (str, bytes, int, float, bool, complex, type(None), tuple, frozenset)
_CONTAINERS = (list, dict, set, bytearray)

_REPLACING = ("typing_extensions",)
"""Libraries that replace functions of Python, and that many others load.

They are loaded before the watch begins. Otherwise the first task of each worker would seem to
change Python.
"""

_Shapes = Mapping[str, Hashable]


class ProcessWatch:
    """Compares this process with its earlier state; used by one thread."""

    def __init__(self) -> None:
        self._descriptors, self._process = _open_descriptors(), os.getpid()
        self._modules: dict[str, tuple[ModuleType, dict[str, Any]]] = {}
        self._globals: dict[str, tuple[ModuleType, _Shapes]] = {}
        self._settings, self._loaded = self._now(), 0
        self._see_modules()
        self.by_loading = self.by_calls = False

    @property
    def is_changed(self) -> bool:
        """Whether this process must not run another stage's tasks."""
        return self.by_loading or self.by_calls

    def begin(self) -> None:
        """Use the current state as the reference, before an author's code is loaded."""
        if self._process != os.getpid():  # a fork, which has closed what it does not use
            self._process = os.getpid()
            self._descriptors = [one for one in self._descriptors if _identity(one) is not None]
        self._settings = self._now()

    def loaded(self) -> list[str]:
        """Return the changes since `begin` or `ended`, made by loading an author's code.

        A random number that a library draws while it is imported is not a change: the state of the
        generator is restored.
        """
        random.setstate(self._settings[_RANDOM])
        changed = self._changed_settings()
        if len(sys.modules) != self._loaded:
            changed += self._see_modules()
        names = modules_seen() | source_names()
        for name in names:
            module, known = sys.modules.get(name), self._globals.get(name)
            if module is not None and (known is None or known[0] is not module):
                self._globals[name] = module, _shapes(module, names)
        self.by_loading = self.by_loading or bool(changed)
        return changed[:_SHOWN_MAX]

    def ended(self) -> list[str]:
        """Return the changes since `loaded`, made by calls of an author's code."""
        changed = [*self._changed_settings(), *self._see_modules(), *self._see_globals()]
        self.by_calls = self.by_calls or bool(changed)
        return changed[:_SHOWN_MAX]

    def _changed_settings(self) -> list[str]:
        before, self._settings = self._settings, self._now()
        changed = []
        for what, value in self._settings.items():
            was = before[what]
            if value == was:
                continue
            if isinstance(value, dict):
                names = [n for n in {**was, **value} if was.get(n) != value.get(n)]
                changed += [f"{what}[{_shown(name)!r}]" for name in names]
            else:
                changed.append(what)
        return changed

    def _now(self) -> dict[str, Any]:
        settings = {what: read() for what, read in _SETTINGS.items()}
        settings["descriptor"] = {number: _identity(number) for number in self._descriptors}
        return settings

    def _see_modules(self) -> list[str]:
        """Return the replaced functions and classes; remember the current ones of each module."""
        changed, self._loaded = [], len(sys.modules)
        for name, module in sys.modules.copy().items():
            now = getattr(module, "__dict__", None)
            if now is None or name == "__main__":  # `__main__` is the worker's own program
                continue
            known, before = self._modules.get(name, (None, {}))
            if known is module:
                if _same(before, now):
                    continue
                replaced = (
                    n for n, one in before.items() if callable(one) and now.get(n) is not one
                )
                changed += [f"{name}.{attribute}" for attribute in replaced]
            self._modules[name] = module, dict(now)
        return changed

    def _see_globals(self) -> list[str]:
        changed, names = [], self._globals.keys()
        for name, (module, before) in self._globals.items():
            now = _shapes(module, names)
            if now == before:
                continue
            self._globals[name] = module, now
            set_ = (n for n, one in before.items() if one is not None and now.get(n) != one)
            changed += [f"{name}.{attribute}" for attribute in set_]
        return changed


_watch: ProcessWatch | None = None


def watch_process() -> ProcessWatch:
    """Begin to watch this process, which runs tasks of several dataflows."""
    global _watch
    for name in _REPLACING:
        with suppress(ImportError):
            import_module(name)
    _watch = ProcessWatch()
    return _watch


def process_watch() -> ProcessWatch | None:
    """Return the watch of this process; `None` in a process that is not a worker."""
    return _watch


def _folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:
        return None


def _shown(name: object) -> object:
    if isinstance(name, signal.Signals):
        return name.name
    return os.fsdecode(name) if isinstance(name, bytes) else name


def _of_numpy() -> Hashable:
    numpy = sys.modules.get("numpy")
    return None if numpy is None else tuple(numpy.geterr().values())


def _random_of_numpy() -> Hashable:
    # Workers load `numpy.random` at their start, so that a later import by NumPy is not a change.
    if (made := sys.modules.get("numpy.random.mtrand")) is None:
        return None
    kind, keys, *others = made.get_state()
    return (kind, keys.tobytes(), *others)


_SIGNALS = sorted(signal.valid_signals() & set(signal.Signals))

# The raw values, without the texts and enumerations that Python creates at each access.
_handler: Callable[[int], Any] = getattr(signal.getsignal, "__wrapped__", signal.getsignal)
_variables: dict[bytes, bytes] = getattr(os.environ, "_data")  # noqa: B009

_RANDOM = "the state of the module random"
_SETTINGS: Mapping[str, Callable[[], Any]] = {
    "os.environ": _variables.copy,
    "the working directory": _folder,
    "the time zone": lambda: (time.tzname, time.timezone, time.altzone, time.daylight),
    "the locale": lambda: locale.setlocale(locale.LC_ALL),
    "the handler of signal": lambda: {number: _handler(number) for number in _SIGNALS},
    "sys.path": lambda: tuple(sys.path),
    "the recursion limit": sys.getrecursionlimit,
    "the maximum number of digits of an int": sys.get_int_max_str_digits,
    "the filters of the module warnings": lambda: tuple(warnings.filters),
    "the decimal context": lambda: digits_text(decimal.getcontext()),
    "the default decimal context": lambda: digits_text(decimal.DefaultContext),
    _RANDOM: random.getstate,
    "the state of numpy.random": _random_of_numpy,
    "numpy.seterr": _of_numpy,
}


def _open_descriptors() -> list[int]:
    try:
        listed = sorted(map(int, os.listdir("/proc/self/fd")))
    except OSError:
        return [0, 1, 2]
    return [one for one in listed if _identity(one) is not None]  # `listdir` has closed its own


def _identity(descriptor: int) -> Hashable:
    try:
        status = os.fstat(descriptor)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_rdev


def _same(before: dict[str, Any], now: dict[str, Any]) -> bool:
    """Return whether a module has the same attributes; the same objects count as unchanged."""
    if len(before) != len(now):
        return False
    try:
        return bool(before == now)
    except Exception:  # a value, such as a table, may refuse to be compared
        return False


def _shapes(module: ModuleType, authors: Collection[str]) -> _Shapes:
    """Return, by global, a value that stays equal as long as the global is not changed."""
    left = [LOOKED_AT_MAX]
    return {
        name: _shape_of(value, left, authors)
        for name, value in list(vars(module).items())
        if not (name.startswith("__") or isinstance(value, ModuleType))
    }


def _shape_of(value: Any, left: list[int], authors: Collection[str]) -> Hashable:
    if isinstance(value, FunctionType | type):
        return id(value)
    kind = type(value)
    if kind in _CONTAINERS or isinstance(value, _PLAIN) or kind.__module__ in authors:
        return shape(value, left)
    return id(value)
