"""Tests hand limits down; they do not patch the constants of modules.

A patched constant reaches no other process, and none that imported it by name. What is made small
is a field of a frozen value (`EngineLimits`, `LoopLimits`, `IngestLimits`) that a test constructs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parent
CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]*|__kwdefaults__")
OURS = ("cbp.", "controller.")
PATCHES = ("setattr", "setitem")

CHOICE = "part of an algorithm: forces one of two ways to the same answer"
ALLOWED = {
    "cbp.engine.columnar.xxh64._ROWS_AT_ONCE": CHOICE,
    "cbp.engine.columnar.xxh64._TOGETHER_MIN": CHOICE,
    "cbp.engine.state.lookup._SCAN_FROM": CHOICE,
    "cbp.engine.state.bucket_state._SEARCH_COST": CHOICE,
}
"""Constant -> why a test may patch it."""


def imported_names(tree: ast.Module) -> dict[str, str]:
    """Return what each imported name of a module means, with dots."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
        elif isinstance(node, ast.Import):
            names |= {a.asname or a.name: a.name for a in node.names}
    return names


def patched_constants(source: str) -> Iterator[str]:
    """Yield the full names of constants of this project that a module patches."""
    if not any(word in source for word in PATCHES):
        return
    tree = ast.parse(source)
    names = imported_names(tree)
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        if call.func.attr not in PATCHES or not call.args:
            continue
        target, *rest = call.args
        if isinstance(target, ast.Constant) and isinstance(target.value, str):
            whole = target.value
        elif len(rest) == 2 and isinstance(rest[0], ast.Constant):
            base, _, attributes = ast.unparse(target).partition(".")
            whole = ".".join(filter(None, (names.get(base, base), attributes, str(rest[0].value))))
        else:
            continue
        ours = whole.startswith(OURS) or ast.unparse(target) not in names
        if ours and CONSTANT.fullmatch(whole.rpartition(".")[2]) and "sys.modules" not in whole:
            yield whole


def test_no_constant_of_a_module_is_patched() -> None:
    """Only those on the list, each with its reason; the list names nothing that is gone."""
    patched = {
        name
        for path in TESTS.rglob("*.py")
        for name in patched_constants(path.read_text(encoding="utf-8"))
    }
    assert sorted(patched - ALLOWED.keys()) == []
    assert sorted(ALLOWED.keys() - patched) == []


def test_each_way_to_patch_a_constant_is_seen() -> None:
    """By module, by name in words, by a default of a function, by a module in a loop."""
    source = """
from cbp.engine.state import bucket_compaction
from cbp.engine.delta.managed_table import open_table
from tests.simulation import plan
patch.setattr(bucket_compaction, "FANOUT", 3)
patch.setattr("controller.loop.tick.TURNS", 3)
patch.setattr(open_table, "__kwdefaults__", {})
patch.setattr(module, "_ROWS", 3)
patch.setattr(bucket_compaction, "compact", None)
patch.setattr(plan, "SHARE", 1)
"""
    assert sorted(patched_constants(source)) == [
        "cbp.engine.delta.managed_table.open_table.__kwdefaults__",
        "cbp.engine.state.bucket_compaction.FANOUT",
        "controller.loop.tick.TURNS",
        "module._ROWS",
    ]
