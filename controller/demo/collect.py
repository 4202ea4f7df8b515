"""Reading the corpus with a bar, while the service starts beside it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from controller.demo.corpus import (
    Page,
    all_names,
    find_modules,
    installed_folders,
    read_page,
    sample,
    standard_library,
)
from controller.demo.options import DemoOptions
from controller.demo.report import Report

__all__ = ["Corpus", "collect"]

LOOKS_EVERY = 200
"""Modules read between two looks at whether the service still lives."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """All pages of the demo, by URL.

    Attributes:
        unreadable: Files that are no Python source of this version.
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


def collect(options: DemoOptions, report: Report, *, alive: Callable[[], None]) -> Corpus:
    """Read the pages that the options ask for.

    Args:
        options: `limit` and `stdlib` count.
        report: Shows the bar.
        alive: Raises when there is nobody left to read them for.
    """
    folders = installed_folders()
    found = find_modules([*folders, standard_library()] if options.stdlib else folders)
    names, modules = all_names(found), sample(found, options.limit)
    pages = []
    with report.bar("modules read", len(modules)) as advance, _no_collector():
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
    """Spare the cyclic collector the syntax trees: it costs a fifth of the time for nothing."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
