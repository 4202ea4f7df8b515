"""Source modules: an author's modules, loaded from text that is sent along with their objects.

A translator of an installed package is sent to a worker by name, and the worker needs the package.
A translator of a plain file is in no package. Its modules are loaded from text that was read once,
and this text is sent to a worker together with any object of the modules:

    service: reads clicks.py, loads it as `clicks`, sends (text, "clicks", "UrlCount")
    worker:  has loaded `clicks` from the same text before, or does so now; returns UrlCount

So a worker needs no file, on this machine or another, and it never runs other code than the
service. One *source set* holds the modules of one folder, which are loaded together. If the files
are loaded again, objects of the former set are still sent with the text of that set.

As in a script, modules that a module imports from its own folder belong to the set. Names of the
standard library and of installed packages are not searched for in the folder.

Guaranteed (tests/cbp/model/author/test_source_modules.py): if loading fails, what was loaded before
stays loaded.
Absent on purpose: reading files; the caller passes a function that reads them.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from types import FunctionType, ModuleType
from typing import Any

from cbp.model.author.sibling_packages import is_installed


@dataclass(frozen=True, slots=True)
class SourceModule:
    """The text of one module; its path is only for tracebacks."""

    name: str
    path: str
    is_package: bool
    source: bytes


Read = Callable[[str], SourceModule | None]
"""Returns the module of this name in a folder, or `None` if the folder has none."""

Travelling = tuple[str, tuple[SourceModule, ...], str, str]
"""The values sent for an object: its folder, its set's modules, its module, its name there."""


class SourceSet:
    """Modules of one folder that were loaded together; a later set of the folder replaces it."""

    def __init__(self, folder: str, read: Read) -> None:
        self.folder = folder
        self._read = read
        self._by_name: dict[str, SourceModule] = {}
        self._all: tuple[SourceModule, ...] = ()

    @property
    def modules(self) -> tuple[SourceModule, ...]:
        """The modules so far; the same object until one more is imported."""
        return self._all

    def find(self, name: str) -> SourceModule | None:
        """Return the module of this name; read it if it was not imported before."""
        known = self._by_name.get(name)
        if known is None and (known := self._read(name)) is not None:
            self.add([known])
        return known

    def add(self, modules: Iterable[SourceModule]) -> None:
        """Add further modules."""
        self._by_name |= {module.name: module for module in modules}
        self._all = tuple(self._by_name.values())

    def has(self, name: str) -> bool:
        """Return whether a module of this name was imported."""
        return name in self._by_name


_lock = threading.RLock()
_sets: dict[str, SourceSet] = {}
_origins: weakref.WeakKeyDictionary[Any, tuple[SourceSet, str, str]] = weakref.WeakKeyDictionary()


def load_sources(folder: str, read: Read, roots: Iterable[str]) -> SourceSet:
    """Load modules of a folder, and replace those that were loaded from it before.

    If the author's code raises anything, the earlier modules are restored.
    """
    importlib.invalidate_caches()  # a package that is missing may have been installed meanwhile
    with _lock:
        _watch_imports()
        before = _sets.get(folder)
        modules = {} if before is None else _forget(before)
        loaded = _sets[folder] = SourceSet(folder, read)
        names = list(roots)
        try:
            for name in names:  # these come from the folder even if such a package is installed
                loaded.find(name.partition(".")[0])
            for name in names:
                importlib.import_module(name)
        except BaseException:
            _forget(loaded)
            _sets.pop(folder)
            if before is not None:
                _sets[folder] = before
                sys.modules.update(modules)
            raise
        return loaded


def travelling(thing: Any) -> Travelling | None:
    """Return the value to send to a worker for a class, function or module of a source set.

    `None` if it belongs to no source set, or has no name in its module.
    """
    try:
        sources, module, name = _origins[thing]
    except (KeyError, TypeError):  # TypeError: no weak reference to it, or no hash
        return None
    return sources.folder, sources.modules, module, name


def arrive(folder: str, modules: tuple[SourceModule, ...], module: str, name: str) -> Any:
    """Return a class, function or module that another process has sent; see `travelling`."""
    with _lock:
        _watch_imports()
        known = _sets.get(folder)
        texts = {one.name: one for one in modules}
        if known is None or any(texts.get(one.name, one) != one for one in known.modules):
            if known is not None:
                _forget(known)
            known = _sets[folder] = SourceSet(folder, lambda _: None)
        known.add(modules)
        thing: Any = importlib.import_module(module)
    for part in filter(None, name.split(".")):
        thing = getattr(thing, part)
    return thing


def source_names() -> frozenset[str]:
    """Return the names of the modules of all source sets."""
    return frozenset(one.name for sources in list(_sets.values()) for one in sources.modules)


def _forget(sources: SourceSet) -> dict[str, ModuleType]:
    names = [one.name for one in sources.modules if one.name in sys.modules]
    return {name: sys.modules.pop(name) for name in names}


def _watch_imports() -> None:
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


class _Finder:
    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        del path, target
        top = name.partition(".")[0]
        for sources in list(_sets.values()):
            ours = sources.has(name) or sources.has(top) or not is_installed(top)
            if ours and (module := sources.find(name)) is not None:
                return _spec(sources, module)
        return None


_finder: Any = _Finder()


def _spec(sources: SourceSet, module: SourceModule) -> ModuleSpec:
    spec = ModuleSpec(
        module.name,
        _Loader(sources, module),  # type: ignore[arg-type]  # duck-typed, as PEP 451 allows
        origin=module.path,
        is_package=module.is_package,
    )
    spec.has_location = True
    if module.is_package:
        spec.submodule_search_locations = [os.path.dirname(module.path)]
    return spec


class _Loader:
    """Executes the text of one module, and notes which objects it defines."""

    def __init__(self, sources: SourceSet, module: SourceModule) -> None:
        self._sources, self._module = sources, module

    def create_module(self, spec: ModuleSpec) -> None:
        """Let Python make the module."""

    def exec_module(self, module: ModuleType) -> None:
        """Execute the text."""
        code = compile(self._module.source, self._module.path, "exec", dont_inherit=True)
        exec(code, module.__dict__)
        _origins[module] = self._sources, module.__name__, ""
        _note(self._sources, module.__name__, module, "")

    def get_source(self, name: str) -> str:
        """Return the text, for tracebacks of machines that do not have the file."""
        del name
        return importlib.util.decode_source(self._module.source)


def _note(sources: SourceSet, module: str, holder: Any, prefix: str) -> None:
    """Note the classes and functions that a module defines, and those inside its classes."""
    for name, thing in list(vars(holder).items()):
        thing = thing.__func__ if isinstance(thing, staticmethod) else thing
        if not isinstance(thing, type | FunctionType) or thing in _origins:
            continue
        if thing.__module__ == module:
            _origins[thing] = sources, module, f"{prefix}{name}"
            if isinstance(thing, type):
                _note(sources, module, thing, f"{prefix}{name}.")
