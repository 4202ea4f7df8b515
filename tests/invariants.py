"""The rules that the tests hold: each test with the first line of its docstring, by file.

    python -m tests.invariants                    all of them
    python -m tests.invariants roll-back crash    those that name all of these words

A word is looked for in the test's path and name, in its docstring, and in the docstring of its
file, which says what its tests hold together. Reads the sources; imports and runs no test.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeGuard

__all__ = ["Held", "held_by", "matching", "read_tests", "written"]

TESTS = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Held:
    """What one file of tests holds.

    Attributes:
        path: From the top of the repository.
        header: The docstring of the file.
        tests: Name (in a class: `Class::name`) and docstring of each test.
    """

    path: str
    header: str
    tests: tuple[tuple[str, str], ...]


def held_by(path: str, source: str) -> Held:
    """Return what a file of tests says that it holds."""
    tree = ast.parse(source)
    return Held(path, ast.get_docstring(tree) or "", tuple(_tests(tree)))


@cache
def read_tests(folder: Path = TESTS) -> tuple[Held, ...]:
    """Return what every file of tests in `folder` holds, by path."""
    return tuple(
        held_by(file.relative_to(folder.parent).as_posix(), file.read_text(encoding="utf-8"))
        for file in sorted(folder.rglob("test_*.py"))
    )


def matching(held: Held, words: Sequence[str]) -> Held | None:
    """Return the file with the tests that name all words, or None if there are none."""
    lowered = [word.lower() for word in words]

    def named(text: str) -> bool:
        return all(word in text.lower() for word in lowered)

    if named(f"{held.path} {held.header}"):
        return held
    about = f"{held.path} {held.header}"
    tests = tuple((name, said) for name, said in held.tests if named(f"{about} {name} {said}"))
    return Held(held.path, held.header, tests) if tests else None


def written(held: Held) -> str:
    """Return the lines of one file: what it is about, then a line per test."""
    lines = [f"{held.path}  {_first(held.header)}"]
    lines += [f"  {held.path}::{name}  {_first(said)}" for name, said in held.tests]
    return "\n".join(lines)


def main(words: Sequence[str]) -> int:
    """Print what is held; returns 1 if nothing names the words."""
    actual = [one for held in read_tests() if (one := matching(held, words))]
    print("\n\n".join(map(written, actual)) or f"no test names {' and '.join(words)}")
    return 0 if actual else 1


def _tests(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        if _is_test(node):
            yield node.name, ast.get_docstring(node) or ""
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if _is_test(inner):
                    yield f"{node.name}::{inner.name}", ast.get_docstring(inner) or ""


def _is_test(node: ast.AST) -> TypeGuard[ast.FunctionDef | ast.AsyncFunctionDef]:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test")


def _first(docstring: str) -> str:
    return docstring.partition("\n")[0]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
