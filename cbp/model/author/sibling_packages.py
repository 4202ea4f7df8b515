"""Sibling packages: which packages belong to the same author, since they are in one folder.

    /srv/flows/count.py     import helper          the same author
    /srv/flows/helper.py    import numpy           another author

A folder of installed packages holds packages of many authors. There a package has no siblings, and
a top-level module has the other modules of its distribution.

Guaranteed: nothing is imported to find out.
Absent on purpose: namespace packages, which are spread over many folders.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Collection, Mapping
from functools import cache

_INSTALLED = frozenset({"site-packages", "dist-packages"})
_MAIN = "__main__"


class Siblings:
    """The named packages and their siblings, except for foreign ones; use `name in siblings`."""

    def __init__(self, named: Collection[str], foreign: Collection[str]) -> None:
        self._foreign = foreign
        self._known = dict.fromkeys(named, True)
        roots = {name: root_of(name) for name in named if name != _MAIN}
        self._folders = {folder for folder in roots.values() if folder and not _installed(folder)}
        lone = [name for name, at in roots.items() if _installed(at) and _is_module(name)]
        self._distributions = frozenset(one for name in lone for one in _of_all().get(name, ()))

    def __contains__(self, package: str) -> bool:
        """Return whether a package (the first part of a module's name) is named or a sibling."""
        known = self._known.get(package)
        if known is None:
            known = self._known[package] = bool(package) and self._beside(package)
        return known

    def _beside(self, package: str) -> bool:
        if package in self._foreign:
            return False
        if self._distributions and not self._distributions.isdisjoint(_of_all().get(package, ())):
            return True
        return bool(self._folders) and root_of(package) in self._folders


def root_of(package: str) -> str:
    """Return the folder that holds a package or a top-level module; `""` if unknown."""
    module = sys.modules.get(package)
    file = getattr(module, "__file__", None) or ""
    is_package = hasattr(module, "__path__")
    if module is None:
        try:
            spec = importlib.util.find_spec(package)
        except (ImportError, ValueError):
            return ""
        if spec is None or not spec.has_location:
            return ""
        file, is_package = spec.origin or "", spec.submodule_search_locations is not None
    folder = os.path.dirname(os.path.dirname(file) if is_package else file)
    return folder if len(folder) > 1 else ""


def is_installed(package: str) -> bool:
    """Return whether a top-level name belongs to the standard library or an installed package."""
    return package in sys.stdlib_module_names or package in _of_all()


def _installed(folder: str) -> bool:
    return os.path.basename(folder) in _INSTALLED or folder in _library()


@cache
def _library() -> frozenset[str]:
    paths = sysconfig.get_paths()
    return frozenset(paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))


def _is_module(name: str) -> bool:
    return not hasattr(sys.modules.get(name), "__path__")


@cache
def _of_all() -> Mapping[str, list[str]]:
    return importlib.metadata.packages_distributions()
