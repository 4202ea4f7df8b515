"""Noting the files of loaded modules: what it costs, and that no new module is missed."""

from __future__ import annotations

import sys
from _collections_abc import dict_items
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from controller.registry.loaded_files import LoadedFiles


class CountedModules(dict[str, Any]):
    """The modules of a process, and how often all of a copy of them were gone through."""

    def __init__(self, modules: dict[str, Any], scanned: list[None] | None = None) -> None:
        super().__init__(modules)
        self._scanned = list[None]() if scanned is None else scanned

    @property
    def scans(self) -> int:
        return len(self._scanned)

    def copy(self) -> CountedModules:
        return CountedModules(self, self._scanned)

    def items(self) -> dict_items[str, Any]:
        self._scanned.append(None)
        return super().items()


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> CountedModules:
    counted = CountedModules(sys.modules)
    monkeypatch.setattr(sys, "modules", counted)
    return counted


def add(modules: CountedModules, name: str, folder: Path) -> Path:
    file = folder / f"{name}.py"
    file.write_text("one = 1\n")
    module = ModuleType(name)
    module.__file__ = str(file)
    modules[name] = module
    return file


def test_all_modules_are_gone_through_only_if_there_are_new_ones(
    modules: CountedModules, tmp_path: Path
) -> None:
    """A document has hundreds of stages, and a process may have loaded ten thousand modules."""
    loaded = LoadedFiles()
    add(modules, "shop.count", tmp_path)
    for _ in range(100):
        loaded.see({"shop.count"})
    assert modules.scans == 1
    add(modules, "mill.count", tmp_path)
    for _ in range(100):
        loaded.see({"mill.count"})
        loaded.see({"shop.count"})
    assert modules.scans == 3, "one for each package"


@pytest.mark.parametrize("removed", [False, True], ids=["one more", "one for another"])
def test_a_module_that_is_loaded_later_is_noted(
    modules: CountedModules, tmp_path: Path, removed: bool
) -> None:
    """Also if there are as many modules as before."""
    loaded = LoadedFiles()
    add(modules, "shop.count", tmp_path)
    loaded.see({"shop.count"})
    if removed:
        del modules["shop.count"]
    file = add(modules, "shop.text", tmp_path)
    loaded.see({"shop.count"})
    assert loaded.changed(["shop.text"]) == ()
    file.write_text("one = 22\n")
    assert loaded.changed(["shop.text"]) == (str(file),)


class ImportedMeanwhile(dict[str, Any]):
    """The modules of a process in which another thread imports whenever they are gone through."""

    def items(self) -> Any:
        for number, item in enumerate(super().items()):
            self[f"imported_meanwhile_{number}"] = ModuleType("imported_meanwhile")
            yield item


def test_other_threads_may_import_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """The modules of the process are seen as they are at one moment."""
    monkeypatch.setattr(sys, "modules", ImportedMeanwhile(sys.modules))
    loaded = LoadedFiles()
    loaded.see({__name__})
    assert loaded.changed({__name__}) == ()
