"""The demo's corpus: installed Python modules as web pages that link to one another.

A module is a page, its top-level package is the page's site, and its imports are the page's
links. Every machine with Python has thousands of such documents.

    {"url": "rich.table", "site": "rich", "links": ["dataclasses", "rich.box", ...]}

Guaranteed: the same installation gives the same pages in the same order, and every page lies in
exactly one increment (tests/controller/demo/corpus/test_pages.py). Modules are read, never
imported.
Absent on purpose: test suites (a third of all modules, which nobody imports), and modules without
source.
"""

from __future__ import annotations

import ast
import json
import os
import sysconfig
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from controller.demo.errors import CorpusTooSmallError

__all__ = [
    "LAST",
    "Module",
    "Page",
    "all_names",
    "find_modules",
    "installed_folders",
    "read_page",
    "sample",
    "split",
    "standard_library",
    "write_pages",
]

LAST = 10
"""Pages of the last increment, which shows what a small arrival costs."""

_LEFT_OUT = frozenset({"__pycache__", "idle_test", "test", "tests", "_tests"})
_FOREIGN = frozenset({"site-packages", "dist-packages"})
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


@dataclass(frozen=True, slots=True)
class Module:
    """One source file that can be imported.

    Attributes:
        name: Dotted name; a package's `__init__.py` has the package's name.
        path: Path of its source.
        is_package: Whether relative imports in it start at itself.
    """

    name: str
    path: Path
    is_package: bool

    @property
    def site(self) -> str:
        """The top-level package."""
        return self.name.partition(".")[0]


@dataclass(frozen=True, slots=True)
class Page:
    """One document.

    Attributes:
        links: Dotted names that it imports, distinct and sorted.
    """

    url: str
    site: str
    links: tuple[str, ...]

    def record(self) -> dict[str, object]:
        """Return the page as a record of the dataflow's source `pages`."""
        return {"url": self.url, "site": self.site, "links": list(self.links)}


def installed_folders() -> list[Path]:
    """Return the folders that hold this interpreter's installed packages."""
    paths = sysconfig.get_paths()
    folders = dict.fromkeys(Path(paths[name]).resolve() for name in ("purelib", "platlib"))
    return [path for path in folders if path.is_dir()]


def standard_library() -> Path:
    """Return the folder of the standard library."""
    return Path(sysconfig.get_paths()["stdlib"]).resolve()


def find_modules(folders: Iterable[Path]) -> list[Module]:
    """Return the modules below these folders, by name; the first folder that has a name wins."""
    modules_by_name: dict[str, Module] = {}
    for folder in folders:
        for module in _modules_below(folder):
            known = modules_by_name.get(module.name)
            # Python prefers a package to a module of the same name in the same folder.
            if known is None or (module.is_package and not known.is_package):
                modules_by_name[module.name] = module
    return sorted(modules_by_name.values(), key=lambda module: module.name)


def all_names(modules: Iterable[Module]) -> frozenset[str]:
    """Return all names that `from package import name` may resolve to a module."""
    library = (module.name for module in find_modules([standard_library()]))
    return frozenset((*library, *(module.name for module in modules)))


def sample(modules: Sequence[Module], limit: int | None) -> list[Module]:
    """Return at most `limit` modules, spread evenly over the sorted names."""
    if limit is None or limit >= len(modules):
        return list(modules)
    return [modules[number * len(modules) // limit] for number in range(limit)]


def read_page(module: Module, names: frozenset[str]) -> Page | None:
    """Read the imports of a module.

    Args:
        module: Its source is parsed, not run.
        names: Names of all modules; they decide whether `from a import b` links to `a.b` or `a`.

    Returns:
        The page, or `None` if the file is not Python source of this version.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in third-party strings
            tree = ast.parse(module.path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    links = {link for node in _imports(tree) for link in _links(node, module, names)}
    return Page(module.name, module.site, tuple(sorted(links)))


def split(pages: Sequence[Page], increments: int) -> list[list[Page]]:
    """Split pages into `increments` parts of whole sites, and a last part of `LAST` pages.

    The last `LAST` pages are taken evenly from all pages. The largest sites are assigned first,
    each to the part that is smallest so far.

    Raises:
        CorpusTooSmallError: If there are too few sites or pages for that.
    """
    by_url = sorted(pages, key=lambda page: page.url)
    if len(by_url) < LAST + increments:
        raise CorpusTooSmallError(len(by_url), LAST + increments, "modules")
    last = {by_url[(2 * n + 1) * len(by_url) // (2 * LAST)].url for n in range(LAST)}
    rest = [page for page in by_url if page.url not in last]
    sizes = Counter(page.site for page in rest)
    if len(sizes) < increments:
        raise CorpusTooSmallError(len(sizes), increments, "packages")
    loads, part_of = [0] * increments, {}
    for site, size in sorted(sizes.items(), key=lambda item: (-item[1], item[0])):
        part_of[site] = loads.index(min(loads))
        loads[part_of[site]] += size
    parts: list[list[Page]] = [[] for _ in range(increments)]
    for page in rest:
        parts[part_of[page.site]].append(page)
    return [*parts, [page for page in by_url if page.url in last]]


def write_pages(path: Path, pages: Iterable[Page]) -> None:
    """Write pages as JSON lines."""
    with path.open("w", encoding="utf-8") as file:
        for page in pages:
            file.write(json.dumps(page.record(), ensure_ascii=False) + "\n")


def _modules_below(folder: Path) -> Iterator[Module]:
    for where, folders, files in os.walk(folder):
        folders[:] = sorted(
            name
            for name in folders
            if name.isidentifier() and name not in _LEFT_OUT and name not in _FOREIGN
        )
        package = Path(where).relative_to(folder).parts
        for name in sorted(files):
            stem, dot, suffix = name.rpartition(".")
            if not dot or suffix != "py" or not stem.isidentifier():
                continue
            is_package = stem == "__init__"
            # Such names at the top level belong to an installer, such as editable finders.
            if not package and stem.startswith("__"):
                continue
            dotted = package if is_package else (*package, stem)
            yield Module(".".join(dotted), Path(where, name), is_package)


def _imports(tree: ast.Module) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the import statements; visits statements only, which makes it fast."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
            continue
        for block in _BLOCKS:
            inside = getattr(node, block, None)
            if isinstance(inside, list):  # a lambda's body is an expression
                pending.extend(inside)


def _links(
    node: ast.Import | ast.ImportFrom, module: Module, names: frozenset[str]
) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    base = _base(node, module)
    if base is None:
        return
    for alias in node.names:
        inside = f"{base}.{alias.name}"
        yield inside if inside in names else base


def _base(node: ast.ImportFrom, module: Module) -> str | None:
    """Return the base of `from <base> import ...`; `None` if it leaves the top-level package."""
    if not node.level:
        return node.module
    package = module.name.split(".")
    up = node.level - 1 if module.is_package else node.level
    if up >= len(package):
        return None
    parent = package[: len(package) - up]
    return ".".join((*parent, *([node.module] if node.module else [])))
