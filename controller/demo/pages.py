"""The demo's input: installed Python modules as web pages that link to one another.

A module is a page, its top-level package is the page's site, and its imports are the page's
links. Every machine with Python has thousands of such documents.

    {"url": "rich.table", "site": "rich", "links": ["dataclasses", "rich.box", ...]}

Guaranteed: the same installation gives the same pages in the same order, and every page is in
exactly one increment (tests/controller/demo/test_pages.py). Modules are read, never imported.
Absent on purpose: test suites (a third of all modules, which nobody imports), and modules without
source.
"""

from __future__ import annotations

import ast
import os
import sysconfig
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cbp.errors import OperatingError

LAST = 10
"""Pages of the last increment, which shows what a small arrival costs."""

_LEFT_OUT = {"__pycache__", "idle_test", "test", "tests", "_tests"}
_FOREIGN = {"site-packages", "dist-packages"}
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


class CorpusTooSmallError(OperatingError, code="demo_corpus_too_small", retryable=False):
    """The interpreter has too few modules, or the limit is too low."""

    def __init__(self, found: int, needed: int, what: str) -> None:
        message = (
            f"found {found} {what}, but the demo needs at least {needed}; "
            "raise --limit, lower --increments, or add --stdlib"
        )
        super().__init__(message, found=found, needed=needed, what=what)


@dataclass(frozen=True, slots=True)
class Page:
    """One document; `links` are the names of the modules that it imports, distinct and sorted."""

    url: str
    site: str
    links: list[str]

    def record(self) -> dict[str, Any]:
        """Return the page as a record of the dataflow's source `pages`."""
        return asdict(self)


def installed_folders() -> list[Path]:
    """Return the folders that hold this interpreter's installed packages."""
    paths = sysconfig.get_paths()
    folders = dict.fromkeys(Path(paths[name]).resolve() for name in ("purelib", "platlib"))
    return [path for path in folders if path.is_dir()]


def standard_library() -> Path:
    """Return the folder of the standard library."""
    return Path(sysconfig.get_paths()["stdlib"]).resolve()


def find_modules(folders: Iterable[Path]) -> dict[str, Path]:
    """Return the modules below these folders by their dotted names, sorted.

    As in Python, the first folder with a name wins, and a package hides a module of its name.
    """
    modules: dict[str, Path] = {}
    for folder in folders:
        for where, inside, files in os.walk(folder):
            inside[:] = filter(str.isidentifier, {*inside} - _LEFT_OUT - _FOREIGN)
            package = Path(where).relative_to(folder).parts
            for path in (Path(where, file) for file in files):
                # Top-level names with `__` belong to an installer, such as editable finders.
                is_foreign = not package and path.stem.startswith("__")
                if path.suffix != ".py" or not path.stem.isidentifier() or is_foreign:
                    continue
                is_package = path.stem == "__init__"
                name = ".".join(package if is_package else (*package, path.stem))
                if name not in modules or (is_package and modules[name].stem != "__init__"):
                    modules[name] = path
    return dict(sorted(modules.items()))


def read_page(name: str, path: Path, names: Collection[str]) -> Page | None:
    """Return the page of a module; `None` if its file is not Python source of this version.

    The source is parsed and not run. The names of all modules decide whether `from a import b`
    links to `a.b` or `a`.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in third-party strings
            tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    parents = name.split(".") if path.stem == "__init__" else name.split(".")[:-1]
    links = {link for node in _imports(tree) for link in _links(node, parents, names)}
    return Page(name, _site(name), sorted(links))


def split(pages: Sequence[Page], increments: int) -> list[list[Page]]:
    """Split pages into `increments` parts of whole sites, and a last part of `LAST` pages.

    The last `LAST` pages are taken evenly from all pages. The largest sites are assigned first,
    each to the part that is smallest so far.
    """
    by_url = sorted(pages, key=lambda page: page.url)
    if len(by_url) < LAST + increments:
        raise CorpusTooSmallError(len(by_url), LAST + increments, "modules")
    last = [by_url[(2 * n + 1) * len(by_url) // (2 * LAST)] for n in range(LAST)]
    rest = [page for page in by_url if page not in last]
    sizes = Counter(page.site for page in rest)
    if len(sizes) < increments:
        raise CorpusTooSmallError(len(sizes), increments, "packages")
    parts: list[list[Page]] = [[] for _ in range(increments)]
    for site, _ in sorted(sizes.items(), key=lambda item: (-item[1], item[0])):
        min(parts, key=len).extend(page for page in rest if page.site == site)
    return [*parts, last]


def expected_touched(pages: Sequence[Page], before: Sequence[Page]) -> dict[str, tuple[int, int]]:
    """Return how many groups and state records each stage with state must touch for `pages`.

    Computed from the pages alone, by the wiring of the dataflow: a link calls the group of its
    target's site, and a page the group of its own site; the queue has a group per URL. A record is
    touched for each URL and for each site's total. Exact if no page arrived `before`.
    """
    linked = {link for page in pages for link in page.links}
    crawled = {page.url for page in pages}
    crawled_before = {page.url for page in before}
    linked_before = {link for page in before for link in page.links}
    linked_sites = set(map(_site, linked))
    called = linked_sites | set(map(_site, crawled))
    known = set(map(_site, linked_before | crawled_before))
    waiting = linked - crawled - crawled_before
    return {
        "count_in_links": (len(linked_sites), len(linked) + len(linked_sites)),
        "merge": (len(called), len(linked | crawled) + len(linked_sites | (called - known))),
        "threshold": (len(waiting | (crawled & linked_before)), len(waiting)),
    }


def _site(url: str) -> str:
    return url.partition(".")[0]


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
    node: ast.Import | ast.ImportFrom, parents: Sequence[str], names: Collection[str]
) -> Iterator[str]:
    """Yield the modules that a statement imports; none if it leaves the top-level package."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    above = parents[: max(0, len(parents) - node.level + 1)] if node.level else ()
    if node.level and not above:
        return
    base = ".".join((*above, *([node.module] if node.module else [])))
    for alias in node.names:
        inside = f"{base}.{alias.name}"
        yield inside if inside in names else base
