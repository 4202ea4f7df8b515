"""Which tests a change concerns most: those whose imports lead to it in the fewest steps.

`bash deploy/test.sh --changed` runs them, as many as fit `SECONDS_MAX`, by what each file took in
the last complete run. It answers "is this step sound" between rehearsals and replaces none.
"""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

SECONDS_MAX = 200.0
"""Of tests, counted one after the other; three processes share them."""

UNKNOWN_SECONDS = 2.0
"""What a file of tests is taken for that no run has timed yet."""

ROOTS = ("cbp", "controller", "stages", "tests")

OTHERS: Mapping[str, tuple[str, ...]] = {
    "*.md": ("tests/test_documents.py", "tests/test_readme.py"),
    "controller/guides/pages/*": ("tests/test_guides.py", "tests/controller/guides"),
    "controller/ui/*": ("tests/ui/test_shell.py", "tests/ui/test_rest_api.py"),
    "deploy/*": ("tests/deploy",),
    ".ci/*": ("tests/deploy",),
    "pyproject.toml": ("tests/test_architecture.py", "tests/test_import_contracts.py"),
}
"""Tests of files that nobody imports."""


@dataclass(frozen=True)
class Choice:
    """The tests to run.

    Attributes:
        files: Files and folders of tests, those nearest to the change first.
        left_out: Files of tests that import the change too, for which there was no time.
    """

    files: tuple[str, ...]
    left_out: tuple[str, ...] = ()


def choose(
    changed: Iterable[str],
    importers: Mapping[str, Iterable[str]],
    seconds: Mapping[str, float],
    seconds_max: float = SECONDS_MAX,
) -> Choice:
    """Choose the tests nearest to a change.

    Args:
        changed: Paths of changed files, relative to the project.
        importers: By path of a Python file, the files that import it.
        seconds: By path of a file of tests, how long its tests took.
        seconds_max: Tests are chosen while their seconds fit; changed ones always.
    """
    changed = list(changed)
    fixed = [
        test
        for path in changed
        for pattern, tests in OTHERS.items()
        if fnmatch(path, pattern)
        for test in tests
    ]
    chosen, left_out, total = list(dict.fromkeys(fixed)), [], 0.0
    for step, test in _by_distance(changed, importers):
        cost = seconds.get(test, UNKNOWN_SECONDS)
        if step > 0 and total + cost > seconds_max:
            left_out.append(test)
            continue
        total += cost
        chosen.append(test)
    return Choice(tuple(dict.fromkeys(chosen)), tuple(left_out))


def _by_distance(
    changed: Iterable[str], importers: Mapping[str, Iterable[str]]
) -> list[tuple[int, str]]:
    distances = {path: 0 for path in changed if path.endswith(".py")}
    layer, step = list(distances), 0
    while layer:
        step += 1
        nearer = {one for path in layer for one in importers.get(path, ())} - distances.keys()
        distances |= dict.fromkeys(nearer, step)
        layer = sorted(nearer)
    mirrors = {_mirror(path) for path, step in distances.items() if step == 0}
    tests = [(step, path) for path, step in distances.items() if _is_test(path)]
    return sorted(tests, key=lambda one: (one[0], one[1] not in mirrors, one[1]))


def _mirror(path: str) -> str:
    """Return where the tests of a module lie: tests mirror the source."""
    return f"tests/{path.rpartition('/')[0]}/test_{path.rpartition('/')[2]}"


def _is_test(path: str) -> bool:
    return path.startswith("tests/") and PurePosixPath(path).name.startswith("test_")


def read_importers(project: Path) -> dict[str, set[str]]:
    """Return, by path of a Python file of the project, the files that import it."""
    files = [path for root in ROOTS for path in sorted((project / root).rglob("*.py"))]
    files = [path for path in files if "node_modules" not in path.parts]
    paths = {_module(path.relative_to(project)): path for path in files}
    importers: dict[str, set[str]] = {}
    for path in files:
        module = _module(path.relative_to(project))
        tree = ast.parse(path.read_bytes())
        for name in _imported(tree, module, is_package=path.name == "__init__.py"):
            target = paths.get(name)
            if target is not None and target != path:
                key = target.relative_to(project).as_posix()
                importers.setdefault(key, set()).add(path.relative_to(project).as_posix())
    return importers


def _module(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(tree: ast.AST, module: str, *, is_package: bool) -> Iterable[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                parts = parts[: len(parts) - node.level + is_package]
                base = ".".join([*parts, base] if base else parts)
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def changed_files(project: Path, base: str = "main") -> list[str]:
    """Return what differs from where this branch left another one, with what is not committed."""
    since = _git(project, "merge-base", base, "HEAD")[0]
    tracked = _git(project, "diff", "--name-only", since)
    new = _git(project, "ls-files", "--others", "--exclude-standard")
    return sorted({*tracked, *new})


def _git(project: Path, *arguments: str) -> Sequence[str]:
    done = subprocess.run(
        ["git", *arguments], cwd=project, capture_output=True, text=True, check=True
    )
    return done.stdout.split("\n")[:-1]
