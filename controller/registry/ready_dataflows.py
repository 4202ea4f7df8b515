"""Ready dataflows, or examples: documents that installed packages offer to begin with.

    [project.entry-points."cbp.dataflows"]
    crawl_queue = "stages.flows.crawl_queue:document"

An entry point names a function without arguments that returns a document. As with translators,
only packages on the operator's list are imported.
"""

from __future__ import annotations

import importlib.metadata
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cbp.errors import NotFoundError

GROUP = "cbp.dataflows"


@dataclass(frozen=True, slots=True)
class ReadyDataflow:
    """One document that a package offers; `problem` says why it cannot be loaded.

    The summary is the first line of the docstring of its module.
    """

    name: str
    package: str
    summary: str
    document: Mapping[str, Any] | None
    problem: str = ""


def load_ready(
    points: Iterable[tuple[importlib.metadata.EntryPoint, str]], name: str | None = None
) -> list[ReadyDataflow]:
    """Load the ready dataflows, by name; raises `NotFoundError`."""
    offered = {point.name: (point, package) for point, package in points}
    if name is not None and name not in offered:
        hint = f"ready dataflows are: {', '.join(sorted(offered)) or 'none'}"
        raise NotFoundError(kind="ready dataflow", name=name, hint=hint)
    wanted = sorted(offered) if name is None else [name]
    return [_load(*offered[one]) for one in wanted]


def _load(point: importlib.metadata.EntryPoint, package: str) -> ReadyDataflow:
    try:
        made: Callable[[], Any] = point.load()
        document = made()
        if not isinstance(document, Mapping):
            kind = type(document).__name__
            message = f"{point.value} returned a {kind}, expected a document (a mapping)"
            raise TypeError(message)
    except Exception as error:  # importing an author's module may raise anything
        problem = f"{type(error).__name__}: {error}"
        return ReadyDataflow(point.name, package, "", None, problem)
    header = inspect.getdoc(inspect.getmodule(made)) or ""
    return ReadyDataflow(point.name, package, header.partition("\n")[0], document)
