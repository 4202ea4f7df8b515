"""Noting the files of loaded modules: what it costs, and that no new module is missed."""

from __future__ import annotations

import gc
import sys
from _collections_abc import dict_items
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from controller.registry.loaded import LoadedFiles


class CountedModules(dict[str, Any]):
    """The modules of a process, and how often all of them were gone through."""

    scans = 0
    counts: CountedModules | None = None

    def copy(self) -> CountedModules:
        copied = CountedModules(self)
        copied.counts = self
        return copied

    def items(self) -> dict_items[str, Any]:
        (self.counts or self).scans += 1
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


def test_modules_may_be_imported_while_they_are_gone_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another thread has its turn in the middle, as in a collection of garbage."""
    modules = dict(sys.modules)
    monkeypatch.setattr(sys, "modules", modules)
    loaded, before = LoadedFiles(), gc.get_threshold()

    def import_one(*_: object) -> None:
        modules[f"later_{len(modules)}"] = ModuleType("later")

    gc.callbacks.append(import_one)
    gc.set_threshold(1)
    try:
        loaded.see({"controller.registry.loaded"})
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(import_one)
    assert loaded.changed(["controller.registry.loaded"]) == ()
    assert any(name.startswith("later_") for name in modules)
