"""Real webs for the applications: two installed manuals, and the modules of Python itself.

Debian's `postgresql-doc-15` and `python3-doc` are some 1,700 HTML pages; `.ci/run` installs
them where it may. A page is named by its path within the manual, and its site is the manual
and the folder. Links are the targets of its `<a href>`, within the manual, in their order.
"""

from __future__ import annotations

import posixpath
import re
from collections import deque
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from urllib.parse import unquote

from controller.demo.pages import find_modules, read_page, standard_library
from tests.machine import leave_out

Page = tuple[str, str, list[str | None] | None]
Edge = tuple[int, int]

MANUALS = {
    "postgresql": ("postgresql-doc-15", Path("/usr/share/doc/postgresql-doc-15/html")),
    "python": ("python3-doc", Path("/usr/share/doc/python3-doc/html")),
}
WEBS = [*MANUALS, "modules"]

_HREF = re.compile(r"""<a\s[^>]*?href\s*=\s*["']([^"'#?]+)""", re.IGNORECASE)


def pages_of(web: str, limit: int | None = None) -> list[Page]:
    """Return the pages of a web by name; at most so many, near one another; skip without it.

    Links to pages that are left out are left out too.
    """
    pages = _modules() if web == "modules" else _manual(*MANUALS[web])
    names = _near({url: links or [] for url, _, links in pages}, limit or len(pages))
    return [
        (url, site, [to for to in links or () if to in names])
        for url, site, links in pages
        if url in names
    ]


def _near(links: Mapping[str, Sequence[str | None]], limit: int) -> set[str]:
    """Return the pages that are found first from one in the middle, breadth first."""
    actual: dict[str, None] = {}
    starts = sorted(links, key=lambda url: (abs(len(links[url]) - 40), url))
    for start in starts:
        waiting = deque([start])
        while waiting and len(actual) < limit:
            url = waiting.popleft()
            if url not in actual:
                actual[url] = None
                waiting.extend(to for to in links[url] if to in links)  # type: ignore[misc]
    return set(actual)


def numbered(pages: list[Page]) -> list[Edge]:
    """Return the links between pages, each once, by the numbers of the pages."""
    numbers = {url: number for number, (url, _, _) in enumerate(pages)}
    pairs = [(numbers[url], numbers[str(to)]) for url, _, links in pages for to in links or ()]
    return list(dict.fromkeys(pairs))


@cache
def _manual(package: str, folder: Path) -> list[Page]:
    files = sorted(folder.rglob("*.html")) if folder.is_dir() else []
    if not files:
        leave_out("manuals", f"no pages in {folder}: install Debian's package {package}")
    return [_page(folder, file) for file in files]


def _page(folder: Path, file: Path) -> Page:
    url = file.relative_to(folder).as_posix()
    text = file.read_text(encoding="utf-8", errors="replace")
    here = posixpath.dirname(url)
    links: list[str | None] = [
        posixpath.normpath(posixpath.join(here, unquote(href)))
        for href in _HREF.findall(text)
        if ":" not in href
    ]
    return url, f"{folder.parent.name}/{here}", links


@cache
def _modules() -> list[Page]:
    modules = find_modules([standard_library()])
    actual = [page for one in modules.items() if (page := read_page(*one, modules)) is not None]
    return [(page.url, page.site, list(page.links)) for page in actual]
