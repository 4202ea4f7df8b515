"""The rules of the house that no single module can hold: imports, sizes, names, places.

The import contracts stand in pyproject.toml; here they are run, and what they cannot say is added.
"""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[1]
PACKAGES = ("cbp", "controller", "stages")
TOP_LEVEL = {
    *PACKAGES,
    ".ci",
    "deploy",
    "tests",
    ".gitignore",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "MANIFEST.in",
    "README.md",
    "docker-compose.yml",
    "pyproject.toml",
}
LINES_MAX = 600
# In two halves, so that this file does not hold what it forbids.
HOSTS = [
    name + end
    for name, end in [
        ("pypi", ".org"),
        ("pythonhosted", ".org"),
        ("npmjs", ".org"),
        ("maven", ".org"),
        ("maven.apache", ".org"),
        ("crates", ".io"),
        ("deb.debian", ".org"),
        ("proxy.golang", ".org"),
    ]
]
FOLDERS = [
    start + end
    for start, end in [
        ("/work", "/(?:main|shared)"),
        ("/ro", "ot/"),
        ("/ho", r"me/\w"),
        ("/Us", r"ers/\w"),
        ("/opt", "/wheels"),
    ]
]


@cache
def tracked_files() -> tuple[str, ...]:
    """Paths of the files that git tracks; skips the test outside of a checkout."""
    command = ["git", "-C", str(REPO), "ls-files", "-z"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    return tuple(name for name in done.stdout.split("\0") if name and (REPO / name).is_file())


def modules() -> list[Path]:
    """Every Python module of the three packages."""
    return sorted(path for package in PACKAGES for path in (REPO / package).rglob("*.py"))


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, cwd=REPO, capture_output=True, text=True, check=False, timeout=120
    )


def test_import_contracts():
    """Which package may import which (pyproject.toml, [tool.importlinter])."""
    done = run_python(
        "from importlinter.cli import lint_imports_command as run; run(['--no-logo', '--no-cache'])"
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _loaded_by_literal_name(node: ast.AST) -> list[str]:
    if (
        isinstance(node, ast.Call)
        and getattr(node.func, "attr", getattr(node.func, "id", ""))
        in ("import_module", "__import__")
        and node.args
        and isinstance(node.args[0], ast.Constant)
    ):
        return [str(node.args[0].value)]
    return []


def test_import_contracts_see_every_import():
    """A module that is known by name is imported by a statement, if need be inside a function."""
    planted = 'import importlib\nimportlib.import_module("controller.app").main()\n'
    assert module_of(planted).loaded == ("controller.app",)
    actual = {
        str(path.relative_to(REPO)): names
        for path in modules()
        if (names := read_module(path).loaded)
    }
    assert actual == {}


@pytest.mark.parametrize("package", ["cbp", "cbp.sdk", "cbp.model", "cbp.testing", "stages"])
def test_the_library_starts_without_spark(package: str):
    """An author who imports or tests a translator waits for no JVM, and needs none."""
    slow = {"pyspark", "py4j", "delta", "sqlalchemy", "fastapi", "apscheduler", "controller"}
    done = run_python(
        f"import sys, {package}\n"
        f"print(sorted({slow} & {{name.partition('.')[0] for name in sys.modules}}))"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_a_command_starts_without_what_only_some_need():
    """Each command is a process: it loads a database, a table format or Spark when it needs it."""
    slow = {
        "alembic",
        "deltalake",
        "duckdb",
        "fastapi",
        "polars",
        "pyarrow",
        "pyspark",
        "sqlalchemy",
    }
    done = run_python(
        "import sys, controller.cli.main\n"
        f"print(sorted({slow} & {{name.partition('.')[0] for name in sys.modules}}))"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_the_library_is_typed():
    """Authors' type checkers see our annotations."""
    assert (REPO / "cbp" / "py.typed").is_file()


def test_the_top_level_is_fixed():
    """A new file goes where the map of ARCHITECTURE.md has a place for it."""
    assert {name.split("/")[0] for name in tracked_files()} == TOP_LEVEL


@pytest.mark.parametrize(
    ("group", "folder"), [("cbp.translators", "translators"), ("cbp.dataflows", "flows")]
)
def test_every_ready_stage_has_a_name(group: str, folder: str):
    """A module of stages/ that no entry point names could not be registered over REST."""
    project = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = project["entry-points"][group]
    assert list(named) == sorted(named)
    for target in named.values():
        module, _, attribute = target.partition(":")
        assert callable(getattr(importlib.import_module(module), attribute)), target
    files = {path.stem for path in (REPO / "stages" / folder).glob("[!_]*.py")}
    assert {target.partition(":")[0].rpartition(".")[2] for target in named.values()} == files


def test_migrations_are_one_line():
    """Each migration follows the one before it, and no two have one number."""
    versions = REPO / "controller" / "store" / "migrations" / "versions"
    follows = {}
    for path in sorted(versions.glob("[0-9]*.py")):
        named = dict(
            re.findall(r"^(revision|down_revision) = \"?(\w+)\"?", path.read_text("utf-8"), re.M)
        )
        assert path.name.startswith(f"{named['revision']}_"), path.name
        assert named["revision"] not in follows, path.name
        follows[named["revision"]] = named["down_revision"]
    revisions = list(follows)
    assert list(follows.values()) == ["None", *revisions[:-1]]


def test_no_module_is_too_long():
    """A module that grows over the limit is split by noun."""
    long = {
        str(path.relative_to(REPO)): lines
        for path in modules()
        if "migrations" not in path.parts
        and (lines := len(path.read_text(encoding="utf-8").splitlines())) > LINES_MAX
    }
    assert long == {}


@dataclass(frozen=True)
class Module:
    """What one module says of itself; read once for all tests, as parsing takes most of their time.

    Attributes:
        exported: Its literal `__all__`.
        bound: Every name that it binds.
        ours: Whether it imports from our packages, at its top.
        loaded: The modules that it loads by a name that it spells out.
        classes: Its classes: name, names of the classes it derives from, private names in its body.
    """

    exported: tuple[str, ...] | None
    bound: frozenset[str]
    ours: bool
    loaded: tuple[str, ...]
    classes: tuple[Class, ...]


@dataclass(frozen=True)
class Class:
    """A class of a module."""

    name: str
    bases: tuple[str, ...]
    private: frozenset[str]


@cache
def read_module(path: Path) -> Module:
    """Parse a module."""
    return module_of(path.read_text(encoding="utf-8"))


def module_of(source: str) -> Module:
    """Return what a source says."""
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    return Module(
        _exported(tree),
        frozenset(name for node in nodes for name in _bound(node)),
        any(
            isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGES)
            for node in tree.body
        ),
        tuple(name for node in nodes for name in _loaded_by_literal_name(node)),
        tuple(
            Class(
                node.name,
                tuple(base.id for base in node.bases if isinstance(base, ast.Name)),
                frozenset(_private_names(node)),
            )
            for node in nodes
            if isinstance(node, ast.ClassDef)
        ),
    )


def _exported(tree: ast.Module) -> tuple[str, ...] | None:
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets
        ):
            names = ast.literal_eval(node.value)
            assert all(isinstance(name, str) for name in names)
            return tuple(names)
    return None


def _bound(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name for alias in node.names]
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return [node.name]
    return [node.id] if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else []


def _kind_then_name(name: str) -> tuple[int, str]:
    """The order that ruff (RUF022) makes: constants, classes, functions."""
    kind = 0 if name.isupper() else 1 if name.lstrip("_")[:1].isupper() else 2
    return kind, name


def _private_names(node: ast.ClassDef) -> set[str]:
    """Private methods and attributes that a class defines in its body."""
    methods = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
    fields = {
        part.target.id
        for part in node.body
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
    }
    return {name for name in methods | fields if re.match("_[^_]", name)}


def test_no_class_overrides_what_is_private_in_another_module():
    """In `cbp`, what a subclass elsewhere may change has a public name; the rest is composed."""
    classes: dict[str, list[tuple[Path, Class]]] = {}
    for path in modules():
        if path.is_relative_to(REPO / "cbp"):
            for one in read_module(path).classes:
                classes.setdefault(one.name, []).append((path, one))

    def above(node: Class) -> list[tuple[Path, Class]]:
        direct = [one for name in node.bases for one in classes.get(name, [])]
        return [*direct, *(more for _, base in direct for more in above(base))]

    every = [one for many in classes.values() for one in many]
    subclasses = [(path, node, *one) for path, node in every for one in above(node)]
    assert len(subclasses) > 50
    wrong = {
        f"{path.relative_to(REPO)}: {node.name}.{name}"
        for path, node, other, base in subclasses
        if other != path
        for name in node.private & base.private
    }
    assert not wrong


def test_the_code_map_tells_of_a_place_once():
    """Nothing that begins a line of the map is described twice, as merged changes may leave it."""
    text = (REPO / "ARCHITECTURE.md").read_text(encoding="utf-8")
    code_map = text.partition("\n## Code map\n")[2].partition("\n## ")[0]
    actual = re.findall(r"^ *- (`[^`]+`)", code_map, flags=re.MULTILINE)
    assert len(actual) > 20
    assert [place for place in actual if actual.count(place) > 1] == []


def test_exports_are_sorted_and_there():
    """Every `__all__` is sorted, names each thing once, and names only what the module has."""
    for path in modules():
        module = read_module(path)
        if module.exported is None:
            continue
        where, names = str(path.relative_to(REPO)), list(module.exported)
        assert names == sorted(set(names), key=_kind_then_name), where
        assert set(names) <= module.bound, where


@pytest.mark.parametrize("package", PACKAGES)
def test_each_package_that_re_exports_says_what(package: str):
    """An `__init__.py` with imports of ours has an `__all__`."""
    for path in (REPO / package).rglob("__init__.py"):
        module = read_module(path)
        assert not module.ours or module.exported is not None, str(path.relative_to(REPO))


def test_no_file_names_a_machine_or_a_registry():
    """A clone works anywhere: no path of somebody's disk, no host of a package registry."""
    forbidden = re.compile(
        "|".join([*(rf"(?<![\w.-]){folder}" for folder in FOLDERS), *map(re.escape, HOSTS)])
    )
    actual = []
    for name in tracked_files():
        text = (REPO / name).read_bytes().decode("utf-8", errors="replace")
        for number, line in enumerate(text.splitlines(), start=1):
            if match := forbidden.search(line):
                actual.append(f"{name}:{number}: {match.group()}")
    assert actual == []
