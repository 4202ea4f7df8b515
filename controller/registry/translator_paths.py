"""Paths of `--translators`: a file, a folder of files, or a project; and their modules.

Guaranteed: nothing is imported here (tests/controller/registry/test_translator_files.py).
"""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from cbp.errors import DefinitionError, Mistake
from cbp.model.author.sibling_packages import is_installed
from cbp.model.author.source_modules import SourceModule

ENTRY_POINTS = "cbp.translators"
PROJECT = "pyproject.toml"
SOURCES_BYTES_MAX = 2 << 20
"""Largest size of one module; modules are sent with each run. More code belongs in a package."""

FILES_MAX = 1_000

_TESTS = ("test_", "conftest.", "setup.", "_", ".")


@dataclass(frozen=True, slots=True)
class GivenPath:
    """One path of the command line: its folder of modules, and its display form.

    Attributes:
        file: The file; `None` for a folder or a project.
        project: The folder of a project; `None` for others.
    """

    root: Path
    shown: str
    file: Path | None = None
    project: Path | None = None

    def targets(self) -> Mapping[str, str]:
        """Return the objects to load, by name: `module:attribute`, or a whole module."""
        if self.project is not None:
            return project_points(self.project)
        return {path.stem: path.stem for path in self.files()}

    def files(self) -> list[Path]:
        """Return the files whose translators can be named; none for a project's entry points."""
        if self.project is not None:
            return []
        if self.file is not None:
            return [self.file]
        return [path for path in _python_files(self.root) if _imports_cbp(path)]


def project_points(folder: Path) -> Mapping[str, str]:
    """Return the entry points `cbp.translators` of a project's `pyproject.toml`; empty if none.

    Raises `DefinitionError`, rule `translators_path_invalid`, if the file is not TOML.
    """
    try:
        values = tomllib.loads((folder / PROJECT).read_text(encoding="utf-8"))
        points = values.get("project", {}).get("entry-points", {}).get(ENTRY_POINTS, {})
        return {str(name): str(value) for name, value in points.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError) as error:
        message = f"{folder / PROJECT} cannot be read: {error}"
        raise _invalid(message) from error


def project_name(folder: Path) -> str:
    """Return the canonical name of the distribution that is built from a folder; `""` if none."""
    try:
        values = tomllib.loads((folder / PROJECT).read_text(encoding="utf-8"))
        return canonical_name(str(values.get("project", {}).get("name", "")))
    except (OSError, ValueError, AttributeError):
        return ""


def canonical_name(package: str) -> str:
    """Return the normalised name of a distribution, as used by package indexes."""
    return re.sub(r"[-_.]+", "-", package).lower()


def given_path(path: Path) -> GivenPath:
    """Return the meaning of one path."""
    if path.is_file() and path.suffix == ".py":
        if not path.stem.isidentifier() or path.stem.startswith("__"):
            why = "is not a valid module name; rename the file, for example to my_flow.py"
            message = f"{path.name} {why}"
            raise _invalid(message)
        return GivenPath(path.parent, path.name, file=path)
    if not path.is_dir():
        what = "is not a Python file" if path.exists() else "does not exist"
        message = f"{path} {what}; name a file that ends in .py, or a folder"
        raise _invalid(message)
    if points := project_points(path):
        tops = {value.partition(":")[0].partition(".")[0] for value in points.values()}
        source = path / "src"
        root = source if all(module_file(source, top) is not None for top in tops) else path
        return GivenPath(root, path.name, project=path)
    if (path / "__init__.py").exists():
        message = (
            f"{path} is a package. Name one of its files that imports no other file of the "
            "package, or the folder with the pyproject.toml that declares the entry points "
            f"{ENTRY_POINTS}"
        )
        raise _invalid(message)
    return GivenPath(path, path.name)


def is_taken(top: str, path: Path | None) -> bool:
    """Return whether a top-level name belongs to Python or to a module other than this file.

    Code of Python's own modules is not compared between versions. So a file with such a name is
    refused, even if `sys.path` lists it before Python's module.
    """
    if top in sys.stdlib_module_names:
        return True
    loaded = sys.modules.get(top)
    if loaded is not None:
        return str(path) != getattr(loaded, "__file__", None)
    if not is_installed(top):
        return False
    spec = importlib.util.find_spec(top)
    return spec is not None and path is not None and spec.origin != str(path)


def module_file(root: Path, name: str) -> Path | None:
    """Return the file of a module, or `None`."""
    base = root.joinpath(*name.split("."))
    for path in (base.with_name(f"{base.name}.py"), base / "__init__.py"):
        if path.is_file():
            return path
    return None


def read_module(root: Path, name: str) -> SourceModule | None:
    """Read a module of a folder; `None` if the folder has no module of this name.

    Raises `DefinitionError`, rule `translators_path_invalid`, if the module is too large.
    """
    path = module_file(root, name)
    if path is None:
        return None
    if path.stat().st_size > SOURCES_BYTES_MAX:
        message = (
            f"{path} has more than {SOURCES_BYTES_MAX} bytes; install the code as a package and "
            "add its name to CBP_ALLOWED_PACKAGES"
        )
        raise _invalid(message)
    return SourceModule(name, str(path), path.name == "__init__.py", path.read_bytes())


def is_current(module: SourceModule) -> bool:
    """Return whether the file of a module still has the content that was read."""
    try:
        return Path(module.path).read_bytes() == module.source
    except OSError:
        return False


def _python_files(folder: Path) -> list[Path]:
    files = sorted(
        path
        for path in folder.glob("*.py")
        if path.stem.isidentifier() and not path.name.startswith(_TESTS)
    )
    if len(files) > FILES_MAX:
        message = f"{folder} has more than {FILES_MAX} files; name the files with translators"
        raise _invalid(message)
    return files


def _imports_cbp(path: Path) -> bool:
    """Return whether a file imports `cbp`, or has a syntax error, which is then shown."""
    try:
        status = path.stat()
        return _parses_as_ours(path, status.st_ino, status.st_size, status.st_mtime_ns)
    except OSError:
        return False


@lru_cache(FILES_MAX)
def _parses_as_ours(path: Path, *_signature: int) -> bool:
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return True
    modules = {
        alias.name if isinstance(node, ast.Import) else node.module or ""
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    return any(name.partition(".")[0] == "cbp" for name in modules)


def _invalid(message: str) -> DefinitionError:
    return translators_mistake(message, "translators_path_invalid", "translators")


def translators_mistake(message: str, rule: str, where: str) -> DefinitionError:
    """Return the error of a wrong path, file or name."""
    return DefinitionError(Mistake(rule, where, message))
