"""Reads the corpus and shows a progress bar, while the service starts in parallel."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from controller.demo.corpus.pages import (
    Page,
    all_names,
    find_modules,
    installed_folders,
    read_page,
    sample,
    standard_library,
)

__all__ = ["Bar", "Corpus", "collect"]

LOOKS_EVERY = 200
"""Modules that are read between two checks that the service is alive."""


Bar = Callable[[str, int], AbstractContextManager[Callable[[], None]]]
"""Shows a bar of a title and a length; yields what advances it by one."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """All pages of the demo, by URL.

    Attributes:
        unreadable: Number of files that are not Python source of this version.
    """

    pages: tuple[Page, ...]
    unreadable: int

    @property
    def sites(self) -> int:
        """Number of packages."""
        return len({page.site for page in self.pages})

    @property
    def links(self) -> int:
        """Number of links over all pages."""
        return sum(len(page.links) for page in self.pages)


def collect(bar: Bar, *, limit: int | None, with_stdlib: bool, alive: Callable[[], None]) -> Corpus:
    """Read the modules that are installed here.

    Args:
        bar: Shows how far it is.
        limit: Maximum number of modules to read, spread evenly; `None` means all.
        with_stdlib: Whether to read the standard library too.
        alive: Raises if the service has ended.
    """
    folders = installed_folders()
    modules = find_modules([*folders, standard_library()] if with_stdlib else folders)
    names, modules = all_names(modules), sample(modules, limit)
    pages = []
    with bar("modules read", len(modules)) as advance, _no_collector():
        for number, module in enumerate(modules):
            if number % LOOKS_EVERY == 0:
                alive()
            page = read_page(module, names)
            if page is not None:
                pages.append(page)
            advance()
    return Corpus(tuple(pages), len(modules) - len(pages))


@contextmanager
def _no_collector() -> Iterator[None]:
    """Disable the cyclic garbage collector, which finds nothing and takes a fifth of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
